"""The streams on which a legacy upstream speaks of its own accord: what it says of changes comes there.

One for each session (2025-11-25, basic/transports, "Listening for Messages from the Server"), held open from
its session's beginning to its end.  What may not come in: the bytes of HTTP, and what a change makes stale.

Hazards:
- Not every server has such a stream, and some say so oddly: with 404, or with a stream that ends at once.
  None of these may be asked again and again, nor may a 404 end a session that has only begun.
- While no stream is open changes pass unheard.  Who opens the next one says so, once, with a gap.
- A stream is no call: it keeps no session from ending, counts as no connection, and says nothing of the
  upstream's health.
"""

import asyncio
import logging
import random
from collections.abc import Callable
from http import HTTPStatus
from math import inf
from typing import Final
from weakref import WeakSet

from mcp_federator.errors import Reason, UpstreamFailure
from mcp_federator.model import Change, Event
from mcp_federator.protocol import sse
from mcp_federator.upstream.restarts import Restarts
from mcp_federator.upstream.sessions import Session
from mcp_federator.upstream.together import Together
from mcp_federator.upstream.transport import MAX_EVENT, PASSING, Changed, Transport

MAX_STREAMS: Final = 16
"""Open with one upstream.  A session that begins while there are so many gets its own when one is free; what
concerns all sessions is heard on any."""

MAX_RETRY: Final = 60.0
"""Seconds that a server can ask us to wait (its `retry` field)."""

_SHORT: Final = 1.0
"""Seconds; a stream that ends before, and without a word, was none."""

_SHORTS: Final = 3
"""So many of them in a row mean that no stream is offered."""

_UNKNOWN: Final = frozenset({HTTPStatus.BAD_REQUEST, HTTPStatus.NOT_FOUND})
"""What servers say of a session that they do not know, and of a method that they do not have."""

_log = logging.getLogger(__name__)


class Streams:
    """The streams of one upstream.

    Args:
        name: its configured name.
        transport: opens them.
        changed: is told of gaps; of all else the transport tells.
        jitter: see `Restarts`.
    """

    def __init__(
        self,
        name: str,
        transport: Transport,
        changed: Changed,
        *,
        jitter: Callable[[], float] = random.random,
    ) -> None:
        self._name = name
        self._transport = transport
        self._changed = changed
        self._jitter = jitter
        self._open: Together[None] = Together("stream")
        self._refused: WeakSet[Session] = WeakSet()
        self._missed = False
        """A stream that was open is not, and since then none began to replace it."""

    def __len__(self) -> int:
        return len(self._open.tasks)

    def want(self, session: Session, lost: Callable[[], None]) -> None:
        """Open the stream of a session unless there is one, or none is offered, or there are too many.

        `lost` is called where the upstream does not know the session any more.  A server that gives no ids
        has nobody to speak to.
        """
        tasks = self._open.tasks
        if (
            session.id is None
            or not session.discovered.resources
            or session in tasks
            or session in self._refused
            or len(tasks) >= MAX_STREAMS
        ):
            return
        self._open.start(session, lambda: self._hold(session, lost))

    def end(self, session: Session) -> None:
        """The session is over, and its stream with it."""
        task = self._open.tasks.get(session)
        if task is not None:
            task.cancel()

    async def close(self) -> None:
        """End all streams, and wait until they have."""
        await self._open.close()

    async def _hold(self, session: Session, lost: Callable[[], None]) -> None:
        """Keep one stream open; returns where there is none to be had."""
        stream = _Stream(self._jitter)
        try:
            while True:
                status = await self._listen(session, stream)
                if self._is_refused(status, stream):
                    break
                await asyncio.sleep(stream.wait)
        finally:
            self._missed |= stream.served
        self._refused.add(session)
        self._tell_gap()
        if stream.served and status in _UNKNOWN:
            lost()

    async def _listen(self, session: Session, stream: "_Stream") -> int:
        """Open the stream and read it to its end; gives the status, or 0 where there was none."""

        def begins() -> None:
            self._missed |= stream.begin()
            self._tell_gap()

        decoder = sse.Decoder(MAX_EVENT, id=stream.place, max_lines=inf)
        status, why = 0, "it ended"
        try:
            status = await self._transport.listen(session.headers, decoder, begins, session.context)
        except UpstreamFailure as failure:
            why = failure.detail
            if failure.reason is Reason.REFUSED:
                status = HTTPStatus.METHOD_NOT_ALLOWED
        except ValueError as problem:
            why = str(problem)
        finally:
            broke = stream.end(decoder)
        if broke:
            _log.info("%s: the stream of changes broke: %s", self._name, why)
        return status

    def _is_refused(self, status: int, stream: "_Stream") -> bool:
        if status == HTTPStatus.OK:
            return stream.shorts >= _SHORTS
        return HTTPStatus.OK < status < HTTPStatus.INTERNAL_SERVER_ERROR and status not in PASSING

    def _tell_gap(self) -> None:
        if self._missed:
            self._missed = False
            _log.info("%s: changes may have passed unheard", self._name)
            self._changed(Event(self._name, Change.GAP))


class _Stream:
    """What is known of one stream, over all its connections.

    Attributes:
        place: the id to go on from, `""` where there is none.
        served: it was open, for longer than a moment or with something to say.
        shorts: how often in a row it was neither.
    """

    def __init__(self, jitter: Callable[[], float]) -> None:
        self._restarts = Restarts(jitter=jitter)
        self._now = asyncio.get_running_loop().time
        self._begun: float | None = None
        self._asked = 0.0
        self.place = ""
        self.served = False
        self.shorts = 0

    def begin(self) -> bool:
        """It is open; whether it could not be taken up where it broke off."""
        self._begun = self._now()
        return self.served and not self.place

    def end(self, decoder: sse.Decoder) -> bool:
        """Its connection has ended, or there was none; whether this was an end of something that served."""
        now, begun, self._begun = self._now(), self._begun, None
        ran = 0.0 if begun is None else now - begun
        self._restarts.ended(ran, now)
        self._asked = 0.0 if decoder.retry is None else min(decoder.retry / 1000, MAX_RETRY)
        if begun is None:
            return False
        if ran < _SHORT and not decoder.events and decoder.id == self.place:
            self.shorts += 1
            return False
        self.shorts, self.served = 0, True
        # It goes back in a header field.
        self.place = decoder.id if decoder.id.isascii() and decoder.id.isprintable() else ""
        return True

    @property
    def wait(self) -> float:
        """Seconds until the next try."""
        return max(self._restarts.wait(self._now()), self._asked)
