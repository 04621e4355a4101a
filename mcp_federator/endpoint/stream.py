"""The event streams that legacy clients GET, one HTTP response each, open until somebody ends it.

Nothing is told on them yet but comments, which keep the connection from looking dead to whatever lies between
(2025-11-25, basic/transports, "Listening for Messages from the Server").  A client whose stream ends opens
another, so a stream that ended without need would have them come back for ever (case H34).

Hazards:
- A stream occupies a connection, which the listener waits for when it stops: `drain` has to come before.
- A client that is gone without a word holds its stream until the kernel gives up: a new stream of its session
  takes the place of the oldest, instead of being refused.
"""

import asyncio
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

from aiohttp.http import HttpVersion10

from mcp_federator.endpoint.exchange import overloaded
from mcp_federator.endpoint.wire import Reply, date_line, transport_of

EVENTS: Final = b"Content-Type: text/event-stream\r\nCache-Control: no-cache\r\n"

COMMENT_SECONDS: Final = 15.0
"""How often a comment is sent; proxies close what is silent for half a minute to a minute."""

MAX_STREAMS: Final = 4096
"""How many streams may be open at once."""

MAX_PER_SESSION: Final = 4
"""How many of them may be one session's."""

_COMMENT: Final = b":\n\n"


class EventStream(Reply):
    """One stream; the reply to a GET.  It is opened when the reply is written, and counted from then on."""

    def __init__(self, streams: "Streams", token: bytes) -> None:
        super().__init__(200, fields=EVENTS)
        self._streams = streams
        self._token = token
        self._over = asyncio.Event()

    def end(self) -> None:
        """Let the client see that the stream is over."""
        self._over.set()

    async def write_eof(self, data: bytes = b"") -> None:  # noqa: ARG002 - aiohttp's signature
        """Write the head at once, then comments until the stream is over or its client gone.

        Raises:
            ConnectionError: the client is gone.
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
        transport = transport_of(request)
        transport.write(
            b"HTTP/1.1 200 OK\r\n%b%bConnection: close\r\n%b\r\n"
            % (date_line(int(time.time())), self.fields, more)
        )
        comment = b"%x\r\n%b\r\n" % (len(_COMMENT), _COMMENT) if chunked else _COMMENT
        with self._streams.opened(self, self._token):
            transport.write(comment)
            while not await self._is_over():
                if transport.is_closing():
                    raise ConnectionResetError
                transport.write(comment)
        if chunked and not transport.is_closing():
            transport.write(b"0\r\n\r\n")

    async def _is_over(self) -> bool:
        """Whether the stream is over by the time the next comment is due."""
        try:
            async with asyncio.timeout(COMMENT_SECONDS):
                await self._over.wait()
        except TimeoutError:
            return False
        return True


class Streams:
    """The streams that are open."""

    def __init__(self) -> None:
        self._by_session: dict[bytes, list[EventStream]] = {}
        self._count = 0
        self._draining = False

    def __len__(self) -> int:
        """How many are open."""
        return self._count

    @property
    def sessions(self) -> int:
        """How many sessions have a stream open."""
        return len(self._by_session)

    def open(self, token: bytes) -> EventStream:
        """A stream for the session with this token, to be given as the reply.

        Raises:
            McpError: with status 503; there are too many, or the process is about to end.
        """
        if self._draining or self._count >= MAX_STREAMS:
            raise overloaded("No more streams can be opened here; try again later.")
        return EventStream(self, token)

    def end_session(self, token: bytes) -> None:
        """End the streams of a session."""
        for stream in self._by_session.get(token, ()):
            stream.end()

    def drain(self) -> None:
        """End all streams, and open no more."""
        self._draining = True
        for streams in self._by_session.values():
            for stream in streams:
                stream.end()

    @contextmanager
    def opened(self, stream: EventStream, token: bytes) -> Iterator[None]:
        """Count the stream while the block lasts."""
        streams = self._by_session.setdefault(token, [])
        if len(streams) >= MAX_PER_SESSION:
            streams.pop(0).end()
        streams.append(stream)
        self._count += 1
        if self._draining:
            stream.end()
        try:
            yield
        finally:
            self._count -= 1
            if stream in streams:
                streams.remove(stream)
            if not streams:
                self._by_session.pop(token, None)
