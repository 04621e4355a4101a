"""What is known of an upstream from `server/discover`, how old it is, and who is finding out.

What may not come in: how to ask; that is a function given to `Discovery`.

Hazards:
- What is known is of the upstream, but whether it tells may depend on who asks (401).  So those wait for one
  probe together whose credentials are the same; the first who succeeds knows for all.
- A probe belongs to nobody in particular: it goes on when its first asker leaves, bounded by its own
  deadline.
- Old knowledge is used while a new probe runs.  One that fails must not be repeated with each request.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable
from math import inf
from typing import Final

import msgspec

from mcp_federator.errors import FederatorError
from mcp_federator.model import Caller, Era
from mcp_federator.protocol.modern import Discovered

MIN_LIFE: Final = 60.0
"""Seconds that knowledge counts as new at least, and between two probes in the background."""

DOUBT: Final = 5.0
"""Seconds between two probes where answers do not fit what is known."""

_log = logging.getLogger(__name__)


class Known(msgspec.Struct, frozen=True):
    """What an upstream is.  `discovered` is None for a legacy one."""

    era: Era
    discovered: Discovered | None = None


class Discovery:
    """The knowledge about one upstream.

    Args:
        ask: sends a probe with this caller's credentials; raises `UpstreamFailure` where it decides nothing.
        partition: whose credentials a caller's are.
        max_life: seconds that knowledge counts as new at most.
        clock: seconds, never going back.
    """

    def __init__(
        self,
        ask: Callable[[Caller], Awaitable[Known]],
        *,
        partition: Callable[[Caller], bytes],
        max_life: float,
        clock: Callable[[], float],
    ) -> None:
        self._ask = ask
        self._partition = partition
        self._max_life = max_life
        self._clock = clock
        self._probes: dict[bytes, asyncio.Task[Known]] = {}
        self._asked = self._fresh_until = -inf
        self.known: Known | None = None

    def remaining(self) -> float:
        """Seconds for which what is known counts as new."""
        return max(0.0, self._fresh_until - self._clock())

    async def know(self, caller: Caller, deadline: float) -> Known:
        """What is known, after a probe if nothing is; what is old is used, and probed again meanwhile.

        Raises what `probe` raises.
        """
        if self.known is None:
            return await self.probe(caller, deadline)
        if self.known.discovered is None:
            # Nothing is asked of a legacy server, so nothing else would tell that it is one no more.
            self.refresh(caller, pause=DOUBT)
        elif not self.remaining():
            self.refresh(caller)
        return self.known

    async def probe(self, caller: Caller, deadline: float) -> Known:
        """Find out now, together with all who have the same credentials.

        Raises:
            UpstreamFailure: see `ask`.
            TimeoutError: not by `deadline` on the event loop's clock, or not before `close`.
        """
        task = self._start(caller)
        try:
            async with asyncio.timeout_at(deadline):
                return await asyncio.shield(task)
        except asyncio.CancelledError:
            waiting = asyncio.current_task()
            if task.cancelled() and waiting is not None and not waiting.cancelling():
                raise TimeoutError from None
            raise

    def refresh(self, caller: Caller, *, pause: float = MIN_LIFE) -> None:
        """Find out in the background, unless that was begun less than `pause` seconds ago."""
        if self._clock() - self._asked >= pause:
            self._start(caller)

    async def close(self) -> None:
        """Cancel all probes, and wait until they have ended."""
        probes = tuple(self._probes.values())
        for task in probes:
            task.cancel()
        await asyncio.gather(*probes, return_exceptions=True)

    def _start(self, caller: Caller) -> asyncio.Task[Known]:
        partition = self._partition(caller)
        task = self._probes.get(partition)
        if task is None:
            self._asked = self._clock()
            task = asyncio.get_running_loop().create_task(self._learn(caller), name="probe")
            self._probes[partition] = task
            task.add_done_callback(lambda done: self._end(partition, done))
        return task

    async def _learn(self, caller: Caller) -> Known:
        known = await self._ask(caller)
        life = known.discovered.ttl_ms / 1000 if known.discovered is not None else 0.0
        self._fresh_until = self._clock() + max(min(life, self._max_life), MIN_LIFE)
        self.known = known
        return known

    def _end(self, partition: bytes, task: asyncio.Task[Known]) -> None:
        del self._probes[partition]
        problem = None if task.cancelled() else task.exception()
        if problem is not None and not isinstance(problem, FederatorError):
            # A probe in the background has nobody else to tell of our own mistakes.
            _log.error("a probe failed", exc_info=problem)
