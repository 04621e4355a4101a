"""One page of a merged list, as a plan: whom to ask in which round, and what their answers make together.

The federator asks `asks()` for a round, sends it, tells each outcome, and goes on until a round is empty or
the time is over; then `merged()` says what the page is and where the walk goes on.  Everything that can be
decided without waiting is decided here (design, section 4; server/utilities/pagination).

What may not come in: time-outs, tasks, codes of errors, and the text of the composite cursor.

Hazards:
- A page has at most one page with items of each upstream; that alone keeps each upstream's own order while
  the parts stand in configuration order.
- A part that does not fit is put off, whole.  It must have its turn some day, however the others go on, so
  the walk has a head: the upstream that was put off first, whose part is always taken.
- An upstream's cursor is tested for None: `""` is a cursor like any other.
- Pages are observed before anything is refused, or the next walk would begin with the same mistake.
"""

from collections import deque
from collections.abc import Mapping
from typing import Final, Literal, Protocol, TypeAlias

import msgspec

from mcp_federator.errors import FederatorError, McpError, Reason, UpstreamFailure
from mcp_federator.federation.cursor import (
    IDENTITY_BYTES,
    MAX_PLACES,
    MAX_UPSTREAM_CURSOR,
    CompositeCursor,
    Place,
)
from mcp_federator.federation.scopes import ListScopes
from mcp_federator.model import Answer, Hint, Method, Missing, Outcome, Scope, Served, Tier

ROUNDS: Final = 8
"""How often one request asks at most."""

ITEMS: Final = 1000
"""A page that has this many items asks no further."""

BYTES: Final = 16 << 20
"""A page takes no part more that would make it longer than this, but for one: see `Plan.answered`."""

ListScope: TypeAlias = Literal["auto", "public", "private"]
"""`cache.list_scope`: what a list counts as; `auto` goes by its pages."""

Failure: TypeAlias = UpstreamFailure | McpError
"""Why an upstream is missing: it gave no answer, or an error."""


class RestartError(FederatorError):
    """The walk cannot go on; the client has to begin anew.

    `reason` is `identity` (the name means another server now), `scope` (a listing that began public would
    show what is private) or `cursor` (the upstream does not know its own cursor any more).
    """

    def __init__(self, reason: Literal["identity", "scope", "cursor"], upstream: str = "") -> None:
        super().__init__(f"the walk is refused ({reason}) {upstream}".rstrip())
        self.reason = reason
        self.upstream = upstream


class NoAnswerError(FederatorError):
    """Every upstream there is failed, on this very page; `failures` stand in configuration order."""

    def __init__(self, failures: Mapping[str, Failure]) -> None:
        super().__init__("nobody answered: " + ", ".join(failures))
        self.failures = failures


class Listed(Protocol):
    """What a plan has to know of an upstream."""

    @property
    def name(self) -> str:
        """Its configured name."""

    @property
    def identity(self) -> bytes:
        """A digest of which server it is."""

    @property
    def required(self) -> bool:
        """A list without it is an error."""

    @property
    def list_scope(self) -> ListScope:
        """What its lists count as."""


class Ask(msgspec.Struct, frozen=True):
    """One page to ask one upstream for; `patient`: it is waited for beyond the soft deadline."""

    upstream: str
    cursor: str | None
    patient: bool = False


class Merged(msgspec.Struct, frozen=True):
    """What a page came to: the members of `Answer`, the body still in parts, the cursor not sealed."""

    parts: tuple[Answer, ...]
    hint: Hint
    cursor: CompositeCursor | None
    count: int
    extra: bytes
    meta: bytes
    incomplete: tuple[Missing, ...]
    served: Served


class Plan:
    """The making of one page.

    Args:
        method: the list.
        members: the upstreams that the caller may see, by name, in configuration order.
        cursor: where the walk stands; None begins it.
        window: how many upstreams may be open at once.
        whole: the caller may see every upstream there is.

    Raises:
        RestartError: the cursor is of a listing that cannot be continued.
    """

    def __init__(
        self,
        method: Method,
        members: Mapping[str, Listed],
        cursor: CompositeCursor | None = None,
        *,
        window: int,
        whole: bool = True,
    ) -> None:
        self.method = method
        self._members = members
        self._sealed_scope = cursor.scope if cursor else None
        self._window = min(window, MAX_PLACES)
        self._whole = whole
        places = [place for place in cursor.places if place.upstream in members] if cursor else []
        self._due = {place.upstream: place for place in places}
        """Open, to be asked in the next round or being asked."""
        self._kept: dict[str, Place] = {}
        """Open, and done with for this page."""
        self._waiting = deque(
            name
            for name in (cursor.waiting if cursor else members)
            if name in members and name not in self._due
        )
        self._queue = tuple(dict.fromkeys((*(place.upstream for place in places), *members)))
        """Who was put off first, then all others; its first is the head."""
        self._put_off: set[str] = set()
        self._parts: dict[str, list[Answer]] = {}
        self._observed: list[tuple[str, Scope]] = []
        self._failures: dict[str, Failure] = {}
        self._absent: set[str] = set()
        self._rounds = self._asked = self._count = self._bytes = 0
        self._late = False
        for place in places:
            if place.identity != members[place.upstream].identity[:IDENTITY_BYTES]:
                raise RestartError("identity", place.upstream)
        if self._sealed_scope is Scope.PUBLIC and not whole:
            raise RestartError("scope")

    @property
    def has_answers(self) -> bool:
        """Whether somebody answered: only then is anybody late."""
        return bool(self._parts)

    def asks(self) -> tuple[Ask, ...]:
        """Open a round; each of its asks gets its outcome before the next.  Empty: the page is full."""
        if self._rounds == ROUNDS or self._count >= ITEMS or self._bytes >= BYTES or self._put_off:
            return ()
        while self._waiting and len(self._due) + len(self._kept) < self._window:
            name = self._waiting.popleft()
            self._due[name] = Place(name, self._members[name].identity[:IDENTITY_BYTES], None)
        self._rounds += 1
        self._asked += len(self._due)
        return tuple(Ask(place.upstream, place.cursor, place.carried) for place in self._due.values())

    def answered(self, ask: Ask, answer: Answer) -> None:
        """The page came.  An empty one that is not the last is followed in the next round.

        One that would make the whole too long is put off: it is asked for again with the next page.  Not the
        head's, nor the first that has items, so the whole is shorter than `BYTES` and one page more.
        """
        problem = _problem(answer)
        if problem:
            self.failed(ask, UpstreamFailure(ask.upstream, Reason.BAD_REPLY, problem))
            return
        place = self._due.pop(ask.upstream)
        self._observed.append((ask.upstream, answer.hint.scope))
        size = len(answer.body)
        if self._bytes and self._bytes + size > BYTES and ask.upstream != self._queue[0]:
            self._kept[ask.upstream] = place
            self._put_off.add(ask.upstream)
            self._asked -= 1
            return
        self._bytes += size
        self._parts.setdefault(ask.upstream, []).append(answer)
        self._count += answer.count
        if answer.next_cursor is not None:
            open_places = self._kept if answer.count else self._due
            open_places[ask.upstream] = msgspec.structs.replace(place, cursor=answer.next_cursor)

    def failed(self, ask: Ask, error: Failure) -> None:
        """No page will come: the walk goes on without this upstream.

        Raises:
            UpstreamFailure, McpError: the error itself, where the upstream is required.
        """
        del self._due[ask.upstream]
        self._failures[ask.upstream] = error
        if self._members[ask.upstream].required:
            raise error

    def absent(self, ask: Ask) -> None:
        """The upstream has no such list.  That is no failure, and nothing private."""
        del self._due[ask.upstream]
        self._absent.add(ask.upstream)

    def late(self, ask: Ask) -> None:
        """The page did not come while others did: it is asked for with the next page, and patiently."""
        self._kept[ask.upstream] = msgspec.structs.replace(self._due.pop(ask.upstream), carried=True)
        self._late = True

    def merged(self, scopes: ListScopes, now: float) -> Merged:
        """Close the page.  `scopes` learns what its parts said; `now` is in seconds of the memory's clock.

        Raises:
            RestartError: the listing began public, and a part is private.
            NoAnswerError: an error, not an empty list.  Where others answered on an earlier page, those that
                fail on this one do not spoil the walk: they are named, even on an empty page.
        """
        for name, page_scope in self._observed:
            scopes.observe(name, self.method, page_scope, now)
        for name in self._absent:
            scopes.observe(name, self.method, Scope.PUBLIC, now)
        scope = self._scope(scopes, now)
        if (
            not self._parts
            and self._failures
            and self._members.keys() == self._failures.keys() | self._absent
        ):
            raise NoAnswerError(
                {name: self._failures[name] for name in self._members if name in self._failures}
            )
        parts = tuple(answer for name in self._members for answer in self._parts.get(name, ()))
        told = parts and not self._failures and not self._late
        alone = parts[-1] if len(self._parts) == 1 else None
        return Merged(
            parts=parts,
            hint=Hint(min(part.hint.ttl_ms for part in parts) if told else 0, scope),
            cursor=self._rest(scope),
            count=self._count,
            extra=alone.extra if alone else b"",
            meta=alone.meta if alone else b"",
            incomplete=tuple(
                missing(name, self._failures[name]) for name in self._members if name in self._failures
            ),
            served=parts[0].served if self._asked == len(parts) == 1 else _served(parts, self._asked),
        )

    def _scope(self, scopes: ListScopes, now: float) -> Scope:
        """The listing's scope: sealed by its first page, which has to speak for those it has not met."""
        if self._sealed_scope is None:
            out = (self._failures.keys() | self._absent) - self._parts.keys()
            listed = [name for name in self._members if name not in out]
            public = self._whole and self._parts and all(self._public(name, scopes, now) for name in listed)
            return Scope.PUBLIC if public else Scope.PRIVATE
        if self._sealed_scope is Scope.PUBLIC:
            for name, answers in self._parts.items():
                if any(self._part_scope(name, answer) is Scope.PRIVATE for answer in answers):
                    raise RestartError("scope", name)
        return self._sealed_scope

    def _part_scope(self, name: str, answer: Answer) -> Scope:
        configured = self._members[name].list_scope
        return answer.hint.scope if configured == "auto" else Scope(configured)

    def _public(self, name: str, scopes: ListScopes, now: float) -> bool:
        configured = self._members[name].list_scope
        return scopes.public(name, self.method, now) if configured == "auto" else configured == "public"

    def _rest(self, scope: Scope) -> CompositeCursor | None:
        """Where the walk goes on, or None: this was its last page."""
        if not (self._due or self._kept or self._waiting):
            return None
        still_open = self._due | self._kept
        names = [name for name in self._queue if name in self._put_off]
        names += [name for name in self._members if name in still_open and name not in self._put_off]
        places = tuple(still_open[name] for name in names)
        return CompositeCursor(self.method, scope, places, tuple(self._waiting))


def _problem(answer: Answer) -> str:
    """What makes this page unusable, or `""`."""
    if answer.interim:
        return "a list that asks for input"
    try:
        too_long = answer.next_cursor is not None and len(answer.next_cursor.encode()) > MAX_UPSTREAM_CURSOR
    except UnicodeEncodeError:
        return "a cursor that is no text"
    return "a cursor longer than 4 KiB" if too_long else ""


def missing(upstream: str, error: Failure) -> Missing:
    """What a page says of an upstream that it had to do without."""
    return Missing(upstream, error.reason if isinstance(error, UpstreamFailure) else Reason.REFUSED)


def _served(parts: tuple[Answer, ...], asked: int) -> Served:
    """How a page of many came about: a copy only if every ask was answered by one."""
    if not asked:
        return Served(outcome=Outcome.BYPASS)
    served = [part.served for part in parts]
    outcomes = [one.outcome for one in served]
    upstreams = tuple(dict.fromkeys(name for one in served for name in one.upstreams))
    # A stale copy is one for which nobody was asked; one that stands in for a failure was no hit.
    hits = sum(
        one.outcome is Outcome.HIT or (one.outcome is Outcome.STALE and one.detail != "stale-if-error")
        for one in served
    )
    if hits < asked:
        return Served(
            found_stale=Outcome.STALE in outcomes,
            refreshed=any(one.refreshed for one in served),
            hits=hits,
            misses=asked - hits,
            upstreams=upstreams,
        )
    return Served(
        outcome=Outcome.STALE if Outcome.STALE in outcomes else Outcome.HIT,
        tier=Tier.REDIS if any(one.tier is Tier.REDIS for one in served) else Tier.MEMORY,
        fresh_for=min((one.fresh_for for one in served if one.fresh_for is not None), default=None),
        detail=next((one.detail for one in served if one.detail), ""),
        hits=hits,
        upstreams=upstreams,
    )
