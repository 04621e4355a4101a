"""The words of the house, as types: what is asked, who asks, what is answered.

One verb goes through the house, `fetch(query, caller) -> answer`; everything that has it is a `Source`.
Failures are exceptions of `errors`.  All values are frozen.  Bytes are JSON text in UTF-8 that was checked at
the door.
"""

from collections.abc import Mapping
from enum import StrEnum
from typing import Protocol

import msgspec


class Era(StrEnum):
    """Which generation of the protocol a party speaks (basic/versioning, "Terminology")."""

    MODERN = "modern"
    LEGACY = "legacy"


class Method(StrEnum):
    """The methods a query can have."""

    DISCOVER = "server/discover"
    LIST = "resources/list"
    TEMPLATES = "resources/templates/list"
    READ = "resources/read"
    COMPLETE = "completion/complete"


class Scope(StrEnum):
    """`cacheScope` (server/utilities/caching, "Cache Scope Field")."""

    PUBLIC = "public"
    PRIVATE = "private"


class Outcome(StrEnum):
    """What the cache did for one upstream query; each query has exactly one."""

    HIT = "hit"
    """A fresh copy was served."""
    STALE = "stale"
    """A stale copy was served because the upstream gave no answer."""
    MISS = "miss"
    """No copy could be served, and this query went for the upstream."""
    COALESCED = "coalesced"
    """Another query's flight answered."""
    BYPASS = "bypass"
    """Neither looked up nor stored: a retry with input, a completion, or asked for one caller alone."""


class Tier(StrEnum):
    """Where a served copy was found."""

    MEMORY = "memory"
    REDIS = "redis"
    NONE = "none"


class Hint(msgspec.Struct, frozen=True):
    """How long, and for whom, an answer may be kept.

    `ttl_ms` is a whole number of milliseconds, never negative; on an answer it is the life that remains.
    """

    ttl_ms: int
    scope: Scope


class Retry(msgspec.Struct, frozen=True):
    """The members of a read that answer an earlier `input_required`, byte for byte (basic/patterns/mrtr)."""

    input_responses: bytes | None = None
    request_state: bytes | None = None


class Completion(msgspec.Struct, frozen=True):
    """What is to be completed, JSON objects byte for byte (server/utilities/completion, "Data Types").

    Attributes:
        argument: the name of an argument and what its value begins with.
        context: arguments that are settled already.
    """

    argument: bytes
    context: bytes | None = None


class Query(msgspec.Struct, frozen=True):
    """What is asked.

    Attributes:
        method: one of the five.
        uri: of a read, or the URI or template that a completion refers to; public above the federator, native
            below it.  A completion that refers to a prompt has none.
        cursor: of a list; the composite cursor above the federator, the upstream's own below it.  `None` is
            "no cursor", which is not `""`.
        retry: a read's answer to an earlier `input_required`; such a query is never stored nor shared.
        refresh: the asker wants a copy from upstream although a fresh one is kept.
        alone: asked for this caller alone, with the caller's own capabilities; never stored nor shared.
        completion: what a completion is about; such a query is never stored nor shared.
    """

    method: Method
    uri: str | None = None
    cursor: str | None = None
    retry: Retry | None = None
    refresh: bool = False
    alone: bool = False
    completion: Completion | None = None


class Trace(msgspec.Struct, frozen=True):
    """W3C trace context of a request, syntax checked (basic/index, "OpenTelemetry trace context")."""

    traceparent: str
    tracestate: str | None = None
    baggage: str | None = None


class Caller(msgspec.Struct, frozen=True):
    """Who asks, and what goes along with his request.

    Attributes:
        headers: lower-case name -> value, only of fields that some upstream's `forward` names.
        capabilities: the client's capabilities as a JSON object.
        trace: trace context that goes upstream on a miss; no part of any identity.
        era: the era the asker speaks.
        upstreams: the upstreams this caller may see; None means all.
    """

    headers: Mapping[str, str] = {}
    capabilities: bytes = b"{}"
    trace: Trace | None = None
    era: Era = Era.MODERN
    upstreams: frozenset[str] | None = None


ANYONE = Caller()
"""A caller who brings nothing along."""


class Served(msgspec.Struct, frozen=True):
    """How an answer came about; `Cache-Status`, metrics and the log tell it.

    Attributes:
        outcome: see `Outcome`.
        tier: where the copy was, for HIT and STALE.
        fresh_for: seconds of life that remain, negative when stale; None where the answer is not a copy.
        found_stale: a stale copy was at hand when the query was sent upstream.
        detail: why a stale copy was served: `stale-if-error`, or `breaker`, `held`, `overloaded` where the
            upstream was not asked.
        upstreams: configured names of those the answer came from; for the log.
        stored: the answer was admitted.
        refreshed: sent upstream because the asker said so.
        hits, misses: of a merged list, how many parts were copies and how many were not.
        beyond: what caches beyond us said of it (`Cache-Status`), where it comes straight from an upstream.
    """

    outcome: Outcome = Outcome.MISS
    tier: Tier = Tier.NONE
    fresh_for: int | None = None
    found_stale: bool = False
    detail: str = ""
    upstreams: tuple[str, ...] = ()
    stored: bool = False
    refreshed: bool = False
    hits: int = 0
    misses: int = 0
    beyond: str = ""


class Missing(msgspec.Struct, frozen=True):
    """An upstream that a merged list had to do without; `_meta["dev.mcp-federator/incomplete"]` names it."""

    upstream: str
    reason: str


class Answer(msgspec.Struct, frozen=True):
    """What is answered: bytes with a small header.  URIs in it are public.

    Attributes:
        body: of a list, its items joined by commas, without brackets; of anything else, the result's members
            joined by commas, without braces, less `resultType`, `ttlMs`, `cacheScope` and `_meta`.
        hint: what the asker may be told; meaningless when `interim`, and of a completion.
        next_cursor: of a list; None means that this was the last page.
        count: number of items or contents.
        extra: of a list, the result's other members joined by commas, without braces.
        meta: the members of the result's `_meta` joined by commas, without braces and without reserved keys.
        interim: `resultType` is `input_required`.
        incomplete: of a merged list, who is missing.
        served: how it came about.
        uris: of an upstream's read, native URIs that its contents carry and that are not the one asked for:
            a change of one of them is a change of this answer.
    """

    body: bytes
    hint: Hint
    next_cursor: str | None = None
    count: int = 0
    extra: bytes = b""
    meta: bytes = b""
    interim: bool = False
    incomplete: tuple[Missing, ...] = ()
    served: Served = Served()
    uris: tuple[str, ...] = ()


class Source(Protocol):
    """Whoever answers queries: the federator, the cache before an upstream, an upstream."""

    async def fetch(self, query: Query, caller: Caller) -> Answer:
        """Answer, or raise `McpError` (an answer that is an error) or `UpstreamFailure` (no answer)."""
        ...


class Change(StrEnum):
    """What an event says."""

    LIST = "list_changed"
    """The resources or the templates of an upstream are others now."""
    RESOURCE = "updated"
    """One resource changed, and with it whatever it is a part of."""
    GAP = "gap"
    """Events may have been missed: what is kept is stale, not gone."""


class Event(msgspec.Struct, frozen=True):
    """One change at an upstream.

    Attributes:
        upstream: its configured name.
        change: what it says.
        uri: native, and only there for `Change.RESOURCE`.
        context: the partition whose stream it was heard on; None where it concerns everyone.
    """

    upstream: str
    change: Change
    uri: str | None = None
    context: bytes | None = None


class Wanted(msgspec.Struct, frozen=True):
    """What somebody wants to hear of (basic/patterns/subscriptions, "Notification Filter").

    Attributes:
        lists: that the resources or the templates are others now.
        uris: the resources whose changes matter; public above the hub, native below it.
    """

    lists: bool = False
    uris: frozenset[str] = frozenset()

    def __bool__(self) -> bool:
        return self.lists or bool(self.uris)


class Offers(msgspec.Struct, frozen=True):
    """What an upstream tells by itself: that its lists changed, that a resource did."""

    lists: bool = False
    resources: bool = False
