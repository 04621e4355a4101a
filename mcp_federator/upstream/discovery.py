"""What is known of an upstream, how old it is, and who is finding out.

What may not come in: how to ask; that is a function given to `Discovery`.

Hazards:
- What is known is of the upstream, but whether it tells may depend on who asks (401).  So those wait for one
  probe together whose credentials are the same; the first who succeeds knows for all.
- Old knowledge is used while a new probe runs.  One that fails must not be repeated with each request.
- What is started anew may be something else.
"""

import asyncio
from collections.abc import Awaitable, Callable
from math import inf
from typing import Final

import msgspec

from mcp_federator.model import Caller, Era
from mcp_federator.protocol.modern import Discovered
from mcp_federator.protocol.vocabulary import MODERN
from mcp_federator.upstream.together import Together

MIN_LIFE: Final = 60.0
"""Seconds that knowledge counts as new at least, and between two probes in the background."""

DOUBT: Final = 5.0
"""Seconds between two probes where answers do not fit what is known."""


class Known(msgspec.Struct, frozen=True):
    """What an upstream is.

    Attributes:
        era: modern or legacy.
        discovered: what it says of itself; None where it is none that we can ask.
        problem: in that case, why.
        incarnation: the transport's when this was learnt.
    """

    era: Era
    discovered: Discovered | None = None
    problem: str = ""
    incarnation: int = 0

    @property
    def version(self) -> str:
        """The protocol version spoken with it, `""` where none is."""
        if self.discovered is None:
            return ""
        return MODERN if self.era is Era.MODERN else self.discovered.versions[0]


class Discovery:
    """The knowledge about one upstream.

    Args:
        ask: sends a probe with this caller's credentials; raises `UpstreamFailure` where it decides nothing.
        partition: whose credentials a caller's are.
        max_life: seconds that knowledge counts as new at most.
        clock: seconds, never going back.
        incarnation: the transport's, now.

    Attributes:
        known: the latest that was learnt.
        max_life: as given; it may be given anew.
    """

    def __init__(
        self,
        ask: Callable[[Caller], Awaitable[Known]],
        *,
        partition: Callable[[Caller], bytes],
        max_life: float,
        clock: Callable[[], float],
        incarnation: Callable[[], int] = int,
    ) -> None:
        self._ask = ask
        self._partition = partition
        self.max_life = max_life
        self._clock = clock
        self._incarnation = incarnation
        self._probes: Together[Known] = Together("probe")
        self._asked = self._fresh_until = -inf
        self.known: Known | None = None

    def remaining(self) -> float:
        """Seconds for which what is known counts as new."""
        return max(0.0, self._fresh_until - self._clock())

    async def know(self, caller: Caller, deadline: float) -> Known:
        """What is known, after a probe if nothing is; what is old is used, and probed again meanwhile.

        Raises what `probe` raises.
        """
        known = self.known
        if known is None or known.incarnation != self._incarnation():
            return await self.probe(caller, deadline)
        if known.discovered is None:
            # Nothing is asked of it, so nothing else would tell that it is something else by now.
            return await self.reconsider(known, caller, deadline)
        if not self.remaining():
            self.refresh(caller)
        return known

    async def probe(self, caller: Caller, deadline: float) -> Known:
        """Find out now, together with all who have the same credentials.

        Raises:
            UpstreamFailure: see `ask`.
            TimeoutError: not by `deadline` on the event loop's clock, or not before `close`.
        """
        return await self._probes.result(self._start(caller), deadline)

    async def reconsider(self, known: Known, caller: Caller, deadline: float) -> Known:
        """What is known where an answer did not fit what was: it is found out, but at most once in `DOUBT`.

        Raises what `probe` raises.
        """
        if self.known is not None and self.known is not known:
            return self.known
        if self._probes.tasks or self._clock() - self._asked >= DOUBT:
            return await self.probe(caller, deadline)
        return known

    def refresh(self, caller: Caller) -> None:
        """Find out in the background, unless that was begun less than `MIN_LIFE` seconds ago."""
        if self._clock() - self._asked >= MIN_LIFE:
            self._start(caller)

    async def close(self) -> None:
        """Cancel all probes, and wait until they have ended."""
        await self._probes.close()

    def _start(self, caller: Caller) -> asyncio.Task[Known]:
        partition = self._partition(caller)
        if partition not in self._probes.tasks:
            self._asked = self._clock()
        return self._probes.start(partition, lambda: self._learn(caller))

    async def _learn(self, caller: Caller) -> Known:
        known = await self._ask(caller)
        life = known.discovered.ttl_ms / 1000 if known.discovered is not None else 0.0
        self._fresh_until = self._clock() + max(min(life, self.max_life), MIN_LIFE)
        self.known = known
        return known
