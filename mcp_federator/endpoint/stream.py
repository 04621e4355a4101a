"""Event streams toward clients: replies that stay open until somebody ends them.

Between what there is to tell they carry comments, which keep the connection from looking dead to whatever
lies between (transports/streamable-http, "Receiving Messages").  What is told, and to whom, does not come in.

Hazards:
- A stream occupies a connection, which the listener waits for when it stops: `drain` has to come before.
- A client whose stream ends opens another, so a stream that ended without need would have it come back for
  ever (case H34).
- A client that is gone without a word, or takes nothing, must not hold what it is told: sending has an end.
"""

import asyncio
import logging
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from typing import Final

from aiohttp import web
from aiohttp.http import HttpVersion10

from mcp_federator.endpoint.exchange import overloaded
from mcp_federator.endpoint.wire import Reply, date_line, transport_of

EVENTS: Final = b"Content-Type: text/event-stream\r\nCache-Control: no-cache\r\nX-Accel-Buffering: no\r\n"
"""The last one speaks to proxies that gather what they pass on (transports/streamable-http, likewise)."""

COMMENT_SECONDS: Final = 15.0
"""How often a comment is sent; proxies close what is silent for half a minute to a minute."""

SLOW_SECONDS: Final = 10.0
"""A client that has taken nothing for so long, although there is much for it, is left."""

SLOW: Final = "slow"
"""The word for that in the metrics."""

MAX_STREAMS: Final = 4096
"""How many streams may be open at once."""

COMMENT: Final = b":\n\n"

_log = logging.getLogger(__name__)


class EventStream(Reply):
    """One stream.  It is opened when the reply is written, and counted in `streams` from then on."""

    def __init__(self, streams: "Streams") -> None:
        super().__init__(200, fields=EVENTS)
        self._streams = streams
        self._wake = asyncio.Event()
        self._over = False
        self._transport: asyncio.Transport | None = None

    def wake(self) -> None:
        """There is something to tell."""
        self._wake.set()

    def end(self) -> None:
        """Let the client see that the stream is over."""
        self._over = True
        self._wake.set()

    # What a stream tells, as events.

    def opened(self) -> AbstractContextManager[None]:
        """Is entered while it is open."""
        return self._streams.opened(self)

    def first(self) -> bytes:
        """What is told at once."""
        return COMMENT

    def news(self) -> bytes:
        """What there is to tell now."""
        return b""

    def last(self) -> bytes:
        """What is told when it ends in order."""
        return b""

    async def write_eof(self, data: bytes = b"") -> None:  # noqa: ARG002 - aiohttp's signature
        """Write the head at once, then what there is to tell, until the stream is over or its client gone.

        Raises:
            ConnectionError: the client is gone, or takes nothing.
        """
        request = self._req
        if request is None:
            return
        self._req = None
        self._eof_sent = True
        # The connection's last reply: there is nothing that could tell its end from the next one's beginning
        # to a client of HTTP/1.0, and the others may have as many connections as they like.
        self.force_close()
        chunked = request.version != HttpVersion10
        more = b"Transfer-Encoding: chunked\r\n" if chunked else b""
        self._transport = transport = transport_of(request)
        transport.write(
            b"HTTP/1.1 200 OK\r\n%b%bConnection: close\r\n%b\r\n"
            % (date_line(int(time.time())), self.fields, more)
        )
        with self.opened():
            await self._send(request, self.first(), chunked=chunked)
            while True:
                self._wake.clear()
                await self._send(request, self.news(), chunked=chunked)
                if self._over:
                    break
                if not await self._woken():
                    await self._send(request, COMMENT, chunked=chunked)
            await self._send(request, self.last(), chunked=chunked)
        if chunked and not transport.is_closing():
            transport.write(b"0\r\n\r\n")

    async def _send(self, request: web.BaseRequest, text: bytes, *, chunked: bool) -> None:
        transport = self._transport
        if transport is None or transport.is_closing():
            raise ConnectionResetError
        if not text:
            return
        transport.write(b"%x\r\n%b\r\n" % (len(text), text) if chunked else text)
        if not request.protocol.writing_paused:
            return
        try:
            async with asyncio.timeout(SLOW_SECONDS):
                await request.writer.drain()
        except TimeoutError:
            _log.info("a stream is ended: its client takes nothing")
            self._streams.dropped(SLOW)
            transport.abort()
            raise ConnectionResetError from None

    async def _woken(self) -> bool:
        """Whether there is something to do before the next comment is due."""
        try:
            async with asyncio.timeout(COMMENT_SECONDS):
                await self._wake.wait()
        except TimeoutError:
            return False
        return True


class Streams:
    """The streams that are open; `dropped` is told why one was ended from here."""

    def __init__(self, dropped: Callable[[str], None]) -> None:
        self.dropped = dropped
        self._open: dict[EventStream, None] = {}
        self._draining = False

    def __len__(self) -> int:
        """How many are open."""
        return len(self._open)

    def check_room(self) -> None:
        """Let one more be opened.

        Raises:
            McpError: with status 503; there are too many, or the process is about to end.
        """
        if self._draining or len(self._open) >= MAX_STREAMS:
            raise overloaded("No more streams can be opened here; try again later.")

    def drain(self) -> None:
        """End all streams, and open no more."""
        self._draining = True
        for stream in self._open:
            stream.end()

    @contextmanager
    def opened(self, stream: EventStream) -> Iterator[None]:
        """Count the stream while the block lasts."""
        self._open[stream] = None
        if self._draining:
            stream.end()
        try:
            yield
        finally:
            del self._open[stream]
