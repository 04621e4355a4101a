"""The dialect of 2026-07-28 toward upstreams: our calls, their results."""

import json
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from mcp_types import methods
from multidict import CIMultiDict

import mcp_federator
from mcp_federator.model import Completion, Method, Query, Retry, Scope, Trace
from mcp_federator.protocol import legacy, modern
from mcp_federator.protocol.jsonrpc import decode_request
from mcp_federator.protocol.modern import Discovered, Result, decode_discover, decode_result
from mcp_federator.protocol.vocabulary import MODERN

VERSION = "io.modelcontextprotocol/protocolVersion"
CAPABILITIES = "io.modelcontextprotocol/clientCapabilities"
CLIENT = "io.modelcontextprotocol/clientInfo"
SOFTWARE = {"name": "mcp-federator", "version": mcp_federator.__version__}

# Calls to upstreams

TRACE = Trace("00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01", "a=b", "c=d")


@pytest.mark.parametrize(
    ("query", "params"),
    [
        (Query(Method.DISCOVER), {}),
        (Query(Method.LIST), {}),
        (Query(Method.LIST, cursor=""), {"cursor": ""}),
        (Query(Method.TEMPLATES, cursor='a"é'), {"cursor": 'a"é'}),
        (Query(Method.READ, "file:///Załączniki/x"), {"uri": "file:///Załączniki/x"}),
        (
            Query(Method.READ, "x", retry=Retry(b'{"k":{"action":"accept"}}', b'"s"')),
            {"uri": "x", "inputResponses": {"k": {"action": "accept"}}, "requestState": "s"},
        ),
        (Query(Method.READ, "x", retry=Retry(b"{}")), {"uri": "x", "inputResponses": {}}),
        (Query(Method.READ, "x", retry=Retry(request_state=b'""')), {"uri": "x", "requestState": ""}),
    ],
)
def test_a_query_becomes_official_params(query: Query, params: dict[str, Any]) -> None:
    """Our name, the version, the given capabilities; nothing else of `_meta` unless there is something."""
    sent = json.loads(modern.call_params(query, b'{"sampling":{}}', None))
    methods.validate_client_request(query.method.value, MODERN, sent)
    assert sent == params | {"_meta": {VERSION: MODERN, CLIENT: SOFTWARE, CAPABILITIES: {"sampling": {}}}}


def test_H29_a_retry_goes_upstream_byte_for_byte() -> None:
    """State and responses keep their spelling."""
    query = Query(Method.READ, "x", retry=Retry(b'{"k" : 1.10}', b'"op\\u0061que"'))
    assert b'"inputResponses":{"k" : 1.10},"requestState":"op\\u0061que",' in modern.call_params(
        query, b"{}", None
    )


@pytest.mark.parametrize(
    ("baggage", "expected"),
    [
        (False, {"traceparent": TRACE.traceparent, "tracestate": "a=b"}),
        (True, {"traceparent": TRACE.traceparent, "tracestate": "a=b", "baggage": "c=d"}),
    ],
)
def test_trace_context_goes_along_in_meta_and_as_headers(baggage: bool, expected: dict[str, str]) -> None:
    """Baggage only where the configuration wants it."""
    query = Query(Method.READ, "x")
    sent = json.loads(modern.call_params(query, b"{}", TRACE, baggage=baggage))
    methods.validate_client_request("resources/read", MODERN, sent)
    assert sent["_meta"].items() >= expected.items()
    headers = modern.call_headers(query, TRACE, baggage)
    assert headers.items() >= expected.items()
    assert ("baggage" in sent["_meta"], "baggage" in headers) == (baggage, baggage)
    assert "tracestate" not in modern.call_headers(query, Trace(TRACE.traceparent), baggage)


@pytest.mark.parametrize(
    ("query", "name"),
    [
        (Query(Method.LIST, cursor="c"), {}),
        (Query(Method.READ, "file:///a b"), {"Mcp-Name": "file:///a b"}),
        (
            Query(Method.READ, "file:///Załączniki/x"),
            {"Mcp-Name": "=?base64?ZmlsZTovLy9aYcWCxIVjem5pa2kveA==?="},
        ),
    ],
)
def test_H33_an_upstream_gets_headers_made_from_the_native_uri(query: Query, name: dict[str, str]) -> None:
    """Version, method and name mirror the body; both types are accepted."""
    assert modern.call_headers(query, None) == name | {
        "Accept": "application/json, text/event-stream",
        "Content-Type": "application/json",
        "MCP-Protocol-Version": MODERN,
        "Mcp-Method": query.method.value,
    }


@given(st.sampled_from(Method), st.text(), st.none() | st.text())
def test_what_we_send_upstream_we_would_accept(method: Method, uri: str, cursor: str | None) -> None:
    """Our own checks find nothing to say about our own calls."""
    query = Query(method, uri) if method is Method.READ else Query(method)
    if method is Method.COMPLETE:
        query = Query(method, uri, completion=Completion(b'{"name":"a","value":""}'))
    if method in (Method.LIST, Method.TEMPLATES):
        query = Query(method, cursor=cursor)
    params = modern.call_params(query, b"{}", TRACE)
    received = decode_request(
        b'{"jsonrpc":"2.0","id":1,"method":"%b","params":%b}' % (method.value.encode(), params)
    )
    modern.check(received, CIMultiDict(modern.call_headers(query, TRACE)))
    assert modern.query(received) == query


# Results of upstreams


def test_H12_H14_unknown_members_are_kept_byte_for_byte() -> None:
    """Also numbers in any spelling; only what is ours to say is taken out."""
    result = decode_result(
        b'{"x-extra":true,"resultType":"complete","contents":[{"n":9007199254740993,"f":1.10,"e":1e2,"t":1E-7,'
        b'"z":-0.0}],"ttlMs":5,"cacheScope":"public","_meta":{"io.modelcontextprotocol/serverInfo":{"name":"up"},'
        b'"com.example/x":{"a":[null,1.10]},"io.modelcontextprotocol/o":1,"z":null},"futureField":{ "k":1 }}'
    )
    assert list(result.members) == ["x-extra", "contents", "futureField"]
    assert bytes(result.members["contents"]) == b'[{"n":9007199254740993,"f":1.10,"e":1e2,"t":1E-7,"z":-0.0}]'
    assert bytes(result.members["futureField"]) == b'{ "k":1 }'
    assert result.meta == b'"com.example/x":{"a":[null,1.10]},"z":null'
    assert (result.interim, result.ttl_ms, result.scope) == (False, 5, Scope.PUBLIC)


@pytest.mark.parametrize("meta", [b"null", b"5", b"[]", b"{}", b'"x"'])
def test_H13_a_meta_without_members_is_none(meta: bytes) -> None:
    """Null, and whatever else is no object, has nothing to keep."""
    assert decode_result(b'{"_meta":' + meta + b"}").meta == b""


@pytest.mark.parametrize(
    ("ttl", "milliseconds"),
    [
        (b"0", 0),
        (b"1", 1),
        (b"-1", 0),
        (b"-0", 0),
        (b"-0.0", 0),
        (b"60000", 60_000),
        (b"60000.0", 60_000),
        (b"6e4", 60_000),
        (b"6E+4", 60_000),
        (b"600000e-1", 60_000),
        (b"0.4", 0),
        (b"1.5", 0),
        (b"-1.0", 0),
        (b'"60000"', 0),
        (b"true", 0),
        (b"false", 0),
        (b"null", 0),
        (b"[60000]", 0),
        (b"{}", 0),
        (b"9007199254740993", 9007199254740993),
        (b"9223372036854775807", 9223372036854775807),
        (b"1e30", int(1e30)),
        (b"1E400", 0),
        (b"9" * 5000, 0),
    ],
    ids=lambda value: f"{value!r:.16}",
)
def test_H25_odd_lives_never_fail_a_result(ttl: bytes, milliseconds: int) -> None:
    """Integral numbers count in any spelling, everything else is 0, nothing is negative or a float."""
    found = decode_result(b'{"ttlMs":' + ttl + b"}").ttl_ms
    assert found == milliseconds
    assert type(found) is int


@pytest.mark.parametrize(
    ("scope", "expected"),
    [
        (b'"public"', Scope.PUBLIC),
        (b'"private"', Scope.PRIVATE),
        (b'"PUBLIC"', Scope.PRIVATE),
        (b'" public"', Scope.PRIVATE),
        (b'""', Scope.PRIVATE),
        (b"null", Scope.PRIVATE),
        (b"true", Scope.PRIVATE),
        (b'["public"]', Scope.PRIVATE),
    ],
)
def test_H26_only_public_is_public(scope: bytes, expected: Scope) -> None:
    """Any other scope that is given is private."""
    assert decode_result(b'{"cacheScope":' + scope + b"}").scope is expected


@pytest.mark.parametrize(
    "raw",
    [
        b'{"ttlMs":60000,"ttlMs":0}',
        b'{"ttlMs":0,"ttlMs":60000,"cacheScope":"public"}',
        b'{"ttlMs":5,"cacheScope":"private","cacheScope":"public"}',
        b'{"ttlMs":5,"cacheScope":"public" , "cacheScope":"private"}',
        b'{"ttlMs":5,"cacheScope":"public","cache\\u0053cope":"private"}',
        b'{"resultType":"complete","resultType":"complete","ttlMs":5,"cacheScope":"public"}',
    ],
)
@pytest.mark.parametrize("decode", [decode_result, legacy.decode_result])
def test_H26_of_two_hints_none_is_believed(raw: bytes, decode: Callable[[bytes], Result]) -> None:
    """Others may believe the other one; so the answer is for its asker alone, and for now."""
    found = decode(raw)
    assert (found.ttl_ms, found.scope) == (0, Scope.PRIVATE)


@pytest.mark.parametrize(
    "raw",
    [
        b' {"ttlMs" : 5, "cacheScope":"public"}',
        b'{"ttlMs":5,"cacheScope":"public","x":"\\"ttlMs\\":1,\\"ttlMs\\":2","y":{"ttlMs":1,"a":{"ttlMs":2}}}',
        b'{"ttl\\u004ds":5,"cacheScope":"publi\\u0063","y":[1, 2]}',
    ],
)
def test_H25_hints_are_believed_in_any_spelling(raw: bytes) -> None:
    """What looks like a second hint elsewhere is none."""
    assert decode_result(raw).ttl_ms == 5


@pytest.mark.parametrize("raw", [b"{}", b'{"resultType":null}', b'{"resultType":"complete"}'])
def test_H26_absent_members_are_told_apart(raw: bytes) -> None:
    """Without a type a result is complete; without hints the configuration decides."""
    assert decode_result(raw) == Result(interim=False, members={}, meta=b"", ttl_ms=None, scope=None)


@pytest.mark.parametrize("kind", [b'"partial"', b'"Complete"', b'""', b"5", b"true", b"{}", b'["complete"]'])
def test_H29_an_unknown_type_is_no_result(kind: bytes) -> None:
    """A value that we do not recognise is invalid."""
    with pytest.raises(ValueError, match="unknown type"):
        decode_result(b'{"resultType":' + kind + b',"contents":[]}')


def test_H29_an_interim_result_keeps_what_it_asks() -> None:
    """Byte for byte, with unknown members, and without hints."""
    result = decode_result(
        b'{"resultType":"input_required","inputRequests":{"k":{"method":"roots/list"}},"requestState":"op\\u0061que",'
        b'"x":null}'
    )
    assert result.interim
    assert {name: bytes(value) for name, value in result.members.items()} == {
        "inputRequests": b'{"k":{"method":"roots/list"}}',
        "requestState": b'"op\\u0061que"',
        "x": b"null",
    }


def test_H13_null_in_an_interim_result_is_dropped() -> None:
    """Either of the two may be missing, but not both."""
    result = decode_result(b'{"resultType":"input_required","inputRequests":null,"requestState":"s"}')
    assert list(result.members) == ["requestState"]
    with pytest.raises(ValueError, match="asks for none"):
        decode_result(b'{"resultType":"input_required","inputRequests":null}')


@pytest.mark.parametrize("wrong", [b'"inputRequests":[]', b'"inputRequests":{},"requestState":5'])
def test_what_an_interim_result_asks_for_has_its_type(wrong: bytes) -> None:
    """Clients refuse anything else, so it is no answer."""
    with pytest.raises(ValueError, match="another type"):
        decode_result(b'{"resultType":"input_required",%b}' % wrong)


@pytest.mark.parametrize("raw", [b"[]", b"null", b"5", b'"x"', b""])
def test_a_result_is_an_object(raw: bytes) -> None:
    """Anything else is a ValueError."""
    with pytest.raises(ValueError, match=r"."):
        decode_result(raw)


@pytest.mark.parametrize(
    ("raw", "expected"),
    [
        (
            (
                b'{"resultType":"complete","supportedVersions":["2026-07-28","2025-11-25"],"capabilities":{"resources":'
                b'{"listChanged":true,"subscribe":true},"completions":{}},"ttlMs":5,"cacheScope":"public",'
                b'"_meta":{"io.modelcontextprotocol/serverInfo":{"name":"up","version":"1.0"}}}'
            ),
            Discovered(
                ("2026-07-28", "2025-11-25"),
                resources=True,
                list_changed=True,
                subscribe=True,
                completions=True,
                server_name="up",
                server_version="1.0",
                ttl_ms=5,
            ),
        ),
        (b'{"supportedVersions":[],"capabilities":{}}', Discovered(())),
        (
            b'{"supportedVersions":["x"],"capabilities":{"resources":{"listChanged":1,"subscribe":"yes"}},"_meta":null}',
            Discovered(("x",), resources=True),
        ),
        (
            (
                b'{"supportedVersions":["x"],"capabilities":{"resources":null,"completions":true},"ttlMs":-1,'
                b'"_meta":{"io.modelcontextprotocol/serverInfo":{"name":5}}}'
            ),
            Discovered(("x",)),
        ),
    ],
    ids=["everything", "nothing", "odd-flags", "odd-members"],
)
def test_a_discovery_tells_what_an_upstream_can_do(raw: bytes, expected: Discovered) -> None:
    """Flags count when they are true, names when they are strings."""
    assert decode_discover(raw) == expected


@pytest.mark.parametrize(
    "raw",
    [
        b"{}",
        b'{"supportedVersions":["x"]}',
        b'{"capabilities":{}}',
        b'{"supportedVersions":"x","capabilities":{}}',
        b'{"supportedVersions":[5],"capabilities":{}}',
        b'{"supportedVersions":["x"],"capabilities":null}',
        b'{"supportedVersions":["x"],"capabilities":{},"resultType":"other"}',
        b'{"supportedVersions":["x"],"capabilities":{},"resultType":"input_required","requestState":"s"}',
    ],
)
def test_what_is_no_discovery_is_refused(raw: bytes) -> None:
    """A server that answers so is not understood."""
    with pytest.raises(ValueError, match=r"."):
        decode_discover(raw)
