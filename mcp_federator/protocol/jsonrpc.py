"""JSON-RPC envelopes: requests of clients in, our calls out, replies of upstreams in, errors out.

Nothing of what a method means may come in, nor any HTTP.  What is decoded here is all that later code may
look at: nobody decodes a client's body a second time or sends it on.

Hazards.  An id is JSON text and goes back as it came: value, type and spelling (basic/index, "Requests").  A
`Raw` keeps its whole buffer alive: `Request` and `Meta` hold copies, a `Reply` must be used up at once.  Of
two members with one name readers disagree which counts, so such objects are refused; `_hides` knows cheaply
that there are none.
"""

import re
from functools import lru_cache
from typing import Final, Literal

import msgspec

from mcp_federator.errors import McpError
from mcp_federator.model import Completion, Method, Retry
from mcp_federator.protocol import completion, subscriptions
from mcp_federator.protocol.text import check_depth, check_encoding, check_text, members
from mcp_federator.protocol.vocabulary import (
    META_CAPABILITIES,
    META_CLIENT_INFO,
    META_LOG_LEVEL,
    META_VERSION,
    Code,
)

__all__ = [
    "ErrorObject",
    "Meta",
    "Reply",
    "Request",
    "UnfitError",
    "check_text",
    "decode_message",
    "decode_reply",
    "decode_request",
    "encode_call",
    "error_body",
]

MAX_MESSAGE_BYTES: Final = 1024
"""At this length an upstream's error message is cut."""

MAX_CODE: Final = 2**53 - 1
"""Larger error codes are no integers to every reader."""


class Meta(msgspec.Struct, frozen=True, gc=False):
    """What a request's `_meta` says (basic/index, "_meta").

    A member that is absent or of another type is None.  `capabilities` is a JSON object as it came.  The
    trace context is not checked yet: see `headers.trace`.
    """

    version: str | None = None
    capabilities: bytes | None = None
    traceparent: str | None = None
    tracestate: str | None = None
    baggage: str | None = None


class Request(msgspec.Struct, frozen=True, gc=False):
    """A request or a notification of a client.

    Attributes:
        id: JSON text of the id, byte for byte; None of a notification.
        method: any text.
        meta: see `Meta`.
        uri: `params.uri` where it is a string; of a completion, what `params.ref` names.
        cursor: `params.cursor` where it is a string; null counts as absent, `""` does not.
        retry: `params.inputResponses` and `params.requestState`, byte for byte, where one is not null.
        completion: of a completion what it asks; None where that is malformed.
        notifications: of a wish to listen its filter; None where that is malformed.
        fault: what is wrong with the params as a sentence, or `""`; told at its turn in the order of checks.
    """

    id: bytes | None
    method: str
    meta: Meta = Meta()
    uri: str | None = None
    cursor: str | None = None
    retry: Retry | None = None
    completion: Completion | None = None
    notifications: subscriptions.Filter | None = None
    fault: str = ""


class ErrorObject(msgspec.Struct, frozen=True):
    """An upstream's error: `message` is cut at MAX_MESSAGE_BYTES, `data` is None when absent or null."""

    code: int
    message: str
    data: msgspec.Raw | None = None


class UnfitError(ValueError):
    """The message is the response to our call, but what it carries cannot be used."""


class Reply(msgspec.Struct, frozen=True):
    """An upstream's response to one of our calls: either `result`, any JSON, or `error`."""

    result: msgspec.Raw | None = None
    error: ErrorObject | None = None


_ABSENT: Final = msgspec.Raw()
_EMPTY: Final = msgspec.Raw(b"{}")
_NULL: Final = b"null"
_COMPLETE: Final = Method.COMPLETE.value
_MORE: Final = frozenset({_COMPLETE, subscriptions.LISTEN})


class _Wire(msgspec.Struct, gc=False, omit_defaults=True):
    """Members that are known; the empty `Raw`, which no JSON text is, means that one is absent."""


class _Params(_Wire):
    uri: msgspec.Raw = _ABSENT
    cursor: msgspec.Raw = _ABSENT
    input_responses: msgspec.Raw = msgspec.field(default=_ABSENT, name="inputResponses")
    request_state: msgspec.Raw = msgspec.field(default=_ABSENT, name="requestState")
    meta: msgspec.Raw = msgspec.field(default=_ABSENT, name="_meta")


class _Envelope(_Wire):
    jsonrpc: Literal["2.0"]
    method: str
    id: msgspec.Raw = _ABSENT
    params: _Params | msgspec.UnsetType = msgspec.UNSET


class _Meta(_Wire):
    version: msgspec.Raw = msgspec.field(default=_ABSENT, name=META_VERSION)
    capabilities: msgspec.Raw = msgspec.field(default=_ABSENT, name=META_CAPABILITIES)
    client_info: msgspec.Raw = msgspec.field(default=_ABSENT, name=META_CLIENT_INFO)
    log_level: msgspec.Raw = msgspec.field(default=_ABSENT, name=META_LOG_LEVEL)
    progress_token: msgspec.Raw = msgspec.field(default=_ABSENT, name="progressToken")
    traceparent: msgspec.Raw = _ABSENT
    tracestate: msgspec.Raw = _ABSENT
    baggage: msgspec.Raw = _ABSENT


class _Reply(_Wire):
    jsonrpc: Literal["2.0"]
    id: msgspec.Raw = _ABSENT
    method: msgspec.Raw = _ABSENT
    result: msgspec.Raw = _ABSENT
    error: msgspec.Raw = _ABSENT


class _Error(_Wire):
    code: int
    message: str
    data: msgspec.Raw = _ABSENT


_ENVELOPE: Final = msgspec.json.Decoder(_Envelope)
_META: Final = msgspec.json.Decoder(_Meta)
_REPLY: Final = msgspec.json.Decoder(_Reply)
_ERROR: Final = msgspec.json.Decoder(_Error)
_ANYTHING: Final = msgspec.json.Decoder(msgspec.Raw)
_TEXT: Final = msgspec.json.Decoder(str)
_ENCODER: Final = msgspec.json.Encoder()
_HALF: Final = re.compile(rb"\\u[dD][89a-fA-F][0-9a-fA-F]{2}")
"""Half a character, or one of the halves of a whole one."""

_ID: Final = re.compile(rb'".*"|-?(?:0|[1-9][0-9]*)(?:\.0+)?', re.DOTALL)


def decode_request(body: bytes) -> Request:
    """Decode the body of a POST, one request or notification (basic/index, "Messages").

    Raises:
        McpError: always with status 400, and with the id where it could be read.  PARSE_ERROR: not UTF-8, not
            JSON, a byte order mark, nested too deep.  INVALID_REQUEST: no object (a batch is none), another
            `jsonrpc`, an id that is neither string nor integer, `params` that are no object, two members with
            one name in the envelope, `params` or `_meta`.
    """
    try:
        check_encoding(body)
        check_depth(body)
        envelope = _ENVELOPE.decode(body)
    except ValueError:
        raise _refusal(body) from None
    id = bytes(envelope.id) or None  # noqa: A001 - the protocol's word
    if id is not None and not (id.isdigit() or _ID.fullmatch(id)):
        raise _invalid("id must be a string or an integer")
    params = envelope.params
    hidden: dict[str, msgspec.Raw] | None = None
    try:
        if _hides(envelope, body):
            hidden = members(bytes(members(body).get("params", _EMPTY)))
        if params is msgspec.UNSET:
            return Request(id, envelope.method)
        meta = _meta(bytes(params.meta)) if params.meta else Meta()
    except ValueError as error:
        raise _invalid(str(error), id) from None
    cursor, retry, fault = None, None, ""
    if params.cursor and bytes(params.cursor) != _NULL:
        cursor = _string(params.cursor)
        fault = "" if cursor is not None else "params.cursor must be a string"
    if params.input_responses or params.request_state:
        retry, fault = _retry(params, fault)
    uri = _string(params.uri) if params.uri else None
    # What these need is among the members not read above: other requests pay nothing for it.
    if hidden and envelope.method in _MORE:
        return _with_more(id, envelope.method, meta, hidden)
    return Request(id, envelope.method, meta, uri, cursor, retry, fault=fault)


def _with_more(
    id: bytes | None,  # noqa: A002 - the protocol's word
    method: str,
    meta: Meta,
    params: dict[str, msgspec.Raw],
) -> Request:
    """A request of which other members of the params count."""
    try:
        if method == _COMPLETE:
            uri, asked = completion.decode_params(params)
            return Request(id, method, meta, uri, completion=asked)
        return Request(id, method, meta, notifications=subscriptions.decode_params(params))
    except ValueError as problem:
        return Request(id, method, meta, fault=str(problem))


def error_body(error: McpError, id: bytes | None = None) -> bytes:  # noqa: A002 - the protocol's word
    """An error response (basic/index, "Error Responses"); without either's id it has no `id` member."""
    id = error.id if id is None else id  # noqa: A001 - the protocol's word
    # A message may quote a header field, and those may hold half characters.
    message = _ENCODER.encode(error.message.encode(errors="replace").decode())
    return b"".join(
        (
            b'{"jsonrpc":"2.0"',
            b"" if id is None else b',"id":' + id,
            b',"error":{"code":%d,"message":' % error.code,
            message,
            b"" if error.data is None else b',"data":' + error.data,
            b"}}",
        )
    )


def encode_call(id: int, method: str, params: bytes) -> bytes:  # noqa: A002 - the protocol's word
    """Our request to an upstream; `params` is a JSON object."""
    return b'{"jsonrpc":"2.0","id":%d,"method":%b,"params":%b}' % (id, _ENCODER.encode(method), params)


def decode_reply(body: bytes, id: int) -> Reply:  # noqa: A002 - the protocol's word
    """Decode the body of an upstream's JSON answer to our call `id`; runs `check_text` itself.

    An error without id, or with null for one, counts as an answer: the body is that of our own POST, and a
    server that could not read our id has no other (basic/index, "Error Responses").

    Raises:
        UnfitError: it is one to that call, with text in it that no reader should get.
        ValueError: anything that is no JSON-RPC response to that call.
    """
    reply = decode_message(body, id)
    if reply is None:
        raise ValueError("the message is no response")
    return reply


def decode_message(body: bytes, id: int) -> Reply | None:  # noqa: A002 - the protocol's word
    """Decode one event of the stream that answers our call `id`, likewise.

    None stands for what is to be passed over: a notification, a request of the server, an event without data.
    """
    if not body:
        return None
    try:
        check_text(body)
        message = _REPLY.decode(body)
    except ValueError as problem:
        if _answers(body, id):
            raise UnfitError(str(problem)) from None
        raise
    if _hides(message, body):
        members(body)
    if message.method:
        return None
    result, error = _value(message.result), _value(message.error)
    if (result is None) == (error is None):
        raise ValueError("a response has either a result or an error")
    if bytes(message.id) != b"%d" % id and (error is None or _value(message.id) is not None):
        raise ValueError("the response has another id")
    return Reply(result) if error is None else Reply(error=_error(error))


def _answers(body: bytes, id: int) -> bool:  # noqa: A002 - the protocol's word
    """Whether a text that is not fit to be read would be the response to our call, if it were mended."""
    text = _HALF.sub(rb"\\ufffd", body.decode(errors="replace").encode())
    try:
        message = _REPLY.decode(text)
    except (msgspec.DecodeError, RecursionError):
        return False
    return bytes(message.id) == b"%d" % id and not message.method


def _hides(decoded: _Wire, text: bytes) -> bool:
    """Whether a text holds more than the members decoded from it.

    Encoding is compact and no spelling is shorter, so equal lengths leave no room for a second member of some
    name.  Otherwise there may be just blanks, unknown members or escapes: the caller counts the names.
    """
    return len(_ENCODER.encode(decoded)) != len(text)


def _meta(text: bytes) -> Meta:
    """Raises ValueError when two members have one name."""
    return _known_meta(text) if len(text) <= _MAX_KNOWN_BYTES else _read_meta(text)


def _read_meta(text: bytes) -> Meta:
    try:
        found = _META.decode(text)
    except msgspec.ValidationError:
        return Meta()
    if _hides(found, text):
        members(text)
    capabilities = bytes(found.capabilities)
    return Meta(
        _string(found.version),
        capabilities if capabilities.startswith(b"{") else None,
        _string(found.traceparent),
        _string(found.tracestate),
        _string(found.baggage),
    )


# A client says the same `_meta` with every request, but for a progress token or trace context.
_known_meta: Final = lru_cache(maxsize=256)(_read_meta)
_MAX_KNOWN_BYTES: Final = 2048


def _retry(params: _Params, fault: str) -> tuple[Retry | None, str]:
    responses, state = _value(params.input_responses), _value(params.request_state)
    if responses is None and state is None:
        return None, fault
    if responses is not None and not bytes(responses).startswith(b"{"):
        fault = "params.inputResponses must be an object"
    if state is not None and not bytes(state).startswith(b'"'):
        fault = "params.requestState must be a string"
    return Retry(responses and bytes(responses), state and bytes(state)), fault


def _error(raw: msgspec.Raw) -> ErrorObject:
    error = _ERROR.decode(raw)
    if _hides(error, bytes(raw)):
        members(bytes(raw))
    if abs(error.code) > MAX_CODE:
        raise ValueError("the error code is out of range")
    message = error.message.encode()[:MAX_MESSAGE_BYTES].decode(errors="ignore")
    return ErrorObject(error.code, message, _value(error.data))


def _string(raw: msgspec.Raw) -> str | None:
    """The string that a member is; None when it is absent or something else."""
    if not raw:
        return None
    try:
        return _TEXT.decode(raw)
    except msgspec.ValidationError:
        return None


def _value(raw: msgspec.Raw) -> msgspec.Raw | None:
    """A member that is there and not null."""
    return raw if raw and bytes(raw) != _NULL else None


def _refusal(body: bytes) -> McpError:
    """Why a body is no request, for the one that the typed decoder did not take."""
    try:
        check_encoding(body)
        check_depth(body)
        _ANYTHING.decode(body)
    except ValueError as error:
        return McpError(Code.PARSE_ERROR, f"Parse error: {error}", status=400)
    try:
        found = members(body)
    except msgspec.ValidationError:
        return _invalid("the body must be one JSON object; batches are not accepted")
    except ValueError as error:
        return _invalid(str(error))
    id = bytes(found.get("id", _ABSENT))  # noqa: A001 - the protocol's word
    readable = id if _ID.fullmatch(id) else None
    if _string(found.get("jsonrpc", _ABSENT)) != "2.0":
        return _invalid('jsonrpc must be "2.0"', readable)
    if _string(found.get("method", _ABSENT)) is None:
        return _invalid("method must be a string", readable)
    return _invalid("params must be an object", readable)


def _invalid(problem: str, id: bytes | None = None) -> McpError:  # noqa: A002 - the protocol's word
    return McpError(Code.INVALID_REQUEST, f"Invalid request: {problem}", status=400, id=id)
