"""What is known of an upstream, how old it is, and who is finding out.

What may not come in: how to ask; that is a function given to `Discovery`.

What is found holds for whose credentials found it, for a server may refuse a bad token with any status, also
with those that speak of the era.  For all others counts only what no refusal can look like: a modern answer
to the probe.  Who was found to speak otherwise is still asked otherwise, and what was found for all falls
when he who found it finds something else.  Where nothing is forwarded, there is but one asker.

Hazards:
- Those wait for one probe together whose credentials are the same.
- Old knowledge is used while a new probe runs.  One that fails must not be repeated with each request.
- What is started anew may be something else.
- Credentials are as many as there are tokens: what is kept of them is bounded.
"""

import asyncio
from collections import OrderedDict
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

MAX_ASKERS: Final = 1024
"""Credentials of which is kept what they found; beyond it, those that probed longest ago are forgotten."""


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

    @property
    def weight(self) -> int:
        """How hard it is to be mistaken for this: a modern answer, a handshake, nothing."""
        return 0 if self.discovered is None else 1 if self.era is Era.LEGACY else 2


class _Finding(msgspec.Struct):
    """What was found with the same credentials, until when it counts as new, and when was asked last."""

    asked: float = -inf
    known: Known | None = None
    fresh_until: float = -inf


class Discovery:
    """The knowledge about one upstream.

    Args:
        ask: sends a probe with this caller's credentials; raises `UpstreamFailure` where it decides nothing.
        asker: equal for callers whose requests look the same to the upstream.
        max_life: seconds that knowledge counts as new at most; may be set anew.
        clock: seconds, never going back.
        incarnation: the transport's, now.
        learnt: is told when something was found.
    """

    def __init__(
        self,
        ask: Callable[[Caller], Awaitable[Known]],
        *,
        asker: Callable[[Caller], bytes],
        max_life: float,
        clock: Callable[[], float],
        incarnation: Callable[[], int] = int,
        learnt: Callable[[], None] = lambda: None,
    ) -> None:
        self._ask = ask
        self._asker = asker
        self.max_life = max_life
        self._clock = clock
        self._incarnation = incarnation
        self._learnt = learnt
        self._probes: Together[Known] = Together("probe")
        self._own: OrderedDict[bytes, _Finding] = OrderedDict()
        self._told: _Finding | None = None
        self._told_by = b""

    @property
    def known(self) -> Known | None:
        """What may be told of the upstream, without regard to who asks."""
        return None if self._told is None else self._told.known

    def remaining(self, caller: Caller) -> float:
        """Seconds for which what this caller knows counts as new."""
        finding = self._finding(self._asker(caller))
        return 0.0 if finding is None else max(0.0, finding.fresh_until - self._clock())

    async def know(self, caller: Caller, deadline: float) -> Known:
        """What is known, after a probe if nothing is; what is old is used, and probed again meanwhile.

        Raises what `probe` raises.
        """
        finding = self._finding(self._asker(caller))
        known = None if finding is None else finding.known
        if known is None or known.incarnation != self._incarnation():
            return await self.probe(caller, deadline)
        if known.discovered is None:
            # Nothing is asked of it, so nothing else would tell that it is something else by now.
            return await self.reconsider(known, caller, deadline)
        if not self.remaining(caller):
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
        asker = self._asker(caller)
        finding = self._finding(asker)
        if finding is not None and finding.known is not None and finding.known is not known:
            return finding.known
        own = self._own.get(asker)
        if own is None or asker in self._probes.tasks or self._clock() - own.asked >= DOUBT:
            return await self.probe(caller, deadline)
        return known

    def refresh(self, caller: Caller) -> None:
        """Find out in the background, unless that was begun less than `MIN_LIFE` seconds ago."""
        finding = self._finding(self._asker(caller))
        now = self._clock()
        if finding is None or now - finding.asked >= MIN_LIFE:
            if finding is not None:
                finding.asked = now
            self._start(caller)

    async def close(self) -> None:
        """Cancel all probes, and wait until they have ended."""
        await self._probes.close()

    def _finding(self, asker: bytes) -> _Finding | None:
        """What counts for this asker."""
        own = self._own.get(asker)
        if own is not None and own.known is not None:
            return own
        told = self._told
        if told is not None and told.known is not None and told.known.era is Era.MODERN:
            return told
        return own

    def _start(self, caller: Caller) -> asyncio.Task[Known]:
        asker = self._asker(caller)
        if asker not in self._probes.tasks:
            self._own.setdefault(asker, _Finding()).asked = self._clock()
            self._own.move_to_end(asker)
            while len(self._own) > MAX_ASKERS:
                self._own.popitem(last=False)
        return self._probes.start(asker, lambda: self._learn(asker, caller))

    async def _learn(self, asker: bytes, caller: Caller) -> Known:
        asked = self._clock()
        known = await self._ask(caller)
        life = known.discovered.ttl_ms / 1000 if known.discovered is not None else 0.0
        finding = _Finding(asked, known, self._clock() + max(min(life, self.max_life), MIN_LIFE))
        # A modern answer is for all, and for this asker as one of them.
        self._own[asker] = _Finding(asked) if known.era is Era.MODERN else finding
        before = self.known
        if before is None or asker == self._told_by or known.weight >= before.weight:
            self._told, self._told_by = finding, asker
            self._learnt()
        return known
