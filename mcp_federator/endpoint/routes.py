"""The MCP endpoint as HTTP: one path, and what must hold before a body is worth reading.

In this order: Origin, path, method, fields that stand twice, Content-Type, Accept, size; then `mcp` takes
over.  Messages are POSTs; GET and DELETE are a legacy session's, and without one they are not allowed.
Whatever happens ends in one reply, one line of the request log and one count; only a client that left
gets no reply.  There is no router: the hot path is one handler of aiohttp's low-level server.

Hazards:
- The Origin check stands before everything else, for every method and path (case H36).
- An exception that left `handle` would become aiohttp's own error page.
- The reply's header lines hold our own words only, and an Origin that was allowed, hence plain ASCII.
- A request that arrived whole is read without waiting, the usual way; the other way has a time limit.
"""

import asyncio
import logging
import zlib
from collections.abc import Callable
from http import HTTPStatus
from typing import Final

from aiohttp import web
from aiohttp.http import HttpVersion10

from mcp_federator import config
from mcp_federator.endpoint import guard
from mcp_federator.endpoint.exchange import Asking, Exchange, Holder, note_error, overloaded
from mcp_federator.endpoint.legacy import Legacy
from mcp_federator.endpoint.mcp import Mcp, brings_session
from mcp_federator.endpoint.stream import EVENTS, Streams
from mcp_federator.endpoint.wire import JSON, Reply, transport_of
from mcp_federator.errors import McpError
from mcp_federator.metrics import Metrics
from mcp_federator.model import Era
from mcp_federator.protocol import headers
from mcp_federator.protocol.jsonrpc import error_body
from mcp_federator.protocol.vocabulary import Code
from mcp_federator.request_log import RequestLog
from mcp_federator.upstream.limits import Budget, FullError, TooLargeError

_METHODS: Final = b"GET, POST, DELETE"
_MORE_FIELDS: Final = {
    405: b"Allow: %b, OPTIONS\r\n" % _METHODS,
    415: b"Accept-Encoding: gzip, deflate\r\n",
    503: b"Retry-After: 1\r\n",
}
"""Header lines that go along with a refusal, by its status."""

_LARGE_BODIES: Final = 64
"""Bodies that have begun to arrive hold as much as so many of the largest allowed, all together."""

_ENCODINGS: Final = frozenset({"gzip", "deflate"})
_ZLIB_OR_GZIP: Final = zlib.MAX_WBITS | 32
_CONTINUE: Final = b"HTTP/1.1 100 Continue\r\n\r\n"

_EXPOSED: Final = b"Access-Control-Expose-Headers: Cache-Status, Mcp-Session-Id, Retry-After\r\n"
_ASKED_FIELDS: Final = (
    "Accept",
    "Authorization",
    "Baggage",
    "Cache-Control",
    "Content-Type",
    "Last-Event-ID",
    "MCP-Protocol-Version",
    "Mcp-Method",
    "Mcp-Name",
    "Mcp-Session-Id",
    "Traceparent",
    "Tracestate",
)
"""Fields that clients in a browser send; they may, whether or not we read them."""

_PREFLIGHT_SECONDS: Final = 7200
_NOTHING: Final[dict[str, str]] = {}

_log = logging.getLogger(__name__)


class Endpoint:
    """The handler of the MCP listener: `wire.Server(endpoint.handle, endpoint.turned_away)`.

    Args:
        source_of: holds the source to ask, see `mcp.Holder`.
        settings: the `server` section.
        cache: the `cache` section, for `client_refresh`.
        forwarded_headers: lower-case names of the fields that some upstream's `forward` names.
        credential_headers: lower-case names of fields that hold credentials beyond the well-known ones.
        metrics: counts every request.
        request_log: gets a line for every request.
        discover: for clients of an era, capabilities as a JSON object, and how many milliseconds they hold.
        clock: seconds, for durations only.

    Raises:
        ConfigError: an allowed origin is none.
    """

    def __init__(
        self,
        source_of: Holder,
        settings: config.Server,
        cache: config.Cache,
        *,
        forwarded_headers: frozenset[str],
        credential_headers: frozenset[str],
        metrics: Metrics,
        request_log: RequestLog,
        discover: Callable[[Era], tuple[bytes, int]],
        clock: Callable[[], float],
    ) -> None:
        self._legacy = Legacy(source_of, settings, Streams(metrics.listener_dropped))
        self._mcp = Mcp(source_of, settings, discover, self._legacy)
        self._path = settings.path
        self._max_bytes = settings.max_request_bytes
        self._bodies = Budget(_LARGE_BODIES * settings.max_request_bytes)
        self._body_timeout = settings.request_timeout
        self._client_refresh = cache.client_refresh
        self._metrics = metrics
        self._request_log = request_log
        self._clock = clock
        self._origins = guard.Memo(guard.Origins(settings.allowed_origins, settings.host).allow)
        self._is_json = guard.Memo(guard.is_json)
        self._accepts = guard.Memo(guard.accepts)
        self.forward(forwarded_headers, credential_headers)

    def forward(self, forwarded_headers: frozenset[str], credential_headers: frozenset[str]) -> None:
        """Let other header fields go upstream from now on; the arguments are those of the class."""
        self._names = guard.Memo(guard.FieldNames(forwarded_headers, credential_headers).read)
        allowed = ", ".join([*_ASKED_FIELDS, *sorted(forwarded_headers)])
        self._preflight = (
            b"Access-Control-Allow-Methods: %b\r\n"
            b"Access-Control-Allow-Headers: %b\r\n"
            b"Access-Control-Max-Age: %d\r\n" % (_METHODS, allowed.encode(), _PREFLIGHT_SECONDS)
        )

    @property
    def body_bytes(self) -> int:
        """How many bytes are held of bodies that have not arrived in full."""
        return self._bodies.taken

    @property
    def sessions(self) -> int:
        """How many legacy sessions hold a stream open here."""
        return self._legacy.subscriptions.with_stream

    def drain(self) -> None:
        """End all streams, which would keep the listener waiting."""
        self._legacy.streams.drain()

    async def close(self) -> None:
        """Call off what goes on for legacy clients that have left."""
        await self._legacy.close()

    def turned_away(self, status: int, size: int) -> None:
        """Log and count a reply that the listener gave by itself, to what is no HTTP request."""
        refused = status < HTTPStatus.INTERNAL_SERVER_ERROR
        self._tell(Exchange(status="client_error" if refused else "internal_error"), self._clock(), size)

    async def handle(self, request: web.BaseRequest) -> web.StreamResponse:
        """Answer one HTTP request; fails with nothing but cancellation, when the client left."""
        started = self._clock()
        exchange = Exchange()
        cors = b""
        try:
            names = self._names[b"\n".join([name for name, _ in request.raw_headers])]
            try:
                if names.origins:
                    cors = self._cors(request.headers["Origin"], names)
                reply = await self._reply(request, names, exchange)
            except McpError as error:
                note_error(exchange, error)
                reply = _refusal(error, exchange)
        except (Exception, asyncio.CancelledError) as fault:
            task = asyncio.current_task()
            if isinstance(fault, asyncio.CancelledError) and (task is None or task.cancelling()):
                exchange.status = "client_error"
                self._tell(exchange, started, 0)
                raise
            _log.exception("a request failed inside")
            exchange.status = "internal_error"
            reply = _refusal(McpError(Code.INTERNAL_ERROR, "Internal error.", status=500), exchange)
        if cors:
            reply.fields += cors
        self._tell(exchange, started, len(reply.body))
        return reply

    def _tell(self, exchange: Exchange, started: float, size: int) -> None:
        if exchange.parts:
            for part, size_of_part in exchange.parts:
                self._tell(part, started, size_of_part)
            return
        seconds = self._clock() - started
        served = exchange.served
        self._metrics.request(exchange.method, exchange.era, exchange.status, seconds)
        self._request_log.write(
            id=exchange.id,
            method=exchange.method,
            era=exchange.era,
            upstreams=exchange.upstreams,
            outcome="" if served is None else served.outcome,
            status=exchange.status,
            seconds=seconds,
            size=size,
            uri=exchange.uri,
        )

    def _cors(self, origin: str, names: guard.Fields) -> bytes:
        """Header lines for the page of an allowed origin."""
        if names.origins > 1 or not self._origins[origin]:
            raise _refuse(403, "This Origin is not allowed; server.allowed_origins names those that are.")
        return b"Access-Control-Allow-Origin: %b\r\nVary: Origin\r\n%b" % (origin.encode(), _EXPOSED)

    async def _reply(self, request: web.BaseRequest, names: guard.Fields, exchange: Exchange) -> Reply:
        # The target as sent is the path, for all but a few clients.
        if request.raw_path != self._path and request.path != self._path:  # noqa: PLR1714 - `path` costs, and is seldom looked at
            raise _refuse(404, f"There is nothing here; the MCP endpoint is {self._path}.")
        if request.method != "POST":
            exchange.method = request.method
            if request.method == "OPTIONS":
                return Reply(204, fields=_MORE_FIELDS[405] + (self._preflight if names.origins else b""))
            return self._session_reply(request, names, exchange)
        self._check(request, names)
        content = request.content
        body = content.read_nowait() if content.is_eof() else await self._rest(request)
        if len(body) > self._max_bytes:
            raise self._too_large()
        if names.unusual:
            body = self._inflated(request, body)
        asking = Asking(
            request.headers,
            _forwarded(request, names) if names.forwarded else _NOTHING,
            names.unusual and self._refresh(request, names),
        )
        answer = await self._mcp.answer(body, exchange, asking)
        if exchange.served is not None:
            return Reply(
                200,
                answer,
                b"%bCache-Status: %b\r\n" % (JSON, headers.cache_status(exchange.served).encode()),
            )
        if exchange.session is not None:
            return Reply(200, answer, b"%bMcp-Session-Id: %b\r\n" % (JSON, exchange.session.encode()))
        if answer:
            return Reply(200, answer, JSON)
        # A request that was called off gets no response, yet its reply is that of a request: no event at all.
        silence = Reply(202) if exchange.id is None else Reply(200, fields=EVENTS)
        return silence if exchange.stream is None else exchange.stream

    def _session_reply(self, request: web.BaseRequest, names: guard.Fields, exchange: Exchange) -> Reply:
        """The reply to a GET or a DELETE, which concern a legacy session, or to any other method."""
        if request.method not in {"GET", "DELETE"} or not brings_session(request.headers):
            raise _refuse(
                405, "MCP requests are POSTs; only a session that initialize began has a stream and an end."
            )
        exchange.era = Era.LEGACY
        _check_names(names)
        if request.method == "DELETE":
            self._legacy.end(request.headers)
            return Reply(204)
        accept = ",".join(request.headers.getall("Accept", []))
        if not guard.accepts_events(accept):
            raise _refuse(406, "Accept must allow text/event-stream.")
        asking = Asking(request.headers, _forwarded(request, names), refresh=False)
        return self._legacy.listen(asking)

    def _check(self, request: web.BaseRequest, names: guard.Fields) -> None:
        """What must hold of the header fields before the body is read."""
        fields = request.headers
        _check_names(names)
        if names.unusual and fields.get("Transfer-Encoding", "chunked").lower() != "chunked":
            raise _refuse(400, "Transfer-Encoding must be chunked; Content-Encoding may be gzip or deflate.")
        if not self._is_json[fields.get("Content-Type", "")]:
            raise _refuse(415, "Content-Type must be application/json, in UTF-8.")
        accept = fields.get("Accept")
        # Several fields of this name are one list; few clients send several.
        if (
            accept is not None
            and not self._accepts[accept]
            and not guard.accepts(",".join(fields.getall("Accept")))
        ):
            raise _refuse(406, "Accept must allow application/json and text/event-stream.")

    async def _rest(self, request: web.BaseRequest) -> bytes:
        """A body that has not arrived yet."""
        if (request.content_length or 0) > self._max_bytes:
            raise self._too_large()
        body = bytearray()
        try:
            with self._bodies.lease(self._max_bytes) as lease:
                expects = request.headers.get("Expect", "").lower() == "100-continue"
                # HTTP/1.0 knows no interim response (RFC 9110, 10.1.1).
                if expects and request.version != HttpVersion10:
                    transport_of(request).write(_CONTINUE)
                async with asyncio.timeout(self._body_timeout):
                    while chunk := await request.content.readany():
                        lease.take(len(chunk))
                        body += chunk
        except TooLargeError:
            raise self._too_large() from None
        except FullError:
            raise overloaded("Too many requests are being received; try again later.") from None
        except TimeoutError:
            raise _refuse(408, "The body did not arrive in time.") from None
        except (web.RequestPayloadError, ConnectionError):
            raise _refuse(
                400, "The body broke off, or its chunks cannot be read.", Code.PARSE_ERROR
            ) from None
        return bytes(body)

    def _inflated(self, request: web.BaseRequest, body: bytes) -> bytes:
        """The body as it was before the client compressed it."""
        encoding = ",".join(request.headers.getall("Content-Encoding", ["identity"])).strip().lower()
        if encoding == "identity":
            return body
        if encoding not in _ENCODINGS:
            raise _refuse(415, "Content-Encoding must be gzip or deflate.")
        stream = zlib.decompressobj(_ZLIB_OR_GZIP)
        try:
            # Asked for one byte more than is allowed, it makes no more than that of any bomb.
            inflated = stream.decompress(body, self._max_bytes + 1)
        except zlib.error:
            raise _refuse(400, "The body cannot be inflated.", Code.PARSE_ERROR) from None
        if len(inflated) > self._max_bytes:
            raise self._too_large()
        if not stream.eof or stream.unused_data:
            raise _refuse(400, "The body cannot be inflated.", Code.PARSE_ERROR)
        return inflated

    def _too_large(self) -> McpError:
        return _refuse(413, f"The body is longer than {self._max_bytes} bytes (server.max_request_bytes).")

    def _refresh(self, request: web.BaseRequest, names: guard.Fields) -> bool:
        """Whether the client asks for a copy from upstream, and `cache.client_refresh` lets it."""
        if self._client_refresh == "never":
            return False
        # Behind a proxy on this machine every peer is loopback, and none of them is the client.
        if self._client_refresh == "loopback" and (
            names.relayed or not guard.is_loopback(request.remote or "")
        ):
            return False
        return guard.asks_refresh(",".join(request.headers.getall("Cache-Control", [])))


def _check_names(names: guard.Fields) -> None:
    if names.repeated is not None:
        raise _refuse(400, f"The header field {names.repeated} stands twice.")


def _forwarded(request: web.BaseRequest, names: guard.Fields) -> dict[str, str]:
    values = {name: ", ".join(request.headers.getall(name)) for name in names.forwarded}
    for name, value in values.items():
        if not guard.sendable(value):
            raise _refuse(400, f"The header field {name} holds characters that none may hold.")
    return values


def _refuse(status: int, text: str, code: Code = Code.INVALID_REQUEST) -> McpError:
    return McpError(code, text, status=status)


def _refusal(error: McpError, exchange: Exchange) -> Reply:
    body = error_body(error, error.id if exchange.id is None else exchange.id)
    return Reply(error.status, body, JSON + _MORE_FIELDS.get(error.status, b""))
