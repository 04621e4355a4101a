"""The dialect of 2026-07-28 toward clients, held against the official types."""

import json
from collections.abc import Mapping
from typing import Any

import msgspec
import pytest
from mcp_types import jsonrpc as official
from mcp_types import methods
from multidict import CIMultiDict

import mcp_federator
from mcp_federator.errors import McpError
from mcp_federator.model import Answer, Hint, Method, Missing, Query, Retry, Scope
from mcp_federator.protocol import modern
from mcp_federator.protocol.jsonrpc import Request, decode_request, error_body
from mcp_federator.protocol.modern import Discovered, decode_discover
from mcp_federator.protocol.vocabulary import MODERN, Code

VERSION = "io.modelcontextprotocol/protocolVersion"
CAPABILITIES = "io.modelcontextprotocol/clientCapabilities"
CLIENT = "io.modelcontextprotocol/clientInfo"
SERVER = "io.modelcontextprotocol/serverInfo"
INCOMPLETE = "dev.mcp-federator/incomplete"
SOFTWARE = {"name": "mcp-federator", "version": mcp_federator.__version__}
META = {VERSION: MODERN, CAPABILITIES: {}}
URI = "docs+file:///Załączniki/x"
NAME = "=?base64?ZG9jcytmaWxlOi8vL1phxYLEhWN6bmlraS94?="


READ = {"MCP-Protocol-Version": MODERN, "Mcp-Method": "resources/read", "Mcp-Name": NAME}


def request(method: str = "resources/read", meta: Any = META, **params: Any) -> Request:
    if method == "resources/read":
        params = {"uri": URI} | params
    body = {"jsonrpc": "2.0", "id": "r-1", "method": method, "params": params | {"_meta": meta}}
    return decode_request(json.dumps(body).encode())


def told(request: Request, fields: Mapping[str, str]) -> McpError | None:
    try:
        modern.check(request, fields)
        modern.query(request)
    except McpError as error:
        official.jsonrpc_message_adapter.validate_json(error_body(error))
        return error
    return None


# Requests of clients


@pytest.mark.parametrize(
    "changed",
    [
        pytest.param({}, id="encoded"),
        pytest.param({"Mcp-Session-Id": "s", "Last-Event-ID": "5"}, id="H34-stray-legacy-headers"),
        pytest.param({"Mcp-Param-Region": "x"}, id="unknown-parameter-header"),
    ],
)
def test_H33_a_request_whose_headers_agree_is_accepted(changed: dict[str, str]) -> None:
    """`Mcp-Name` is decoded before it is compared; what is not ours is not looked at."""
    assert told(request(), CIMultiDict(READ | changed)) is None


def test_H33_names_of_headers_have_no_case() -> None:
    """Lower-case header names are the same headers."""
    assert told(request(), CIMultiDict({name.lower(): value for name, value in READ.items()})) is None


def test_H33_a_plain_name_needs_no_encoding() -> None:
    """A URI of printable ASCII stands for itself, blanks within included."""
    assert told(request(uri="docs+file:///a b"), CIMultiDict(READ | {"Mcp-Name": "docs+file:///a b"})) is None


@pytest.mark.parametrize(
    "changed",
    [
        pytest.param({"Mcp-Name": NAME.replace("ZG9j", "ZG9")}, id="wrong-base64"),
        pytest.param({"Mcp-Name": NAME.replace("ZG9j", "****")}, id="no-base64"),
        pytest.param({"Mcp-Name": NAME.replace("base64", "BASE64")}, id="upper-case-sentinel"),
        pytest.param({"Mcp-Name": "=?base64?ZG9jcytmaWxlOi8vL3k=?="}, id="another-uri-inside"),
        pytest.param({"Mcp-Name": "docs+file:///y"}, id="another-uri"),
        pytest.param({"Mcp-Name": URI}, id="raw-non-ascii"),
        pytest.param({"Mcp-Name": URI.encode().decode("ascii", "surrogateescape")}, id="raw-bytes"),
        pytest.param({"Mcp-Name": ""}, id="empty-name"),
        pytest.param({"Mcp-Name": None}, id="name-missing"),
        pytest.param({"Mcp-Method": "resources/list"}, id="another-method"),
        pytest.param({"Mcp-Method": "Resources/Read"}, id="method-in-another-case"),
        pytest.param({"Mcp-Method": None}, id="method-missing"),
        pytest.param({"MCP-Protocol-Version": "2025-11-25"}, id="another-version"),
        pytest.param({"MCP-Protocol-Version": None}, id="version-missing"),
    ],
)
def test_H33_headers_that_disagree_are_refused(changed: dict[str, str | None]) -> None:
    """400 and -32020, with the request's id."""
    fields = CIMultiDict({name: value for name, value in (READ | changed).items() if value is not None})
    error = told(request(), fields)
    assert error is not None
    assert (error.code, error.status, error.id) == (Code.HEADER_MISMATCH, 400, b'"r-1"')


def test_H33_a_uri_that_looks_encoded_must_be_encoded() -> None:
    """A header that happens to equal such a URI says something else."""
    uri = "=?base64?eA==?="
    assert told(request(uri=uri), CIMultiDict(READ | {"Mcp-Name": uri})) is not None
    encoded = "=?base64?PT9iYXNlNjQ/ZUE9PT89?="
    assert told(request(uri=uri), CIMultiDict(READ | {"Mcp-Name": encoded})) is None


@pytest.mark.parametrize("version", ["1900-01-01", "2025-11-25", "2027-01-01", "draft", ""])
def test_H34_a_version_we_do_not_speak_is_told_what_we_speak(version: str) -> None:
    """400 and -32022, with `supported` and `requested`."""
    error = told(
        request(meta=META | {VERSION: version}), CIMultiDict(READ | {"MCP-Protocol-Version": version})
    )
    assert error is not None
    assert (error.code, error.status, error.id) == (Code.UNSUPPORTED_VERSION, 400, b'"r-1"')
    assert json.loads(error.data or b"") == {"supported": [MODERN], "requested": version}


@pytest.mark.parametrize(
    "meta",
    [
        pytest.param({VERSION: MODERN}, id="no-capabilities"),
        pytest.param({VERSION: MODERN, CAPABILITIES: None}, id="null-capabilities"),
        pytest.param({VERSION: MODERN, CAPABILITIES: []}, id="capabilities-as-list"),
        pytest.param({CAPABILITIES: {}}, id="no-version"),
        pytest.param({VERSION: 20260728, CAPABILITIES: {}}, id="version-as-number"),
        pytest.param({}, id="empty"),
        pytest.param(None, id="null"),
        pytest.param("x", id="string"),
    ],
)
def test_H34_a_request_without_its_metadata_is_malformed(meta: Any) -> None:
    """400 and -32602; client info is not required."""
    error = told(request(meta=meta), CIMultiDict(READ))
    assert error is not None
    assert (error.code, error.status, error.id) == (Code.INVALID_PARAMS, 400, b'"r-1"')


@pytest.mark.parametrize(
    "method", ["foo/bar", "tools/list", "prompts/get", "initialize", "ping", "", "Resources/read"]
)
def test_H34_an_unknown_method_is_not_found(method: str) -> None:
    """404 and -32601, before its headers are compared."""
    error = told(request(method), CIMultiDict({"MCP-Protocol-Version": MODERN}))
    assert error is not None
    assert (error.code, error.status, error.id) == (Code.METHOD_NOT_FOUND, 404, b'"r-1"')


FAULTS: list[tuple[Code, dict[str, str], dict[str, Any]]] = [
    (Code.HEADER_MISMATCH, {"MCP-Protocol-Version": "2027-01-01"}, {"meta": {VERSION: "1900-01-01"}}),
    (Code.UNSUPPORTED_VERSION, {"MCP-Protocol-Version": "1900-01-01"}, {"meta": {VERSION: "1900-01-01"}}),
    (Code.INVALID_PARAMS, {}, {"meta": {VERSION: MODERN}}),
    (Code.METHOD_NOT_FOUND, {}, {"method": "foo/bar"}),
    (Code.HEADER_MISMATCH, {"Mcp-Method": "x"}, {}),
    (Code.INVALID_PARAMS, {}, {"cursor": 5}),
]


@pytest.mark.parametrize("first", range(len(FAULTS)))
def test_of_several_faults_the_first_in_order_is_told(first: int) -> None:
    """Version mismatch, unsupported version, `_meta`, method, headers, params."""
    fields: dict[str, str] = dict(READ)
    body: dict[str, Any] = {}
    for _, header, member in reversed(FAULTS[first:]):
        fields, body = fields | header, body | member
    error = told(request(**body), CIMultiDict(fields))
    assert error is not None
    assert error.code == FAULTS[first][0]


@pytest.mark.parametrize(
    ("method", "params", "query"),
    [
        ("server/discover", {}, Query(Method.DISCOVER)),
        ("resources/list", {}, Query(Method.LIST)),
        ("resources/list", {"cursor": ""}, Query(Method.LIST, cursor="")),
        ("resources/list", {"cursor": None}, Query(Method.LIST)),
        ("resources/templates/list", {"cursor": "c"}, Query(Method.TEMPLATES, cursor="c")),
        ("resources/read", {"uri": "x"}, Query(Method.READ, "x")),
        ("resources/read", {"uri": ""}, Query(Method.READ, "")),
        ("resources/read", {"uri": "x", "cursor": "c"}, Query(Method.READ, "x")),
        (
            "resources/read",
            {"uri": "x", "inputResponses": {"a": {}}, "requestState": "s"},
            Query(Method.READ, "x", retry=Retry(b'{"a": {}}', b'"s"')),
        ),
    ],
)
def test_a_request_becomes_a_query(method: str, params: dict[str, Any], query: Query) -> None:
    """Only what the method knows of is taken over; `""` stays apart from nothing."""
    assert modern.query(request(method, **params)) == query


@pytest.mark.parametrize(
    ("method", "params"),
    [
        pytest.param("resources/list", {"cursor": 123}, id="H09-number-as-cursor"),
        pytest.param("resources/templates/list", {"cursor": {}}, id="H09-object-as-cursor"),
        pytest.param("resources/read", {"uri": None}, id="null-uri"),
        pytest.param("resources/read", {"uri": 5}, id="number-as-uri"),
        pytest.param("resources/read", {"inputResponses": "x"}, id="H29-responses"),
        pytest.param("resources/read", {"requestState": {}}, id="H29-state"),
    ],
)
def test_params_of_another_type_are_refused(method: str, params: dict[str, Any]) -> None:
    """400 and -32602."""
    error = told(request(method, **params), CIMultiDict(READ | {"Mcp-Method": method}))
    assert error is not None
    assert (error.code, error.status, error.id) == (Code.INVALID_PARAMS, 400, b'"r-1"')


# Answers to clients

ITEM = b'{"uri":"docs+x://1","name":"n","size":9223372036854775808,"_meta":{"a/b":[null,1.10]}}'
TEMPLATE = b'{"uriTemplate":"docs+x://{a}","name":"n"}'
CONTENTS = b'"contents":[{"uri":"docs+x://1","text":"t"}],"x-extra":true'
HINT = Hint(29_500, Scope.PUBLIC)


def unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    assert len(dict(pairs)) == len(pairs)
    return dict(pairs)


def official_result(method: Method, reply: bytes) -> dict[str, Any]:
    """The result of a reply that the official types take for an answer to this method."""
    response = official.jsonrpc_message_adapter.validate_json(reply)
    assert isinstance(response, official.JSONRPCResponse)
    methods.parse_server_result(method.value, MODERN, response.result)
    json.loads(reply, object_pairs_hook=unique)
    return response.result


@pytest.mark.parametrize(
    ("method", "answer", "member"),
    [
        (Method.LIST, Answer(ITEM + b"," + ITEM, HINT, "c", 2, b'"x":1', b'"a/b":null'), "resources"),
        (Method.LIST, Answer(b"", HINT), "resources"),
        (Method.LIST, Answer(ITEM, Hint(0, Scope.PRIVATE), ""), "resources"),
        (Method.TEMPLATES, Answer(TEMPLATE, HINT), "resourceTemplates"),
        (Method.TEMPLATES, Answer(b"", HINT, 'a"b\\é'), "resourceTemplates"),
        (Method.READ, Answer(CONTENTS, HINT, meta=b'"a/b":{"c":null}'), "contents"),
        (Method.READ, Answer(b'"contents":[]', HINT), "contents"),
    ],
)
@pytest.mark.parametrize("id", [b"1", b'"1"', b"9007199254740993"])
def test_H26_an_answer_always_carries_type_and_hints(
    id: bytes,  # noqa: A002 - the protocol's word
    method: Method,
    answer: Answer,
    member: str,
) -> None:
    """Each form of answer validates, with id, type, ttl, scope, cursor and our name in it."""
    reply = modern.encode_answer(id, method, answer)
    assert reply.startswith(b'{"jsonrpc":"2.0","id":' + id + b',"result":{')
    result = official_result(method, reply)
    assert result["resultType"] == "complete"
    assert (result["ttlMs"], result["cacheScope"]) == (answer.hint.ttl_ms, answer.hint.scope.value)
    assert result["_meta"][SERVER] == SOFTWARE
    assert result.get("nextCursor") == answer.next_cursor
    assert ("nextCursor" in result) == (answer.next_cursor is not None)
    assert isinstance(result[member], list)
    for part in (answer.body, answer.extra, answer.meta):
        assert part in reply


def test_H29_an_interim_answer_carries_no_hints() -> None:
    """Requests and state go as they came, typed as what they are."""
    body = b'"inputRequests":{"k":{"method":"roots/list"}},"requestState":"op\\u0061que"'
    reply = modern.encode_answer(b"1", Method.READ, Answer(body, Hint(0, Scope.PRIVATE), interim=True))
    assert body in reply
    result = official_result(Method.READ, reply.replace(b"\\u0061", b"a"))
    assert result["resultType"] == "input_required"
    assert result.keys().isdisjoint({"ttlMs", "cacheScope"})
    assert result["_meta"] == {SERVER: SOFTWARE}


@pytest.mark.parametrize(
    ("meta", "kept"),
    [
        (b"", {}),
        (b'"a/b":1.10', {"a/b": 1.1}),
        (b'"dev.mcp-federator/incomplete":[{"upstream":"inner","reason":"timeout"}],"a/b":1', {"a/b": 1}),
    ],
    ids=["alone", "with-others", "replacing-an-upstreams"],
)
def test_H19_a_partial_list_names_who_is_missing(meta: bytes, kept: dict[str, Any]) -> None:
    """Beside whatever else stands in `_meta`, and once."""
    missing = (Missing("beta", "timeout"), Missing("gamma", "unreachable"))
    answer = Answer(ITEM, Hint(0, Scope.PRIVATE), meta=meta, incomplete=missing)
    result = official_result(Method.LIST, modern.encode_answer(b"1", Method.LIST, answer))
    named = [{"upstream": "beta", "reason": "timeout"}, {"upstream": "gamma", "reason": "unreachable"}]
    assert result["_meta"] == kept | {SERVER: SOFTWARE, INCOMPLETE: named}


@pytest.mark.parametrize("instructions", ["", 'Read "docs+..." first.\n'])
def test_discover_says_what_we_are(instructions: str) -> None:
    """Versions, capabilities, hints and our name; instructions only where there are some."""
    reply = modern.encode_discover(
        b"1", capabilities=b'{"resources":{}}', instructions=instructions, ttl_ms=60_000
    )
    result = official_result(Method.DISCOVER, reply)
    assert result == {
        "resultType": "complete",
        "supportedVersions": [MODERN],
        "capabilities": {"resources": {}},
        "ttlMs": 60_000,
        "cacheScope": "public",
        "_meta": {SERVER: SOFTWARE},
    } | ({"instructions": instructions} if instructions else {})


def test_a_federator_understands_a_federator() -> None:
    """What we say to discover is what we read out of it."""
    reply = modern.encode_discover(b"1", capabilities=b'{"resources":{}}', instructions="", ttl_ms=5)
    result = msgspec.json.decode(reply, type=dict[str, msgspec.Raw])["result"]
    assert decode_discover(result) == Discovered(
        (MODERN,),
        resources=True,
        server_name="mcp-federator",
        server_version=mcp_federator.__version__,
        ttl_ms=5,
    )
