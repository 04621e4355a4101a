"""The sessions with one legacy upstream: one for each authorization context.

What may not come in: how a session is opened or ended; those are functions given to `Sessions`.

Hazards:
- Many calls may learn at once that a session is gone, some of them late.  The first takes it away, and all
  wait for one new one; who comes with the old one finds another there and takes nothing away.
- Authorization contexts are as many as there are tokens.  What is kept is bounded, and what falls out is
  ended at the upstream too, where it would live on.
- A session says who is meant by it: it is never used for another context.
- What is done for a session while it is kept does not count as its use, or none would ever rest.
"""

import asyncio
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Mapping
from contextlib import suppress
from typing import Final

import msgspec

from mcp_federator.errors import UpstreamFailure
from mcp_federator.model import Caller
from mcp_federator.protocol.modern import Discovered
from mcp_federator.upstream.together import Together

MAX_SESSIONS: Final = 256
"""Kept open with one upstream; beyond it, the one that rested longest is ended."""

MAX_REST: Final = 600.0
"""Seconds without a call after which a session is ended."""


class LostError(UpstreamFailure):
    """The upstream does not know the session any more."""


class Session(msgspec.Struct, frozen=True, eq=False, weakref=True):
    """One session; equal to itself alone.

    Attributes:
        id: None where the server keeps none; the handshake alone was needed.
        discovered: what the server said of itself when it was opened.
        incarnation: see `Transport`.
        headers: the fields that go along with whatever belongs to it, credentials included.
        context: the partition it is for, None where there is one for all.
    """

    id: str | None
    discovered: Discovered
    incarnation: int
    headers: Mapping[str, str]
    context: bytes | None = None

    @property
    def version(self) -> str:
        """The revision that is spoken in it."""
        return self.discovered.versions[0]


class _Kept:
    def __init__(self, session: Session, used: float) -> None:
        self.session = session
        self.used = used


class Sessions:
    """The sessions with one upstream.

    Args:
        establish: opens a session with this caller's credentials; raises `UpstreamFailure`.
        end: tells the upstream that a session is over; raises `UpstreamFailure`.
        used: told of a session whenever it is used, with what to call if the upstream does not know it any
            more.
        over: told that a session will not be used again.
        partition: whose credentials a caller's are.
        incarnation: the transport's, now.
        clock: seconds, never going back.
    """

    def __init__(
        self,
        establish: Callable[[Caller], Awaitable[Session]],
        end: Callable[[Session], Awaitable[None]],
        *,
        used: Callable[[Session, Callable[[], None]], None],
        over: Callable[[Session], None],
        partition: Callable[[Caller], bytes],
        incarnation: Callable[[], int],
        clock: Callable[[], float],
    ) -> None:
        self._establish = establish
        self._tell_end = end
        self._used = used
        self._over = over
        self._partition = partition
        self._incarnation = incarnation
        self._clock = clock
        self._kept: OrderedDict[bytes, _Kept] = OrderedDict()
        self._opening: Together[Session] = Together("handshake")
        self._ending: set[asyncio.Task[None]] = set()
        self._timer: asyncio.TimerHandle | None = None

    def __len__(self) -> int:
        return len(self._kept)

    async def get(self, caller: Caller, deadline: float) -> Session:
        """The session of this caller's context; if there is none, one opened by all together who need it.

        Raises:
            UpstreamFailure: see `establish`.
            TimeoutError: not by `deadline` on the event loop's clock, or not before `close`.
        """
        key = self._partition(caller)
        kept = self._kept.get(key)
        if kept is not None:
            if kept.session.incarnation == self._incarnation():
                kept.used = self._clock()
                self._kept.move_to_end(key)
                self._used(kept.session, lambda: self._lose(key, kept.session))
                return kept.session
            self._drop(key)  # nobody is there to be told of its end
        return await self._opening.result(self._opening.start(key, lambda: self._open(key, caller)), deadline)

    def lose(self, caller: Caller, session: Session) -> None:
        """The upstream does not know this session any more; nothing happens where there is a newer one."""
        self._lose(self._partition(caller), session)

    def end_idle(self) -> None:
        """End what has rested too long, and look again when the next one will have."""
        now = self._clock()
        while self._kept:
            key, oldest = next(iter(self._kept.items()))
            left = oldest.used + MAX_REST - now
            if left > 0:
                self._look_again(left)
                return
            if oldest.session.id is None:
                # The server keeps nothing that could be ended, or its process is what was opened.
                oldest.used = now
                self._kept.move_to_end(key)
            else:
                self._end(self._drop(key))

    async def close(self, deadline: float) -> None:
        """End all sessions; what has not ended by `deadline` is left to the upstream's own patience."""
        if self._timer is not None:
            self._timer.cancel()
        await self._opening.close()
        while self._kept:
            self._end(self._drop(next(iter(self._kept))))
        with suppress(TimeoutError):
            async with asyncio.timeout_at(deadline):
                await asyncio.shield(asyncio.gather(*self._ending))
        for task in self._ending:
            task.cancel()
        await asyncio.gather(*self._ending, return_exceptions=True)

    async def _open(self, key: bytes, caller: Caller) -> Session:
        session = await self._establish(caller)
        self._kept[key] = _Kept(session, self._clock())
        while len(self._kept) > MAX_SESSIONS:
            self._end(self._drop(next(iter(self._kept))))
        if self._timer is None:
            self._look_again(MAX_REST)
        self._used(session, lambda: self._lose(key, session))
        return session

    def _lose(self, key: bytes, session: Session) -> None:
        kept = self._kept.get(key)
        if kept is not None and kept.session is session:
            self._drop(key)

    def _drop(self, key: bytes) -> Session:
        session = self._kept.pop(key).session
        self._over(session)
        return session

    def _look_again(self, seconds: float) -> None:
        def look() -> None:
            self._timer = None
            self.end_idle()

        if self._timer is not None:
            self._timer.cancel()
        self._timer = asyncio.get_running_loop().call_later(seconds, look)

    def _end(self, session: Session) -> None:
        if session.id is None or session.incarnation != self._incarnation():
            return
        task = asyncio.get_running_loop().create_task(self._told(session), name="end of session")
        self._ending.add(task)
        task.add_done_callback(self._ending.discard)

    async def _told(self, session: Session) -> None:
        # An upstream that does not want to hear it ends the session by itself.
        with suppress(UpstreamFailure):
            await self._tell_end(session)
