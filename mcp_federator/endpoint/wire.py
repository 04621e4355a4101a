"""How replies leave, and what aiohttp's own server says in our name.

`Reply` writes head and body as one piece; aiohttp's general response spends more on its header objects than
we do on a whole hit.  `Server` is `web.Server` set up the way both listeners need it.  No word of MCP's
methods comes in here, and nothing that decides about a request.

Hazards:
- A line of `fields` goes out as it is: it may hold only our own words, or text that passed a check which lets
  no control character through.
- aiohttp calls `prepare`, then `write_eof`, then reads `keep_alive`; more of a response it does not use.
- Small replies wait for the loop's next turn, so that all requests that arrived together are answered before
  the first reply wakes its reader: a fifth more throughput.  Whatever closes a connection must let go
  of what it holds first.
- What the parser refuses never reaches a handler.  aiohttp would answer as text that repeats the client's
  bytes, and log a traceback with them.
"""

import asyncio
import logging
import sys
import time
from collections.abc import Awaitable, Callable
from email.utils import formatdate
from functools import lru_cache
from http import HTTPStatus
from typing import Any, Final

from aiohttp import web
from aiohttp.abc import AbstractStreamWriter
from aiohttp.http import HttpVersion10
from aiohttp.http_exceptions import LineTooLong

from mcp_federator.errors import McpError
from mcp_federator.log import clean
from mcp_federator.protocol.jsonrpc import error_body
from mcp_federator.protocol.vocabulary import Code

JSON: Final = b"Content-Type: application/json\r\n"

MAX_FIELD_BYTES: Final = 64 << 10
"""Of one header field: `Mcp-Name` holds a whole URI, and base64 makes it longer."""

KEEP_ALIVE_SECONDS: Final = 120.0
"""An idle connection of a client is closed after this; proxies before us keep theirs for a minute or so."""

SEND_SECONDS: Final = 300.0
"""A client that has not taken its reply by then is left."""

_AT_ONCE: Final = 32 << 10
"""So much fits into an empty transport's buffer with ease: sending it never has to wait."""

_WRITES_PIECES: Final = not (
    (3, 12) <= sys.version_info < (3, 12, 9) or (3, 13) <= sys.version_info < (3, 13, 2)
)
"""In these versions `writelines` of asyncio's own loops pauses nobody, and a client that does not read goes
unnoticed."""

_STATUS_LINES: Final = {
    status.value: f"HTTP/1.1 {status.value} {status.phrase}\r\n".encode() for status in HTTPStatus
}
_BODILESS: Final = frozenset({204, 304})

_log = logging.getLogger(__name__)


@lru_cache(maxsize=1)
def date_line(second: int) -> bytes:
    """The Date field of a reply at this second of the Unix epoch."""
    return f"Date: {formatdate(second, usegmt=True)}\r\n".encode()


class Reply(web.StreamResponse):
    """A whole reply.

    Attributes:
        body: all of it; not sent in reply to HEAD.
        fields: complete header lines, each with its line break.
    """

    def __init__(self, status: int, body: bytes = b"", fields: bytes = b"") -> None:
        super().__init__(status=status)
        self.body = body
        self.fields = fields

    async def prepare(self, request: web.BaseRequest) -> AbstractStreamWriter | None:
        """Take note whom to answer; nothing is written yet."""
        self._req = request
        if self._keep_alive is None:
            self._keep_alive = request.keep_alive
        return request.writer

    async def write_eof(self, data: bytes = b"") -> None:  # noqa: ARG002 - aiohttp's signature
        """Write the reply, and wait where the client reads slowly.

        Raises:
            ConnectionError: the client is gone, or reads nothing.
        """
        request = self._req
        if request is None:
            return
        self._req = None
        self._eof_sent = True
        body = b"" if request.method == "HEAD" else self.body
        head = self._head(request)
        to = request.protocol
        transport = to.transport
        if transport is None or transport.is_closing():
            raise ConnectionResetError
        if isinstance(to, _Connection):
            if self._keep_alive and len(body) < _AT_ONCE and to.hold(head + body):
                return
            to.let_go()
        if _WRITES_PIECES:
            # A large body is not copied only to stand behind its head.
            transport.writelines((head, body) if body else (head,))
        else:
            transport.write(head + body)
        if not to.writing_paused:
            return
        try:
            async with asyncio.timeout(SEND_SECONDS):
                await request.writer.drain()
        except TimeoutError:
            transport.abort()
            raise ConnectionResetError from None

    def _head(self, request: web.BaseRequest) -> bytes:
        length = b"" if self._status in _BODILESS else b"Content-Length: %d\r\n" % len(self.body)
        connection = b""
        if not self._keep_alive:
            connection = b"Connection: close\r\n"
        elif request.version == HttpVersion10:
            connection = b"Connection: keep-alive\r\n"
        return b"%b%b%b%b%b\r\n" % (
            _STATUS_LINES[self._status],
            date_line(int(time.time())),
            self.fields,
            connection,
            length,
        )


class Server(web.Server):
    """`web.Server` for one of our listeners: `loop.create_server(Server(handle), ...)` or `web.ServerRunner`.

    A handler whose client leaves is cancelled, header fields may have 64 KiB, bodies come as they were sent
    (compressed ones too), no access log is written, and what the HTTP parser refuses is answered with a
    JSON-RPC error.  Make it while the loop runs.
    """

    def __init__(self, handler: Callable[[web.BaseRequest], Awaitable[web.StreamResponse]]) -> None:
        super().__init__(handler, handler_cancellation=True)
        self._outbox: list[_Connection] = []

    def __call__(self) -> web.RequestHandler:
        """One connection's protocol."""
        return _Connection(
            self,
            self._outbox,
            loop=asyncio.get_running_loop(),
            access_log=None,
            auto_decompress=False,
            keepalive_timeout=KEEP_ALIVE_SECONDS,
            max_field_size=MAX_FIELD_BYTES,
            max_line_size=MAX_FIELD_BYTES,
        )


class _Connection(web.RequestHandler):
    """aiohttp's protocol, except for when it writes small replies and what it says when a request is no HTTP.

    `outbox` has the connections that hold a reply, and is shared by all of a server.
    """

    __slots__ = ("_closing", "_held", "_outbox")

    def __init__(self, manager: Server, outbox: "list[_Connection]", **settings: Any) -> None:
        super().__init__(manager, **settings)
        self._outbox = outbox
        self._held = b""
        self._closing = False

    def hold(self, reply: bytes) -> bool:
        """Write the reply at the loop's next turn.

        False where the connection is about to close, or its client does not keep up: then it is to be written
        at once, and waited for.
        """
        transport = self.transport
        if self._closing or transport is None or transport.get_write_buffer_size():
            return False
        outbox = self._outbox
        if not outbox:
            self._loop.call_soon(_empty, outbox)
        outbox.append(self)
        self._held += reply
        return True

    def let_go(self) -> None:
        """Write what is held."""
        held, self._held = self._held, b""
        if held and self.transport is not None and not self.transport.is_closing():
            self.transport.write(held)

    def close(self) -> None:
        """Let the request under way be the last."""
        self._closing = True
        self.let_go()
        super().close()

    def force_close(self) -> None:
        """End the connection."""
        self._closing = True
        self.let_go()
        super().force_close()

    async def shutdown(self, timeout: float | None = 15.0) -> None:  # noqa: ASYNC109 - aiohttp's signature
        """End the connection once its request is answered, or after `timeout` seconds."""
        self._closing = True
        self.let_go()
        await super().shutdown(timeout)

    def handle_error(
        self,
        request: web.BaseRequest,  # noqa: ARG002 - aiohttp's signature
        status: int = 500,
        exc: BaseException | None = None,
        message: str | None = None,
    ) -> web.StreamResponse:
        """The answer to a request that never reached the handler; the connection ends with it."""
        if status == HTTPStatus.BAD_REQUEST:
            _log.debug("no HTTP request: %s", clean(message or str(exc)))
        else:
            _log.error("a handler failed: %s", clean(str(exc)), exc_info=exc)
        if isinstance(exc, LineTooLong):
            status, text = 431, "A line of the request's head is longer than 64 KiB."
        elif status == HTTPStatus.BAD_REQUEST:
            text = "This is no valid HTTP request."
        else:
            text = "Internal error."
        code = Code.INVALID_REQUEST if status < HTTPStatus.INTERNAL_SERVER_ERROR else Code.INTERNAL_ERROR
        reply = Reply(status, error_body(McpError(code, text, status=status)), JSON)
        reply.force_close()
        return reply


def transport_of(request: web.BaseRequest) -> asyncio.Transport:
    """Where to write the reply to a request by hand; what was held for the client before is written first.

    Raises:
        ConnectionResetError: the client is gone.
    """
    connection = request.protocol
    transport = connection.transport
    if transport is None or transport.is_closing():
        raise ConnectionResetError
    if isinstance(connection, _Connection):
        connection.let_go()
    return transport


def _empty(outbox: list[_Connection]) -> None:
    connections = outbox.copy()
    outbox.clear()
    for connection in connections:
        connection.let_go()
