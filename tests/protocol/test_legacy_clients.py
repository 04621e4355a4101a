"""The legacy dialect toward clients: what they ask, and what they are given."""

import json
from typing import Any

import pytest
from mcp_types.methods import validate_server_result

from mcp_federator.errors import McpError, UpstreamError
from mcp_federator.model import Answer, Hint, Method, Missing, Query, Scope, Served
from mcp_federator.protocol import legacy
from mcp_federator.protocol.jsonrpc import decode_request
from mcp_federator.protocol.vocabulary import LEGACY

HINT = Hint(1000, Scope.PUBLIC)


def body(method: str, params: Any = None) -> bytes:
    return json.dumps({"jsonrpc": "2.0", "id": 1, "method": method, "params": params or {}}).encode()


def member(reply: bytes, name: str = "result") -> Any:
    message = json.loads(reply)
    assert message["jsonrpc"] == "2.0"
    assert message["id"] == "a"
    return message[name]


@pytest.mark.parametrize(
    ("params", "version"),
    [
        *(({"protocolVersion": version}, version) for version in LEGACY),
        ({"protocolVersion": "2024-11-05"}, LEGACY[0]),
        ({"protocolVersion": "2026-07-28"}, LEGACY[0]),
        ({"protocolVersion": ""}, LEGACY[0]),
        ({"protocolVersion": None}, None),
        ({}, None),
    ],
    ids=str,
)
def test_the_version_agreed_on(params: Any, version: str | None) -> None:
    """The one asked for, else our newest; None where none is asked for."""
    assert legacy.agreed_version(body("initialize", params)) == version


@pytest.mark.parametrize("version", LEGACY)
@pytest.mark.parametrize("instructions", ["", 'Say "please".'])
def test_the_result_of_initialize_is_as_the_schema_says(version: str, instructions: str) -> None:
    """Empty instructions are left out."""
    result = member(
        legacy.encode_initialize_result(
            b'"a"', version=version, capabilities=b'{"resources":{}}', instructions=instructions
        )
    )
    validate_server_result("initialize", version, result)
    assert result["protocolVersion"] == version
    assert result.get("instructions", "") == instructions


def test_a_pong_is_empty() -> None:
    """An empty result with the id."""
    assert member(legacy.encode_empty(b'"a"')) == {}


@pytest.mark.parametrize(
    ("method", "params", "query"),
    [
        ("resources/list", {}, Query(Method.LIST)),
        ("resources/list", {"cursor": None}, Query(Method.LIST)),
        ("resources/list", {"cursor": ""}, Query(Method.LIST, cursor="")),
        ("resources/templates/list", {"cursor": "c"}, Query(Method.TEMPLATES, cursor="c")),
        ("resources/read", {"uri": "x", "cursor": "c"}, Query(Method.READ, uri="x")),
        ("resources/read", {"uri": "x", "inputResponses": {}}, Query(Method.READ, uri="x")),
    ],
)
def test_what_is_asked(method: str, params: Any, query: Query) -> None:
    """What later revisions added to the params says nothing here."""
    assert legacy.query(decode_request(body(method, params))) == query


@pytest.mark.parametrize(
    ("method", "params", "code"),
    [
        ("server/discover", {}, -32601),
        ("resources/subscribe", {"uri": "x"}, -32601),
        ("resources/read", {}, -32602),
        ("resources/read", {"uri": None}, -32602),
        ("resources/list", {"cursor": 7}, -32602),
    ],
)
def test_what_cannot_be_asked(method: str, params: Any, code: int) -> None:
    """Other methods, and params of another type."""
    with pytest.raises(McpError) as caught:
        legacy.query(decode_request(body(method, params)))
    assert (caught.value.code, caught.value.status) == (code, 200)


@pytest.mark.parametrize("version", LEGACY)
@pytest.mark.parametrize(
    ("method", "answer", "result"),
    [
        (
            Method.LIST,
            Answer(b'{"uri":"u","name":"n"}', HINT, next_cursor='"', extra=b'"x":1e2'),
            {"resources": [{"uri": "u", "name": "n"}], "nextCursor": '"', "x": 100.0},
        ),
        (Method.LIST, Answer(b"", HINT, next_cursor=""), {"resources": [], "nextCursor": ""}),
        (
            Method.TEMPLATES,
            Answer(b"", HINT, meta=b'"k":1', incomplete=(Missing("b", "timeout"),)),
            {
                "_meta": {"k": 1, "dev.mcp-federator/incomplete": [{"upstream": "b", "reason": "timeout"}]},
                "resourceTemplates": [],
            },
        ),
        (
            Method.READ,
            Answer(b'"contents":[{"uri":"u","text":"t"}],"x":{}', HINT, meta=b'"k":1'),
            {"_meta": {"k": 1}, "contents": [{"uri": "u", "text": "t"}], "x": {}},
        ),
    ],
    ids=["page", "empty page", "gaps", "read"],
)
def test_an_answer_has_no_hints(version: str, method: Method, answer: Answer, result: Any) -> None:
    """All else goes out as it does to later clients, and as the schema of each revision has it."""
    reply = member(legacy.encode_answer(b'"a"', method, answer))
    assert reply == result
    validate_server_result(method.value, version, reply)


READ = decode_request(body("resources/read", {"uri": "u"}))
LIST = decode_request(body("resources/list"))


@pytest.mark.parametrize(
    ("error", "request_", "code", "data"),
    [
        (McpError(-32602, "m", data=b'{"uri":"u"}'), READ, -32002, {"uri": "u"}),
        (McpError(-32602, "m"), LIST, -32602, None),
        (McpError(-32602, "m"), decode_request(body("resources/read")), -32602, None),
        (McpError(-32603, "m", data=b"1"), READ, -32603, 1),
        (McpError(7001, "m", data=b"1"), READ, 7001, 1),
        (
            UpstreamError("docs", -32021, "m"),
            READ,
            -32603,
            {"upstream": "docs", "reason": "refused", "code": -32021},
        ),
        (McpError(-32020, "m"), READ, -32603, {"reason": "refused", "code": -32020}),
        (McpError(-32022, "m"), LIST, -32603, {"reason": "refused", "code": -32022}),
    ],
)
def test_H22_an_error_in_the_codes_of_these_revisions(
    error: McpError, request_: Any, code: int, data: Any
) -> None:
    """Not found has its own code, what later revisions defined has none."""
    told = legacy.told(error, request_)
    assert (told.code, told.message) == (code, "m")
    assert (told.data and json.loads(told.data)) == data


def test_an_interim_answer_names_the_upstream() -> None:
    """Where it is known which one it is."""
    for upstreams, data in ((("docs",), {"upstream": "docs"}), ((), {})):
        error = legacy.requires_input(Answer(b"", HINT, interim=True, served=Served(upstreams=upstreams)))
        assert error.code == -32603
        assert json.loads(error.data or b"") == {**data, "reason": "input_required"}


@pytest.mark.parametrize(
    ("params", "id_"),
    [
        ({"requestId": 1}, 1),
        ({"requestId": "1"}, "1"),
        ({"requestId": 2**70}, 2**70),
        ({"requestId": True}, None),
        ({"requestId": None}, None),
        ({}, None),
    ],
    ids=str,
)
def test_H38_which_request_is_called_off(params: Any, id_: Any) -> None:
    """With its type; malformed notifications are passed over."""
    assert legacy.cancelled_id(body("notifications/cancelled", params)) == id_


@pytest.mark.parametrize(
    ("text", "is_one"),
    [
        (b'{"jsonrpc":"2.0","id":1,"result":{}}', True),
        (b'{"jsonrpc":"2.0","id":1,"error":{"code":1}}', True),
        (b'{"jsonrpc":"2.0","id":1,"result":{},"error":{}}', False),
        (b'{"jsonrpc":"2.0","id":1,"result":{},"result":{}}', False),
        (b'{"jsonrpc":"2.0","id":1,"method":"x","result":{}}', False),
        (b'{"jsonrpc":"2.0","id":1}', False),
        (b"[]", False),
        (b"1", False),
        (b"{", False),
    ],
)
def test_what_is_a_response(text: bytes, is_one: bool) -> None:
    """Either a result or an error, and no method."""
    assert legacy.is_response(text) is is_one
