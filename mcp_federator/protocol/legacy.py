"""The dialect of revisions 2025-11-25, 2025-06-18 and 2025-03-26, which open with `initialize`.

Both sides are here, as in `modern`.  Toward upstreams: what is sent (`encode_initialize`, `call_params`,
`call_headers`, `listen_headers`, `cancelled`), what comes back (`decode_initialize`, `decode_result`), and
what a server says of its own accord (`answer_request`, `change_of`).  Toward clients: what they ask
(`agreed_version`, `query`, `cancelled_id`) and what they are given (`encode_initialize_result`,
`encode_answer`, `told`).  URIs pass as they are; prefixes are unknown here.

The revisions differ little in what we use: the version header came with 2025-06-18, batches exist in
2025-03-26 alone.  2024-11-05 has the same messages; its own HTTP transport is spoken by nobody here.

Hazards.  A capability that is declared is a promise to answer: what asks for a human or a model is not passed
on.  A session id comes from outside and goes back in a header: only visible ASCII may.
"""

import re
from collections.abc import Mapping
from typing import Any, Final

import msgspec

from mcp_federator import __version__
from mcp_federator.errors import McpError, Reason, UpstreamError
from mcp_federator.model import Answer, Change, Event, Method, Query, Trace
from mcp_federator.protocol import completion
from mcp_federator.protocol.jsonrpc import Request, check_text
from mcp_federator.protocol.modern import (
    ITEMS,
    Discovered,
    Result,
    answer_meta,
    decode_members,
    discovered,
    member,
    result_of,
    trace_fields,
)
from mcp_federator.protocol.text import members
from mcp_federator.protocol.vocabulary import LEGACY, SESSION_HEADER, VERSION_HEADER, Code

INITIALIZE: Final = "initialize"
INITIALIZED: Final = b'{"jsonrpc":"2.0","method":"notifications/initialized"}'
"""The message that ends the handshake."""

SPOKEN: Final = (*LEGACY, "2024-11-05")
"""What an upstream may answer to `initialize`; the first is what we propose."""

_ENCODER: Final = msgspec.json.Encoder()
_OBJECT: Final = msgspec.json.Decoder(dict[str, msgspec.Raw])
_BATCH: Final = msgspec.json.Decoder(list[msgspec.Raw])
_SOFTWARE: Final = _ENCODER.encode({"name": "mcp-federator", "version": __version__})
_PROMISES: Final = frozenset({"elicitation", "roots", "sampling", "tasks"})
"""Client capabilities that let the server ask; whom we ask for may be many, or nobody any more."""

_MAX_MESSAGES: Final = 1000
"""How many messages a batch from upstream may have; one is our answer, the others are few."""

_SESSION_ID: Final = re.compile(r"[!-~]{1,4096}")
_ID: Final = re.compile(rb'".*"|-?[0-9][0-9.eE+-]*', re.DOTALL)


# Toward upstreams.


class _Initialized(msgspec.Struct):
    version: str = msgspec.field(name="protocolVersion")
    capabilities: dict[str, Any] = {}
    server: Any = msgspec.field(default=None, name="serverInfo")


class _Asked(msgspec.Struct):
    method: str
    id: msgspec.Raw = msgspec.Raw()


class _Told(msgspec.Struct):
    method: str
    params: Any = None


_INITIALIZED: Final = msgspec.json.Decoder(_Initialized)
_ASKED: Final = msgspec.json.Decoder(_Asked)
_TOLD: Final = msgspec.json.Decoder(_Told)
_CHANGES: Final = {
    "notifications/resources/list_changed": Change.LIST,
    "notifications/resources/updated": Change.RESOURCE,
}


def encode_initialize(capabilities: bytes) -> bytes:
    """The params of our `initialize` (2025-11-25, basic/lifecycle, "Initialization").

    `capabilities` is the JSON object that modern servers get; what would let a server ask us is left out.
    """
    declared = {name: raw for name, raw in _OBJECT.decode(capabilities).items() if name not in _PROMISES}
    return b'{"protocolVersion":"%b","capabilities":%b,"clientInfo":%b}' % (
        SPOKEN[0].encode(),
        _ENCODER.encode(declared),
        _SOFTWARE,
    )


def decode_initialize(raw: bytes | msgspec.Raw) -> Discovered:
    """What an upstream says of itself in its answer to `initialize`.

    `versions` holds the one version that is spoken from now on, which must be one of `SPOKEN`; there is no
    hint how long to believe it.

    Raises:
        ValueError: it is no such result.
    """
    found = _INITIALIZED.decode(raw)
    return discovered((found.version,), found.capabilities, found.server)


def session_id(value: str | None) -> str | None:
    """The session id that an answer to `initialize` gives; None where the server keeps no sessions.

    Raises:
        ValueError: characters that no session id may hold (2025-11-25, basic/transports, "Session
            Management").
    """
    if not value:
        return None
    if _SESSION_ID.fullmatch(value) is None:
        raise ValueError("the session id holds more than visible ASCII, or is too long")
    return value


def call_params(query: Query) -> bytes:
    """The params of our call to an upstream, a JSON object.

    An answer to an `input_required` has no place here, and no legacy server asked for one.
    """
    parts = []
    if query.completion is not None:
        parts.append(completion.encode_params(query, query.completion))
    elif query.uri is not None:
        parts.append(b'"uri":' + _ENCODER.encode(query.uri))
    if query.cursor is not None:
        parts.append(b'"cursor":' + _ENCODER.encode(query.cursor))
    return b"{%b}" % b",".join(parts)


def call_headers(
    version: str | None = None,
    session: str | None = None,
    trace: Trace | None = None,
    *,
    baggage: bool = False,
) -> dict[str, str]:
    """The header fields of a message to an upstream.

    `initialize` has neither version nor session.  Trace context has no place in the message of these
    revisions, so it goes here alone; `baggage` where the configuration says so.
    """
    headers = {"Accept": "application/json, text/event-stream", "Content-Type": "application/json"}
    if version is not None:
        headers[VERSION_HEADER] = version
    if session is not None:
        headers[SESSION_HEADER] = session
    headers.update(trace_fields(trace, baggage=baggage))
    return headers


def listen_headers(session: Mapping[str, str], place: str) -> dict[str, str]:
    """The header fields that open the stream of a session, or take it up behind the event `place`.

    `session` are those that go along with whatever belongs to it.  `place` is visible ASCII, `""` for none.
    """
    headers = {name: value for name, value in session.items() if name != "Content-Type"}
    headers["Accept"] = "text/event-stream"
    if place:
        headers["Last-Event-ID"] = place
    return headers


def cancelled(id: int) -> bytes:  # noqa: A002 - the protocol's word
    """The notification that nobody waits for our call `id` any more (basic/utilities/cancellation)."""
    return b'{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":%d}}' % id


def decode_result(raw: bytes | msgspec.Raw) -> Result:
    """Decode the `result` of an upstream's response; hints are absent unless the server gives them anyway.

    Raises:
        ValueError: it is no object.
    """
    members, clear = decode_members(raw)
    members.pop("resultType", None)
    return result_of(members, clear=clear)


def messages(body: bytes) -> list[bytes]:
    """The messages in a body or an event: one, or those of a batch (2025-03-26, basic, "Batching").

    Raises:
        ValueError: a batch that is no JSON, or of too many messages.
    """
    if not body.lstrip().startswith(b"["):
        return [body]
    check_text(body)
    found = _BATCH.decode(body)
    if len(found) > _MAX_MESSAGES:
        raise ValueError(f"a batch of more than {_MAX_MESSAGES} messages")
    return [bytes(message) for message in found]


def answer_request(message: bytes) -> bytes | None:
    """What is answered to a message that an upstream sent of its own accord.

    A ping gets its empty result, any other request METHOD_NOT_FOUND: we promised nothing.  None: nothing is
    to be said, for it is a notification, a response, or no message at all.
    """
    try:
        asked = _ASKED.decode(message)
    except (ValueError, RecursionError):
        return None
    id = bytes(asked.id)  # noqa: A001 - the protocol's word
    if _ID.fullmatch(id) is None:
        return None
    if asked.method == "ping":
        return b'{"jsonrpc":"2.0","id":%b,"result":{}}' % id
    error = b'{"code":%d,"message":"Method not found: this client has none"}' % Code.METHOD_NOT_FOUND
    return b'{"jsonrpc":"2.0","id":%b,"error":%b}' % (id, error)


def change_of(upstream: str, message: bytes) -> Event | None:
    """What a message that an upstream sent of its own accord says of a change; None where it says none.

    The words are the same in either era.  An update that does not say of what may be one of any resource.
    """
    try:
        told = _TOLD.decode(message)
    except (ValueError, RecursionError):
        return None
    change = _CHANGES.get(told.method)
    if change is not Change.RESOURCE:
        return None if change is None else Event(upstream, change)
    uri = member(told.params, "uri")
    return Event(upstream, change, uri if isinstance(uri, str) else None)


# Toward clients.


PING: Final = "ping"
SUBSCRIBE: Final = "resources/subscribe"
UNSUBSCRIBE: Final = "resources/unsubscribe"
SUBSCRIBING: Final = frozenset({SUBSCRIBE, UNSUBSCRIBE})
CANCELLED: Final = "notifications/cancelled"
BATCHES: Final = "2025-03-26"
"""The one revision whose receivers must take batches."""

MAX_BATCH: Final = 32
"""How many messages a batch may have."""

_METHODS: Final = {str(method): method for method in Method if method is not Method.DISCOVER}
_UNSPEAKABLE: Final = frozenset({Code.HEADER_MISMATCH, Code.MISSING_CAPABILITY, Code.UNSUPPORTED_VERSION})


class _VersionParams(msgspec.Struct):
    version: str = msgspec.field(name="protocolVersion")


class _Initialize(msgspec.Struct):
    params: _VersionParams


class _CancelledParams(msgspec.Struct):
    id: str | int = msgspec.field(name="requestId")


class _Cancelled(msgspec.Struct):
    params: _CancelledParams


_INITIALIZE_REQUEST: Final = msgspec.json.Decoder(_Initialize)
_CANCELLED_NOTE: Final = msgspec.json.Decoder(_Cancelled)


def agreed_version(body: bytes) -> str | None:
    """The revision to speak after an `initialize` that passed `decode_request`.

    What the client asks for if we speak it, else the newest we do (basic/lifecycle, "Version Negotiation").
    None: it asks for no version.
    """
    try:
        version = _INITIALIZE_REQUEST.decode(body).params.version
    except msgspec.ValidationError:
        return None
    return version if version in LEGACY else LEGACY[0]


def encode_initialize_result(
    id: bytes,  # noqa: A002 - the protocol's word
    *,
    version: str,
    capabilities: bytes,
    instructions: str,
) -> bytes:
    """The response to `initialize`; `capabilities` is a JSON object, empty instructions are left out."""
    more = b',"instructions":' + _ENCODER.encode(instructions) if instructions else b""
    return _response(
        id,
        b'"protocolVersion":"%b","capabilities":%b,"serverInfo":%b%b'
        % (version.encode(), capabilities, _SOFTWARE, more),
    )


def encode_empty(id: bytes) -> bytes:  # noqa: A002 - the protocol's word
    """The response to what only wants to be heard, as `ping` (schema, "EmptyResult")."""
    return _response(id, b"")


def query(request: Request) -> Query:
    """What a request asks.

    Raises:
        McpError: METHOD_NOT_FOUND: it is no question about resources.  INVALID_PARAMS: a member of the params
            is missing or of another type than the schema says.
    """
    method = _METHODS.get(request.method)
    if method is None:
        raise McpError(Code.METHOD_NOT_FOUND, "Method not found: this server does not have it")
    fault = request.fault
    if method is Method.READ and request.uri is None:
        fault = "params.uri must be a string"
    if method is Method.COMPLETE and request.completion is None:
        fault = fault or "params.ref must be an object"
    if fault:
        raise McpError(Code.INVALID_PARAMS, f"Invalid params: {fault}")
    if method is Method.READ:
        return Query(method, uri=request.uri)
    if method is Method.COMPLETE:
        return Query(method, request.uri, completion=request.completion)
    return Query(method, cursor=request.cursor)


def encode_answer(id: bytes, method: Method, answer: Answer) -> bytes:  # noqa: A002 - the protocol's word
    """The response that gives a complete answer: without the hints and the result type of later revisions."""
    parts = []
    if answer.incomplete or answer.meta:
        parts.append(b'"_meta":{%b}' % answer_meta(answer)[1:])
    if method in ITEMS:
        parts.append(b"%b%b]" % (ITEMS[method], answer.body))
        if answer.next_cursor is not None:
            parts.append(b'"nextCursor":' + _ENCODER.encode(answer.next_cursor))
        if answer.extra:
            parts.append(answer.extra)
    elif answer.body:
        parts.append(answer.body)
    return _response(id, b",".join(parts))


def told(error: McpError, request: Request) -> McpError:
    """The error as the legacy client that made this request is told it.

    "No such resource" has a code of its own here (server/resources, "Error Handling"), and the codes of later
    revisions have no meaning, so they become INTERNAL_ERROR with the code in `data` (design, section 5).
    """
    # With a URI that could be asked for, nothing else can be wrong with a read's params.
    if error.code == Code.INVALID_PARAMS and request.method == Method.READ and request.uri is not None:
        return McpError(Code.RESOURCE_NOT_FOUND_LEGACY, error.message, data=error.data)
    if error.code in _UNSPEAKABLE:
        data: dict[str, Any] = {"reason": Reason.REFUSED, "code": int(error.code)}
        if isinstance(error, UpstreamError):
            data = {"upstream": error.upstream, **data}
        return McpError(Code.INTERNAL_ERROR, error.message, data=_ENCODER.encode(data))
    return error


def requires_input(answer: Answer) -> McpError:
    """What is told instead of an interim answer, which these revisions do not know."""
    data: dict[str, Any] = {"reason": "input_required"}
    if answer.served.upstreams:
        data = {"upstream": answer.served.upstreams[0], **data}
    return McpError(
        Code.INTERNAL_ERROR,
        "The resource's server wants to ask the user first, which this protocol revision cannot carry.",
        data=_ENCODER.encode(data),
    )


def cancelled_id(body: bytes) -> str | int | None:
    """The request that a `notifications/cancelled` calls off; None where it is malformed."""
    try:
        return _CANCELLED_NOTE.decode(body).params.id
    except msgspec.ValidationError:
        return None


def is_response(body: bytes) -> bool:
    """Whether a body that is no request is a response to one of ours; it must be UTF-8 and not too deep."""
    try:
        found = members(body)
    except ValueError:
        return False
    return "method" not in found and ("result" in found) != ("error" in found)


def _response(id: bytes, result: bytes) -> bytes:  # noqa: A002 - the protocol's word
    return b'{"jsonrpc":"2.0","id":%b,"result":{%b}}' % (id, result)
