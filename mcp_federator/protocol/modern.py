"""The dialect of revision 2026-07-28: its requests and results to the words of `model` and back.

Both sides are here, for it is one language: what clients send and get (`check`, `query`, `notifications`,
`encode_answer`, `encode_discover`) and what upstreams get and send (`call_params`, `call_headers`,
`decode_result`, `decode_discover`).  URIs pass as they are; prefixes are unknown here.

Hazards.  `encode_answer` is on the hot path: it joins bytes and parses nothing.  The keys of `_meta` below
`io.modelcontextprotocol/` belong to the two ends of a connection, so an upstream's end here.  Hints may be
any JSON at all and never fail a result (server/utilities/caching, "Cacheable Model").
"""

from collections.abc import Mapping
from typing import Any, Final

import msgspec

from mcp_federator import __version__
from mcp_federator.errors import McpError
from mcp_federator.model import Answer, Method, Query, Scope, Trace, Wanted
from mcp_federator.protocol import completion
from mcp_federator.protocol.headers import decode_name, encode_name
from mcp_federator.protocol.jsonrpc import Request
from mcp_federator.protocol.subscriptions import LISTEN, Filter, listen_params
from mcp_federator.protocol.text import has_twins
from mcp_federator.protocol.vocabulary import (
    META_CAPABILITIES,
    META_CLIENT_INFO,
    META_INCOMPLETE,
    META_SERVER_INFO,
    META_VERSION,
    METHOD_HEADER,
    MODERN,
    NAME_HEADER,
    RESERVED_META,
    SUPPORTED,
    VERSION_HEADER,
    Code,
)

_ENCODER: Final = msgspec.json.Encoder()
_OBJECT: Final = msgspec.json.Decoder(dict[str, msgspec.Raw])

_METHODS: Final = {str(method): method for method in Method}
_SOFTWARE: Final = _ENCODER.encode({"name": "mcp-federator", "version": __version__})
_COMPLETE: Final = {
    scope: b',"result":{"resultType":"complete","cacheScope":"%b","ttlMs":' % scope.value.encode()
    for scope in Scope
}
_UNHINTED: Final = b',"result":{"resultType":"complete"'
_HEAD: Final = b'{"jsonrpc":"2.0","id":'
_INTERIM: Final = b',"result":{"resultType":"input_required"'
_META: Final = b',"_meta":{"%b":%b' % (META_SERVER_INFO.encode(), _SOFTWARE)
ITEMS: Final = {Method.LIST: b'"resources":[', Method.TEMPLATES: b'"resourceTemplates":['}
"""What opens the items of a list."""

_ASKING: Final = {"inputRequests": b"{", "requestState": b'"'}
"""An interim result has at least one of them (basic/patterns/mrtr, "Server Requirements"): how it begins."""

_SCOPES: Final = {b'"public"': Scope.PUBLIC}

_NULL: Final = msgspec.Raw(b"null")

# Members of an enumeration are looked up slowly on Python 3.11.
_READ, _COMPLETION = Method.READ, Method.COMPLETE

_CALL_META: Final = b'"_meta":{"%b":"%b","%b":%b,"%b":' % (
    META_VERSION.encode(),
    MODERN.encode(),
    META_CLIENT_INFO.encode(),
    _SOFTWARE,
    META_CAPABILITIES.encode(),
)


def check(request: Request, headers: Mapping[str, str]) -> None:
    """Check a request against its header fields, in the order in which a client is told what is wrong.

    The version in header and `_meta` (transports/streamable-http, "Protocol Version Header"), whether we
    speak it, the rest of `_meta` (basic/index, "Per-request protocol fields"), the method, `Mcp-Method` and
    `Mcp-Name` ("Server Validation").  What else stands in the params is checked by `query`.

    Args:
        request: a request; notifications have no header rules.
        headers: finds names regardless of case.

    Raises:
        McpError: with code, status and the request's id.
    """
    version = request.meta.version
    if version is None:
        raise _refusal(request, Code.INVALID_PARAMS, f"params._meta[{META_VERSION!r}] must be a string")
    if headers.get(VERSION_HEADER) != version:
        raise _refusal(
            request, Code.HEADER_MISMATCH, f"{VERSION_HEADER} must be params._meta[{META_VERSION!r}]"
        )
    if version not in SUPPORTED:
        data = _ENCODER.encode({"supported": SUPPORTED, "requested": version})
        raise _refusal(
            request, Code.UNSUPPORTED_VERSION, f"this server speaks {', '.join(SUPPORTED)}", data=data
        )
    if request.meta.capabilities is None:
        raise _refusal(request, Code.INVALID_PARAMS, f"params._meta[{META_CAPABILITIES!r}] must be an object")
    if request.method not in _METHODS and request.method != LISTEN:
        raise _refusal(request, Code.METHOD_NOT_FOUND, "this server does not have it", status=404)
    if headers.get(METHOD_HEADER) != request.method:
        raise _refusal(request, Code.HEADER_MISMATCH, f"{METHOD_HEADER} must be the request's method")
    if request.method == Method.READ:
        _check_name(request, headers.get(NAME_HEADER))


def query(request: Request) -> Query:
    """What a checked request asks.

    Raises:
        McpError: INVALID_PARAMS, status 400: a member of the params has another type than the schema says.
    """
    method = _METHODS[request.method]
    if request.fault:
        raise _refusal(request, Code.INVALID_PARAMS, request.fault)
    if method is _READ:
        return Query(method, uri=request.uri, retry=request.retry)
    if method is Method.DISCOVER:
        return Query(method)
    if method is _COMPLETION:
        if request.completion is None:
            raise _refusal(request, Code.INVALID_PARAMS, "params.ref must be an object")
        return Query(method, request.uri, completion=request.completion)
    return Query(method, cursor=request.cursor)


def notifications(request: Request) -> Filter:
    """What a checked request to listen wants; raises as `query` does."""
    if request.notifications is None:
        problem = request.fault or "params.notifications must be an object"
        raise _refusal(request, Code.INVALID_PARAMS, problem)
    return request.notifications


def _check_name(request: Request, header: str | None) -> None:
    if request.uri is None:
        raise _refusal(request, Code.INVALID_PARAMS, "params.uri must be a string")
    if header is None:
        raise _refusal(request, Code.HEADER_MISMATCH, f"{NAME_HEADER} is missing")
    try:
        name = decode_name(header)
    except ValueError as error:
        raise _refusal(request, Code.HEADER_MISMATCH, f"{NAME_HEADER}: {error}") from None
    if name != request.uri:
        raise _refusal(request, Code.HEADER_MISMATCH, f"{NAME_HEADER} must be params.uri")


_PHRASES: Final = {
    Code.HEADER_MISMATCH: "Header mismatch",
    Code.UNSUPPORTED_VERSION: "Unsupported protocol version",
    Code.METHOD_NOT_FOUND: "Method not found",
    Code.INVALID_PARAMS: "Invalid params",
}


def _refusal(
    request: Request, code: Code, problem: str, *, data: bytes | None = None, status: int = 400
) -> McpError:
    return McpError(code, f"{_PHRASES[code]}: {problem}", data=data, status=status, id=request.id)


def encode_answer(id: bytes, method: Method, answer: Answer) -> bytes:  # noqa: A002 - the protocol's word
    """The response that gives an answer to the client who asked with this id.

    A complete result always carries both hints, an interim one and a completion none
    (server/utilities/caching, "Cacheable Results").  `_meta` names us as the server and, on a merged list,
    who is missing.
    """
    hint = answer.hint
    parts = [_HEAD, id]
    if answer.interim:
        parts.append(_INTERIM)
    elif method is _COMPLETION:
        parts.append(_UNHINTED)
    else:
        parts += (_COMPLETE[hint.scope], b"%d" % hint.ttl_ms)
    parts.append(_META)
    if answer.incomplete or answer.meta:
        parts.append(answer_meta(answer))
    parts.append(b"}")
    if method is not _READ and method in ITEMS:
        parts += (b",", ITEMS[method], answer.body, b"]")
        if answer.next_cursor is not None:
            parts += (b',"nextCursor":', _ENCODER.encode(answer.next_cursor))
        if answer.extra:
            parts += (b",", answer.extra)
    elif answer.body:
        parts += (b",", answer.body)
    parts.append(b"}}")
    return b"".join(parts)


def answer_meta(answer: Answer) -> bytes:
    """What stands in `_meta` behind our name; our list of the missing replaces one that an upstream made."""
    if not answer.incomplete:
        return b"," + answer.meta
    kept = _OBJECT.decode(b"{%b}" % answer.meta)
    kept[META_INCOMPLETE] = msgspec.Raw(_ENCODER.encode(answer.incomplete))
    return b"," + _ENCODER.encode(kept)[1:-1]


def encode_discover(
    id: bytes,  # noqa: A002 - the protocol's word
    *,
    capabilities: bytes,
    instructions: str,
    ttl_ms: int,
) -> bytes:
    """The response to `server/discover` ("DiscoverResult" there); empty instructions are left out."""
    return b"".join(
        (
            _HEAD,
            id,
            _COMPLETE[Scope.PUBLIC],
            b"%d" % ttl_ms,
            _META,
            b'},"supportedVersions":',
            _ENCODER.encode(SUPPORTED),
            b',"capabilities":',
            capabilities,
            b',"instructions":' + _ENCODER.encode(instructions) if instructions else b"",
            b"}}",
        )
    )


def call_params(query: Query, capabilities: bytes, trace: Trace | None, *, baggage: bool = False) -> bytes:
    """The params of our call to an upstream, a JSON object; `capabilities` is one too.

    Of the asker's `_meta` only the trace context goes along, `baggage` where the configuration says so.
    """
    parts = [b"{"]
    if query.completion is not None:
        parts += (completion.encode_params(query, query.completion), b",")
    elif query.uri is not None:
        parts += (b'"uri":', _ENCODER.encode(query.uri), b",")
    if query.cursor is not None:
        parts += (b'"cursor":', _ENCODER.encode(query.cursor), b",")
    if query.retry is not None:
        if query.retry.input_responses is not None:
            parts += (b'"inputResponses":', query.retry.input_responses, b",")
        if query.retry.request_state is not None:
            parts += (b'"requestState":', query.retry.request_state, b",")
    parts += (_CALL_META, capabilities)
    for name, value in trace_fields(trace, baggage=baggage):
        parts.append(b',"%b":%b' % (name.encode(), _ENCODER.encode(value)))
    parts.append(b"}}")
    return b"".join(parts)


def call_headers(query: Query, trace: Trace | None, baggage: bool = False) -> dict[str, str]:
    """The header fields of our call to an upstream (transports/streamable-http, "Request Metadata")."""
    headers = {
        "Accept": "application/json, text/event-stream",
        "Content-Type": "application/json",
        VERSION_HEADER: MODERN,
        METHOD_HEADER: query.method.value,
    }
    if query.method is Method.READ and query.uri is not None:
        headers[NAME_HEADER] = encode_name(query.uri)
    headers.update(trace_fields(trace, baggage=baggage))
    return headers


def listen_call(wanted: Wanted, capabilities: bytes) -> tuple[bytes, dict[str, str]]:
    """The params and the header fields of our `subscriptions/listen` (basic/patterns/subscriptions)."""
    params = listen_params(wanted.lists, sorted(wanted.uris), b"%b%b}" % (_CALL_META, capabilities))
    return params, {
        "Accept": "application/json, text/event-stream",
        "Content-Type": "application/json",
        VERSION_HEADER: MODERN,
        METHOD_HEADER: LISTEN,
    }


def trace_fields(trace: Trace | None, *, baggage: bool) -> list[tuple[str, str]]:
    """The trace context as names and values, which are the same in `_meta` and in the header."""
    if trace is None:
        return []
    fields = [("traceparent", trace.traceparent)]
    if trace.tracestate is not None:
        fields.append(("tracestate", trace.tracestate))
    if baggage and trace.baggage is not None:
        fields.append(("baggage", trace.baggage))
    return fields


class Result(msgspec.Struct, frozen=True):
    """An upstream's result, decoded as deep as we own it.

    Attributes:
        interim: `resultType` is `input_required`.
        members: the others as they came, less `resultType`, `ttlMs`, `cacheScope` and `_meta`.
        meta: the members of `_meta` joined by commas, without braces and without reserved keys.
        ttl_ms: whole milliseconds, never negative, not clamped; None when there is no `ttlMs`.
        scope: None when there is no `cacheScope`.
    """

    interim: bool
    members: dict[str, msgspec.Raw]
    meta: bytes
    ttl_ms: int | None
    scope: Scope | None


def decode_result(raw: bytes | msgspec.Raw) -> Result:
    """Decode the `result` of an upstream's response (basic/index, "ResultType").

    Raises:
        ValueError: no object, a `resultType` that we do not know, or an interim result that asks for nothing
            or in another form.
    """
    members, clear = decode_members(raw)
    kind = bytes(members.pop("resultType", _NULL))
    interim = kind == b'"input_required"'
    if interim:
        for name, begins in _ASKING.items():
            asking = bytes(members.get(name, _NULL))
            if asking == b"null":
                members.pop(name, None)
            elif not asking.startswith(begins):
                raise ValueError(f"the result requires input, but its {name} has another type")
        if members.keys().isdisjoint(_ASKING):
            raise ValueError("the result requires input but asks for none")
    elif kind not in {b'"complete"', b"null"}:
        raise ValueError("the result is of an unknown type")
    return result_of(members, interim=interim, clear=clear)


def decode_members(raw: bytes | msgspec.Raw) -> tuple[dict[str, msgspec.Raw], bool]:
    """The members of a result, and whether each had a name of its own; raises ValueError."""
    members = _OBJECT.decode(raw)
    # Encoding is compact and no spelling is shorter: equal lengths leave no room for a member that was lost.
    clear = len(_ENCODER.encode(members)) == memoryview(raw).nbytes or not has_twins(bytes(raw), members)
    return members, clear


def result_of(members: dict[str, msgspec.Raw], *, interim: bool = False, clear: bool = True) -> Result:
    """A result of its members, of which hints and `_meta` are taken out; `resultType` is no longer there.

    Where it is not `clear` which of two members counts, others may believe the other one: no hint does.
    """
    ttl, scope, meta = (members.pop(name, None) for name in ("ttlMs", "cacheScope", "_meta"))
    return Result(
        interim,
        members,
        b"" if meta is None else _upstream_meta(meta),
        0 if not clear else None if ttl is None else _whole_milliseconds(bytes(ttl)),
        Scope.PRIVATE if not clear else None if scope is None else _SCOPES.get(bytes(scope), Scope.PRIVATE),
    )


def _upstream_meta(raw: msgspec.Raw) -> bytes:
    """The members of a result's `_meta` that are an upstream's to write; of anything but an object none."""
    if not bytes(raw).startswith(b"{"):
        return b""
    meta = {name: value for name, value in _OBJECT.decode(raw).items() if not name.startswith(RESERVED_META)}
    return _ENCODER.encode(meta)[1:-1]


def _whole_milliseconds(ttl: bytes) -> int:
    """A `ttlMs` as it came; what is no whole positive number counts as 0."""
    try:
        if ttl.isdigit():
            return int(ttl)
        number = float(ttl)
    except ValueError:
        return 0
    return int(number) if number > 0 and number.is_integer() else 0


class Discovered(msgspec.Struct, frozen=True):
    """What an upstream says of itself (server/discover, "DiscoverResult").

    Attributes:
        versions: what it speaks, as listed.
        resources: whether it declares resources; `list_changed` and `subscribe` are flags of theirs.
        completions: whether it completes arguments.
        server_name: `""` when it does not say; from outside, of any length.
        server_version: likewise.
        ttl_ms: how long this may be believed.
    """

    versions: tuple[str, ...]
    resources: bool = False
    list_changed: bool = False
    subscribe: bool = False
    completions: bool = False
    server_name: str = ""
    server_version: str = ""
    ttl_ms: int = 0


class _Discover(msgspec.Struct):
    versions: tuple[str, ...] = msgspec.field(name="supportedVersions")
    capabilities: dict[str, Any]
    meta: Any = msgspec.field(default=None, name="_meta")


_DISCOVER: Final = msgspec.json.Decoder(_Discover)


def decode_discover(raw: bytes | msgspec.Raw) -> Discovered:
    """Decode the result of `server/discover`.

    Raises:
        ValueError: it is no complete result, or lacks versions or capabilities.
    """
    result = decode_result(raw)
    if result.interim:
        raise ValueError("the result requires input")
    found = _DISCOVER.decode(raw)
    server = member(found.meta, META_SERVER_INFO)
    return discovered(found.versions, found.capabilities, server, result.ttl_ms or 0)


def discovered(
    versions: tuple[str, ...], capabilities: Mapping[str, Any], server: Any, ttl_ms: int = 0
) -> Discovered:
    """What an upstream says of itself, from capabilities and an `Implementation` that may be anything."""
    resources, completions = (capabilities.get(name) for name in ("resources", "completions"))
    name, version = (member(server, key) for key in ("name", "version"))
    return Discovered(
        versions,
        resources=isinstance(resources, dict),
        list_changed=member(resources, "listChanged") is True,
        subscribe=member(resources, "subscribe") is True,
        completions=isinstance(completions, dict),
        server_name=name if isinstance(name, str) else "",
        server_version=version if isinstance(version, str) else "",
        ttl_ms=ttl_ms,
    )


def member(value: Any, name: str) -> Any:
    """A member of an object; None where it has none, and of what is no object."""
    return value.get(name) if isinstance(value, dict) else None
