"""What both eras need to answer one request: its record, a place among those that wait, whose fault it was.

No message is read or written here.
"""

from collections.abc import Mapping
from types import TracebackType
from typing import Final, Protocol

import msgspec

from mcp_federator.endpoint.wire import Reply
from mcp_federator.errors import McpError, UpstreamError, UpstreamFailure
from mcp_federator.hub import Hub
from mcp_federator.model import Era, Served, Source, Trace
from mcp_federator.protocol import headers
from mcp_federator.protocol.jsonrpc import Meta
from mcp_federator.protocol.vocabulary import Code

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


class Holder(Protocol):
    """Whoever holds the source in use; a reload puts another one there."""

    hub: Hub
    """Where clients listen."""

    @property
    def alone(self) -> bool:
        """Whether no other process serves the same clients."""
        ...

    @property
    def federator(self) -> Source:
        """The source that requests beginning now are to ask."""
        ...


class Asking(msgspec.Struct, frozen=True):
    """What an HTTP request brings beside its body.

    Attributes:
        fields: its header fields, found regardless of case.
        forwarded: lower-case name -> value of the fields that go upstream.
        refresh: the client asks for a copy from upstream, and may.
    """

    fields: Mapping[str, str]
    forwarded: Mapping[str, str]
    refresh: bool


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
        session: the id of the legacy session that the reply begins.
        parts: of a batch, its requests and how many bytes answer each; told instead of the batch.
        stream: the reply itself, where it is an event stream.
    """

    id: bytes | None = None
    method: str = ""
    era: Era = Era.MODERN
    uri: str | None = None
    upstreams: tuple[str, ...] = ()
    served: Served | None = None
    status: str = "ok"
    session: str | None = None
    parts: tuple[tuple["Exchange", int], ...] = ()
    stream: Reply | None = None


class InFlight:
    """Counts the requests that wait for upstreams; `with` takes a place.

    Raises:
        McpError: -32603 with status 503, when all `limit` places are taken.
    """

    def __init__(self, limit: int) -> None:
        self.count = 0
        self._limit = limit

    def __enter__(self) -> None:
        if self.count >= self._limit:
            raise overloaded("Too many requests are in flight; try again later.")
        self.count += 1

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.count -= 1


def overloaded(text: str) -> McpError:
    """The refusal of a request that this process has no room for."""
    return McpError(Code.INTERNAL_ERROR, text, data=b'{"reason":"overloaded"}', status=503)


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


def trace_of(meta: Meta, fields: Mapping[str, str]) -> Trace | None:
    """Trace context from `_meta`, MCP's place for it, else from the fields that HTTP libraries write."""
    if meta.traceparent is not None:
        return headers.trace(meta.traceparent, meta.tracestate, meta.baggage)
    traceparent = fields.get("traceparent")
    if traceparent is None:
        return None
    return headers.trace(traceparent, fields.get("tracestate"), fields.get("baggage"))
