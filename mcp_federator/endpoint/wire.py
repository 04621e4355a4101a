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
- aiohttp's C parser keeps a trailer field of a chunked body for the head of the next request on the
  connection, takes the body of a CONNECT for that request, and loses what follows a request to upgrade.
  After any of them nothing more is read there.
- A closing reply reaches a client only if what it sent was read: a reset overtakes it otherwise.
- What the parser refuses never reaches a handler.  aiohttp would answer as text that repeats the client's
  bytes, and log a traceback with them.  Where it refuses a body, it does not tell who reads that body.
- The end of what a client sends looks the same whether it left or only said that it has asked everything.
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

from aiohttp import hdrs, web
from aiohttp.abc import AbstractStreamWriter
from aiohttp.http import HttpVersion10, RawRequestMessage
from aiohttp.http_exceptions import LineTooLong
from aiohttp.streams import EMPTY_PAYLOAD, StreamReader
from aiohttp.web_protocol import _ErrInfo

from mcp_federator.errors import McpError
from mcp_federator.log import clean
from mcp_federator.protocol.jsonrpc import error_body
from mcp_federator.protocol.vocabulary import Code

JSON: Final = b"Content-Type: application/json\r\n"

MAX_FIELD_BYTES: Final = 64 << 10
"""Of one header field: `Mcp-Name` holds a whole URI, and base64 makes it longer."""

MAX_HEAD_BYTES: Final = 128 << 10
"""Of a request's target and header fields together."""

MAX_FIELDS: Final = 128
"""How many header fields a request may have."""

MAX_CONNECTIONS: Final = 8192
"""Of one listener, event streams included; those beyond are closed as they come."""

LAST_SECONDS: Final = 1.0
"""When the process ends, idle connections are kept so long: a request may be on its way."""

HALF_CLOSED_SECONDS: Final = 0.1
"""A client that has ended its side gets the replies that are ready by then, as copies are; what still waits
for an upstream is cancelled, since most such clients have left."""

KEEP_ALIVE_SECONDS: Final = 120.0
"""An idle connection of a client is closed after this; proxies before us keep theirs for a minute or so."""

SEND_SECONDS: Final = 300.0
"""A client that has not taken its reply by then is left."""

_AT_ONCE: Final = 32 << 10
"""So much fits into an empty transport's buffer with ease: sending it never has to wait."""

_MAX_HELD: Final = 64 << 10
"""So much is held for one client at most: it may have asked many things at once, and read nothing."""

_WARN_SECONDS: Final = 60.0
_AT_LEAST: Final = 0.001

_WRITES_PIECES: Final = not (
    (3, 12) <= sys.version_info < (3, 12, 9) or (3, 13) <= sys.version_info < (3, 13, 2)
)
"""In these versions `writelines` of asyncio's own loops pauses nobody, and a client that does not read goes
unnoticed."""

_STATUS_LINES: Final = {
    status.value: f"HTTP/1.1 {status.value} {status.phrase}\r\n".encode() for status in HTTPStatus
}
_HEAD_TOO_LONG: Final = (
    f"The request's head is too long: it may have {MAX_HEAD_BYTES >> 10} KiB,"
    f" {MAX_FIELD_BYTES >> 10} KiB a line, and {MAX_FIELDS} header fields."
)
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
            to = request.protocol
            self._keep_alive = request.keep_alive and isinstance(to, _Connection) and to.goes_on(request)
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

    Args:
        handler: answers what is an HTTP request.
        turned_away: gets status and size of each reply to what is none.

    Attributes:
        draining: each reply is the last one on its connection.
    """

    def __init__(
        self,
        handler: Callable[[web.BaseRequest], Awaitable[web.StreamResponse]],
        turned_away: Callable[[int, int], None] = lambda status, size: None,  # noqa: ARG005 - nobody counts
    ) -> None:
        super().__init__(handler, handler_cancellation=True)
        self.turned_away = turned_away
        self.draining = False
        self.outbox: Final[list[_Connection]] = []
        self._warn_at = 0.0

    def __call__(self) -> web.RequestHandler:
        """One connection's protocol."""
        return _Connection(
            self,
            loop=asyncio.get_running_loop(),
            access_log=None,
            auto_decompress=False,
            keepalive_timeout=KEEP_ALIVE_SECONDS,
            max_field_size=MAX_FIELD_BYTES,
            max_headers=MAX_FIELDS,
            max_line_size=MAX_FIELD_BYTES,
        )

    def has_room(self) -> bool:
        """Whether one more connection may stand; where not, the log says so once a minute."""
        if len(self._connections) < MAX_CONNECTIONS:
            return True
        now = self._loop.time()
        if now >= self._warn_at:
            self._warn_at = now + _WARN_SECONDS
            _log.warning("%d connections are open; new ones are closed at once", MAX_CONNECTIONS)
        return False

    def pre_shutdown(self) -> None:
        """Let each reply from now on be the last one on its connection."""
        self.draining = True

    async def shutdown(self, timeout: float | None = None) -> None:  # noqa: ASYNC109 - aiohttp's signature
        """End all connections, once there are no new ones: each with its next reply.

        Idle ones end after a moment, requests under way have `timeout` seconds in all.
        """
        self.draining = True
        moment = LAST_SECONDS if timeout is None else min(timeout, LAST_SECONDS)
        serving = [one.serving for one in self._connections if isinstance(one, _Connection)]
        if tasks := [task for task in serving if task is not None]:
            await asyncio.wait(tasks, timeout=moment)
        super().pre_shutdown()
        # To aiohttp no time at all is all the time there is.
        await super().shutdown(None if timeout is None else max(timeout - moment, _AT_LEAST))


class _Connection(web.RequestHandler):
    """aiohttp's protocol, except for when it writes small replies, when it ends, and how much it takes in."""

    __slots__ = ("_before", "_body", "_closing", "_ended", "_head", "_held", "_refused", "_server")

    def __init__(self, server: Server, **settings: Any) -> None:
        super().__init__(server, **settings)
        self._server = server
        self._held = b""
        self._closing = False
        # What the parser has of a head, or of what lies between and behind the chunks of a body, that is not
        # complete: bytes that are surely of it, and the size of the read in which a head may have begun.
        self._head = self._before = 0
        # The body that the parser is in.
        self._body: StreamReader | None = None
        self._refused = False
        # The client sends no more.
        self._ended = False

    @property
    def serving(self) -> asyncio.Task[None] | None:
        """What ends when the connection does."""
        return self._task_handler

    def goes_on(self, request: web.BaseRequest) -> bool:
        """Whether another request may be read after this one."""
        fields = request.headers
        return not (
            self._server.draining
            or (self._ended and not self._messages)
            or request.method == hdrs.METH_CONNECT
            or hdrs.UPGRADE in fields
            or hdrs.TRANSFER_ENCODING in fields
            or "upgrade" in fields.get(hdrs.CONNECTION, "").lower()
        )

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Begin to serve, or end at once."""
        if self._server.has_room():
            super().connection_made(transport)
        else:
            transport.close()

    def data_received(self, data: bytes) -> None:
        """Read on, until a request's head is too long or the parser gives up."""
        if self._refused:
            return
        size = len(data)
        body = self._body
        within = body is not None and not body.is_eof()
        arrived = 0 if body is None else body.total_bytes
        count = self._request_count
        super().data_received(data)
        count = self._request_count - count
        if not count and (body is None or not within or (body.total_bytes == arrived and not body.is_eof())):
            self._head += size
            if self._head > MAX_HEAD_BYTES:
                self._refuse()
            return
        if count:
            if self._before + self._head + size > MAX_HEAD_BYTES:
                self._check_heads(count)
            if isinstance(self._messages[-1][0], _ErrInfo):
                self._give_up()
                return
            body = self._messages[-1][1]
        self._body = None if body is None or body.is_eof() else body
        self._head = 0
        self._before = size or self._before

    def eof_received(self) -> bool:  # type: ignore[override] # asyncio wants to know, aiohttp never says
        """Whether the connection stays for a moment: there are requests to answer."""
        self.let_go()
        self._give_up()
        idle = self._waiter is not None and not self._waiter.done()
        if idle or self.transport is None:
            return False
        self._ended = True
        self._loop.call_later(HALF_CLOSED_SECONDS, self.transport.close)
        return True

    def _check_heads(self, count: int) -> None:
        """Refuse the first of the last `count` requests whose head is too long, and forget those after it."""
        requests = self._messages
        for place in range(len(requests) - count, len(requests)):
            request = requests[place][0]
            if not isinstance(request, _ErrInfo) and _head_size(request) > MAX_HEAD_BYTES:
                while len(requests) > place:
                    requests.pop()
                self._refuse()
                return

    def _give_up(self) -> None:
        """Read no more, and let whoever reads the body that is arriving know."""
        self._refused = True
        if self._body is not None and not self._body.is_eof():
            self._body.set_exception(web.RequestPayloadError())

    def _refuse(self) -> None:
        """Answer in place of the request that arrives, after those before it, and read no more."""
        self._give_up()
        self._messages.append((_ErrInfo(431, LineTooLong(b"", MAX_HEAD_BYTES), ""), EMPTY_PAYLOAD))
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(None)

    def hold(self, reply: bytes) -> bool:
        """Write the reply at the loop's next turn.

        False where the connection is about to close, or its client does not keep up: then it is to be written
        at once, and waited for.
        """
        transport = self.transport
        if (
            self._closing
            or transport is None
            or transport.get_write_buffer_size()
            or len(self._held) + len(reply) > _MAX_HELD
        ):
            return False
        outbox = self._server.outbox
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
        if status < HTTPStatus.INTERNAL_SERVER_ERROR:
            _log.debug("no HTTP request: %s", clean(message or str(exc)))
        else:
            _log.error("a handler failed: %s", clean(str(exc)), exc_info=exc)
        if isinstance(exc, LineTooLong) or str(message).startswith("Too many headers"):
            status, text = 431, _HEAD_TOO_LONG
        elif status == HTTPStatus.BAD_REQUEST:
            text = "This is no valid HTTP request."
        else:
            text = "Internal error."
        code = Code.INVALID_REQUEST if status < HTTPStatus.INTERNAL_SERVER_ERROR else Code.INTERNAL_ERROR
        reply = Reply(status, error_body(McpError(code, text, status=status)), JSON)
        reply.force_close()
        self._server.turned_away(status, len(reply.body))
        return reply

    def log_exception(self, *args: Any, **also: Any) -> None:
        """Say nothing of a body that broke while aiohttp read it to its end, behind the reply."""
        if not isinstance(also.get("exc_info"), web.RequestPayloadError):
            super().log_exception(*args, **also)


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


def _head_size(request: RawRequestMessage) -> int:
    """Bytes of a request's target and header fields, more or less."""
    return len(request.path) + sum(len(name) + len(value) + 4 for name, value in request.raw_headers)


def _empty(outbox: list[_Connection]) -> None:
    connections = outbox.copy()
    outbox.clear()
    for connection in connections:
        connection.let_go()
