"""The load that a flight runs: memory once more, then Redis if it is there, then the upstream.

Memory is looked at again because another flight may have landed between this one's start and its first step.
What is found in Redis goes into memory with the stamp that was read before the look-up: Redis may not have
heard of a change that this process has.  An answer of the upstream is admitted in both tiers.

What may not come in: who may take what a flight brings (`readthrough`), counting.

Hazards:
- Between an upstream's answer and its admission in memory nothing may be awaited; Redis comes after it.
- A lease of Redis is ended on every path, or other replicas wait for this one in vain.
- An error that a flight brings is one object for all its waiters: nobody may change it.
"""

from typing import TypeVar

import msgspec
from msgspec.structs import replace

from mcp_federator.cache.copies import Copies, Found, Place
from mcp_federator.cache.entry import Entry
from mcp_federator.cache.generations import Stamp
from mcp_federator.cache.shared import Lease, Shared
from mcp_federator.errors import McpError, Reason, UpstreamFailure
from mcp_federator.model import Caller, Scope, Source, Tier
from mcp_federator.protocol.vocabulary import Code

_Trouble = TypeVar("_Trouble", bound=McpError | UpstreamFailure)


class Landing(msgspec.Struct, frozen=True):
    """What a flight brings its waiters: a complete answer, a failure, or neither.

    Neither means that the upstream wants to hear each caller for himself: `input_required`, or a capability
    that a shared fetch does not declare.

    Attributes:
        entry: the answer, whether it was admitted or not.
        error: the failure.
        look_again: nobody was asked; there is a fresh copy in memory by now.
        stored: the answer was admitted.
        found_stale: a stale copy was at hand when the upstream was asked.
        tier: where the answer was found, which is then a copy; nowhere if it came from the upstream.
        spare: a copy in Redis that may stand in for the failure.
    """

    entry: Entry | None = None
    error: McpError | UpstreamFailure | None = None
    look_again: bool = False
    stored: bool = False
    found_stale: bool = False
    tier: Tier = Tier.NONE
    spare: Entry | None = None

    @property
    def for_anyone(self) -> bool:
        """Whether another partition than the leader's may take it."""
        if self.entry is not None:
            return self.entry.scope is Scope.PUBLIC
        return isinstance(self.error, UpstreamFailure) and not self.error.personal


class Loads:
    """The loads of one upstream; `shared` is its part in Redis, None where there is none."""

    def __init__(self, source: Source, copies: Copies, shared: Shared | None) -> None:
        self._source = source
        self._copies = copies
        self._shared = shared

    async def load(self, place: Place, caller: Caller, stamp: Stamp, *, refresh: bool) -> Landing:
        """Load an answer; what goes wrong on purpose is brought home, not raised.

        Args:
            place: where the answer may be found.
            caller: who asks.
            stamp: was read when the flight began.
            refresh: an answer of the upstream is wanted although a fresh copy may be kept.
        """
        kept = self._copies.find(place, stale=True)
        if kept is not None and kept.left > 0 and not refresh:
            return Landing(look_again=True)
        shared = self._shared
        look = None
        if shared is not None:
            look = await shared.look(place.query, place.public, place.partition, refresh=refresh)
        if shared is None or look is None:
            return _beside(kept, await self._ask(place, caller, stamp, None))
        if look.found is not None:
            entry = self._copies.entry(look.found.answer, stamp, left=look.found.left)
            self._copies.admit(place, entry)
            return Landing(entry, tier=Tier.REDIS)
        try:
            landing = await self._ask(place, caller, stamp, look.lease)
        except BaseException:
            if look.lease is not None:
                shared.abandon(look.lease)
            raise
        if look.spare is None:
            return _beside(kept, landing)
        spare = self._copies.entry(look.spare.answer, stamp, left=look.spare.left)
        return replace(_beside(kept or Found(spare, look.spare.left), landing), spare=spare)

    async def _ask(self, place: Place, caller: Caller, stamp: Stamp, lease: Lease | None) -> Landing:
        """Ask the upstream, and do in both tiers what follows; `lease` is what Redis is to be told under."""
        try:
            answer = await self._source.fetch(place.query, caller)
        except McpError as error:
            await self._overrule(place, stamp, lease)
            return Landing() if error.code == Code.MISSING_CAPABILITY else Landing(error=bare(error))
        except UpstreamFailure as failure:
            if failure.reason is Reason.REFUSED and not failure.stale_ok:
                # A refusal of who asks says nothing of what others may have.
                await self._overrule(place, stamp, lease, public=not failure.personal)
            elif self._shared is not None and lease is not None:
                await self._shared.land(lease)
            return Landing(error=bare(failure))
        if answer.interim:
            await self._overrule(place, stamp, lease)
            return Landing()
        entry = self._copies.entry(answer, stamp)
        stored = self._copies.admit(place, entry)
        if self._shared is not None and lease is not None:
            stored = await self._shared.admit(lease, answer) or stored
        return Landing(entry, stored=stored)

    async def _overrule(
        self, place: Place, stamp: Stamp, lease: Lease | None, *, public: bool = True
    ) -> None:
        """The upstream gave an answer that is not kept; no older one may be served in its stead."""
        if stamp.generation == self._copies.generations.of(place.query):
            self._copies.drop(place, public=public)
        if self._shared is not None and lease is not None:
            await self._shared.overrule(lease, public=public)


def bare(error: _Trouble) -> _Trouble:
    """The error without the way it came: the frames there hold whole answers, and a caller's headers."""
    error.__cause__ = error.__context__ = error.__traceback__ = None
    return error


def _beside(kept: Found | None, landing: Landing) -> Landing:
    """The landing, where that copy was at hand when the upstream was asked."""
    return replace(landing, found_stale=True) if kept is not None and kept.left <= 0 else landing
