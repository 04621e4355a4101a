"""One JSON-RPC message in, one JSON-RPC result out: what an MCP client asks of this server.

The checks that need the body stand here, in the order of design section 7: JSON, envelope, id, versions,
`_meta`, method, `Mcp-Method` and `Mcp-Name`, params.  Everything a check reads is what the later code uses:
the body is decoded once, and nothing of it is sent on as it came.  Of HTTP only the header fields come in.

Hazards:
- An error can be one object that many callers of one flight get.  It is never changed; the asker's id is put
  beside it.
- A client that reads a 4xx or 5xx as "this server is a legacy one" asks for `server/discover` first.  So
  discover waits for nobody and is refused to nobody who asks it in good form.
"""

from collections.abc import Callable, Mapping
from types import TracebackType
from typing import Final, Protocol

import msgspec

from mcp_federator import config
from mcp_federator.errors import McpError, UpstreamError, UpstreamFailure
from mcp_federator.log import clean
from mcp_federator.model import Caller, Era, Method, Served, Source, Trace
from mcp_federator.protocol import era, headers, jsonrpc, modern
from mcp_federator.protocol.vocabulary import MODERN, SESSION_HEADER, SUPPORTED, VERSION_HEADER, Code

_CLIENT_ERRORS: Final = frozenset(
    {
        Code.PARSE_ERROR,
        Code.INVALID_REQUEST,
        Code.METHOD_NOT_FOUND,
        Code.INVALID_PARAMS,
        Code.HEADER_MISMATCH,
        Code.MISSING_CAPABILITY,
        Code.UNSUPPORTED_VERSION,
    }
)
_MAX_VERSION_CHARS: Final = 64
# Members of an enumeration are looked up slowly on Python 3.11.
_MODERN_ERA: Final = Era.MODERN
_DISCOVER: Final = Method.DISCOVER
_VERSION_BEFORE_HEADERS: Final = "2025-03-26"


class Holder(Protocol):
    """Whoever holds the source in use; a reload puts another one there."""

    @property
    def federator(self) -> Source:
        """The source that requests beginning now are to ask."""
        ...


class Exchange(msgspec.Struct):
    """One request and its reply, as the log and the metrics tell it; filled in as it becomes known.

    Attributes:
        id: JSON text of the request's id; None of a notification, or where it could not be read.
        method: as asked, any text; `""` where it could not be read.
        era: what the asker speaks.
        uri: the URI asked for; for the log at debug level.
        upstreams: configured names of those the reply came from, as far as it says so.
        served: how the answer came about; None where no source was asked.
        status: a word of `metrics.STATUSES`.
    """

    id: bytes | None = None
    method: str = ""
    era: Era = Era.MODERN
    uri: str | None = None
    upstreams: tuple[str, ...] = ()
    served: Served | None = None
    status: str = "ok"


class InFlight:
    """Counts what waits; `with` takes a place.

    Raises:
        McpError: -32603 with status 503, when all `limit` places are taken.
    """

    def __init__(self, limit: int) -> None:
        self.count = 0
        self._limit = limit

    def __enter__(self) -> None:
        if self.count >= self._limit:
            raise McpError(
                Code.INTERNAL_ERROR,
                "Too many requests are in flight; try again later.",
                data=b'{"reason":"overloaded"}',
                status=503,
            )
        self.count += 1

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.count -= 1


class Mcp:
    """The server that MCP clients meet.

    Args:
        source_of: see `Holder`.
        settings: the `server` section; its instructions are told by discover.
        discover: capabilities as a JSON object, and for how many milliseconds discover's answer holds.
        in_flight: places for requests that wait.
    """

    def __init__(
        self,
        source_of: Holder,
        settings: config.Server,
        discover: Callable[[], tuple[bytes, int]],
        in_flight: InFlight,
    ) -> None:
        self._source_of = source_of
        self._instructions = settings.instructions
        self._discover = discover
        self._in_flight = in_flight

    async def answer(
        self,
        body: bytes,
        fields: Mapping[str, str],
        exchange: Exchange,
        *,
        forwarded: Mapping[str, str],
        refresh: bool,
    ) -> bytes:
        """The JSON-RPC reply to a message; `b""` to a notification, which gets none.

        Args:
            body: what the client sent.
            fields: the request's header fields, looked up without regard to case.
            exchange: filled in.
            forwarded: lower-case name -> value of the fields that go upstream.
            refresh: the client asks for a copy from upstream, and may.

        Raises:
            McpError: with the HTTP status of the reply; its `id` may be unknown where `exchange.id` is known.
        """
        request = jsonrpc.decode_request(body)
        exchange.method = request.method
        if request.id is None:
            # Nothing a client may notify of concerns us: requests end when their connection does.
            return b""
        exchange.id = request.id
        exchange.uri = request.uri
        version = fields.get(VERSION_HEADER)
        if request.method == "initialize":
            exchange.era = Era.LEGACY
            raise _unsupported(_requested(body) or version or "")
        if (
            request.meta.version is None
            and era.of_post(version, fields.get(SESSION_HEADER), request) is not _MODERN_ERA
        ):
            exchange.era = Era.LEGACY
            raise _unsupported(version or _VERSION_BEFORE_HEADERS)
        modern.check(request, fields)
        query = modern.query(request)
        if query.method is _DISCOVER:
            capabilities, ttl_ms = self._discover()
            return modern.encode_discover(
                request.id, capabilities=capabilities, instructions=self._instructions, ttl_ms=ttl_ms
            )
        if refresh:
            query = msgspec.structs.replace(query, refresh=True)
        caller = Caller(forwarded, request.meta.capabilities or b"{}", _trace(request.meta, fields))
        with self._in_flight:
            answer = await self._source_of.federator.fetch(query, caller)
        exchange.served = answer.served
        exchange.upstreams = answer.served.upstreams
        if answer.interim:
            exchange.status = "input_required"
        return modern.encode_answer(request.id, query.method, answer)


def note_error(exchange: Exchange, error: McpError) -> None:
    """Fill in whose fault an error is: `status`, and the upstream it came from."""
    # Only this process says so of itself: it failed inside, or all its places are taken.
    if error.status >= 500:  # noqa: PLR2004 - HTTP's own border
        exchange.status = "internal_error"
    else:
        exchange.status = "client_error" if error.code in _CLIENT_ERRORS else "upstream_error"
    source = error if isinstance(error, UpstreamError) else error.__cause__
    if isinstance(source, UpstreamError | UpstreamFailure):
        exchange.upstreams = (source.upstream,)


def _trace(meta: jsonrpc.Meta, fields: Mapping[str, str]) -> Trace | None:
    """Trace context from `_meta`, MCP's place for it, else from the fields that HTTP libraries write."""
    if meta.traceparent is not None:
        return headers.trace(meta.traceparent, meta.tracestate, meta.baggage)
    traceparent = fields.get("traceparent")
    if traceparent is None:
        return None
    return headers.trace(traceparent, fields.get("tracestate"), fields.get("baggage"))


class _InitializeParams(msgspec.Struct):
    protocol_version: str = msgspec.field(name="protocolVersion")


class _Initialize(msgspec.Struct):
    params: _InitializeParams


def _requested(body: bytes) -> str | None:
    """The version that an `initialize` asks for."""
    try:
        return msgspec.json.decode(body, type=_Initialize).params.protocol_version
    except (msgspec.DecodeError, RecursionError):
        return None


def _unsupported(requested: str) -> McpError:
    """What a legacy client is told; often the one sentence it can show (basic/versioning)."""
    return McpError(
        Code.UNSUPPORTED_VERSION,
        f"This server speaks MCP {MODERN}, which has no initialize handshake and no sessions.",
        data=msgspec.json.encode({"supported": SUPPORTED, "requested": clean(requested, _MAX_VERSION_CHARS)}),
        status=400,
    )
