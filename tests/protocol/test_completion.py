"""`completion/complete` in both dialects, held against the official types."""

import json
from typing import Any

import pytest
from mcp_types.methods import validate_client_request, validate_server_result
from multidict import CIMultiDict

from mcp_federator.errors import McpError
from mcp_federator.model import Answer, Completion, Hint, Method, Query, Scope
from mcp_federator.protocol import legacy, modern
from mcp_federator.protocol.jsonrpc import Request, decode_request
from mcp_federator.protocol.vocabulary import LEGACY, META_CAPABILITIES, META_VERSION, MODERN

COMPLETE = "completion/complete"
META = {META_VERSION: MODERN, META_CAPABILITIES: {}}
REF = {"type": "ref/resource", "uri": "docs+file:///{path}"}
ARGUMENT = {"name": "path", "value": "a"}
PARAMS = {"ref": REF, "argument": ARGUMENT}
FIELDS = CIMultiDict({"MCP-Protocol-Version": MODERN, "Mcp-Method": COMPLETE})
BOTH = pytest.mark.parametrize("dialect", [modern, legacy], ids=["modern", "legacy"])


def request(params: Any, more: str = "") -> Request:
    text = json.dumps(params | {"_meta": META}) if isinstance(params, dict) else params
    return decode_request(f'{{"jsonrpc":"2.0","id":1,"method":"{COMPLETE}","params":{text}{more}}}'.encode())


@BOTH
def test_argument_and_context_are_taken_byte_for_byte(dialect: Any) -> None:
    """Numbers, escapes, blanks and members that nobody knows stay as they are; the reference is read."""
    argument = '{ "name":"p\\u0061th", "value":"", "x":1.10 }'
    context = '{"arguments":{"a":"\\u0062"},"n":1E2}'
    text = f'{{"context":{context},"argument":{argument},"ref":{json.dumps(REF | {"x": 1})}}}'
    assert dialect.query(request(text)) == Query(
        Method.COMPLETE, REF["uri"], completion=Completion(argument.encode(), context.encode())
    )


@BOTH
@pytest.mark.parametrize("context", [None, {}, {"arguments": {}}, {"arguments": None}, {"other": 1}])
def test_a_context_may_be_empty(dialect: Any, context: Any) -> None:
    """Null counts as absent."""
    completion = dialect.query(request(PARAMS | {"context": context})).completion
    assert completion.context == (None if context is None else json.dumps(context).encode())


@BOTH
def test_a_prompt_is_no_uri(dialect: Any) -> None:
    """What refers to a prompt is well-formed; that there are none is said elsewhere."""
    query = dialect.query(request({"ref": {"type": "ref/prompt", "name": "p"}, "argument": ARGUMENT}))
    assert (query.method, query.uri) == (Method.COMPLETE, None)


MALFORMED: list[tuple[Any, str]] = [
    ({}, "params.ref must be an object"),
    ({"argument": ARGUMENT}, "params.ref must be an object"),
    (PARAMS | {"ref": None}, "params.ref must be an object"),
    (PARAMS | {"ref": "docs+x"}, "params.ref must be an object"),
    (PARAMS | {"ref": [REF]}, "params.ref must be an object"),
    (PARAMS | {"ref": {"uri": "x"}}, "params.ref.type must be a string"),
    (PARAMS | {"ref": REF | {"type": 1}}, "params.ref.type must be a string"),
    (PARAMS | {"ref": REF | {"type": "ref/tool"}}, "params.ref.type must be ref/resource or ref/prompt"),
    (PARAMS | {"ref": {"type": "ref/resource"}}, "params.ref.uri must be a string"),
    (PARAMS | {"ref": REF | {"uri": None}}, "params.ref.uri must be a string"),
    (PARAMS | {"ref": REF | {"uri": 5}}, "params.ref.uri must be a string"),
    (PARAMS | {"ref": {"type": "ref/prompt", "uri": "x"}}, "params.ref.name must be a string"),
    ({"ref": REF}, "params.argument must be an object"),
    (PARAMS | {"argument": "path"}, "params.argument must be an object"),
    (PARAMS | {"argument": {"value": "a"}}, "params.argument.name must be a string"),
    (PARAMS | {"argument": {"name": "a"}}, "params.argument.value must be a string"),
    (PARAMS | {"argument": {"name": 1, "value": "a"}}, "params.argument.name must be a string"),
    (PARAMS | {"argument": {"name": "a", "value": None}}, "params.argument.value must be a string"),
    (PARAMS | {"context": "x"}, "params.context must be an object"),
    (PARAMS | {"context": {"arguments": ["a"]}}, "params.context.arguments must be an object"),
    (PARAMS | {"context": {"arguments": {"a": 1}}}, "params.context.arguments must have strings as values"),
    (
        '{"ref":{"type":"ref/resource","uri":"a","uri":"b"},"argument":{"name":"a","value":""}}',
        "params.ref: two members of one object have the same name",
    ),
    (
        '{"ref":{"type":"ref/resource","uri":"a"},"argument":{"name":"a","name":"b","value":""}}',
        "params.argument: two members of one object have the same name",
    ),
]


@BOTH
@pytest.mark.parametrize(("params", "fault"), MALFORMED)
def test_params_of_another_shape_are_refused(dialect: Any, params: Any, fault: str) -> None:
    """-32602, with the member and what it must be."""
    with pytest.raises(McpError) as caught:
        dialect.query(request(params))
    assert (caught.value.code, caught.value.message) == (-32602, f"Invalid params: {fault}")
    assert caught.value.status == (400 if dialect is modern else 200)


def test_without_params_there_is_no_reference() -> None:
    """The same refusal where there are no params at all."""
    with pytest.raises(McpError, match=r"params\.ref must be an object"):
        legacy.query(decode_request(f'{{"jsonrpc":"2.0","id":1,"method":"{COMPLETE}"}}'.encode()))


def test_H33_a_completion_has_no_name() -> None:
    """`Mcp-Method` is compared; `Mcp-Name` belongs to other methods and is not looked at."""
    modern.check(request(PARAMS), FIELDS)
    modern.check(request(PARAMS), CIMultiDict({**FIELDS, "Mcp-Name": "anything"}))
    with pytest.raises(McpError, match="Mcp-Method"):
        modern.check(request(PARAMS), CIMultiDict({**FIELDS, "Mcp-Method": "resources/read"}))


QUERY = Query(
    Method.COMPLETE,
    "file:///Ząb/{path}",
    completion=Completion(b'{"name":"p","value":"\\u0061","n":1.10}', b'{"arguments":{"q":"z"}}'),
)


def test_a_call_to_a_modern_upstream_is_as_the_schema_says() -> None:
    """The reference is native, all else as it came; no `Mcp-Name` goes along."""
    params = modern.call_params(QUERY, b"{}", None)
    validate_client_request(COMPLETE, MODERN, json.loads(params))
    assert params.startswith(
        '{"ref":{"type":"ref/resource","uri":"file:///Ząb/{path}"},'
        '"argument":{"name":"p","value":"\\u0061","n":1.10},"context":{"arguments":{"q":"z"}},"_meta":'.encode()
    )
    headers = modern.call_headers(QUERY, None)
    assert headers["Mcp-Method"] == COMPLETE
    assert "Mcp-Name" not in headers


@pytest.mark.parametrize("version", LEGACY)
def test_a_call_to_a_legacy_upstream_is_as_the_schema_says(version: str) -> None:
    """The same members, and no `_meta`."""
    params = json.loads(legacy.call_params(QUERY))
    validate_client_request(COMPLETE, version, params)
    assert list(params) == ["ref", "argument", "context"]


ANSWER = Answer(
    b'"completion":{"values":["a","\\u0062"],"total":2,"hasMore":false,"n":1.10},"x":{}',
    Hint(60_000, Scope.PUBLIC),
    meta=b'"k":1',
)


def test_a_modern_answer_has_a_type_and_no_hints() -> None:
    """It is no cacheable result; what the upstream said stays byte for byte."""
    reply = modern.encode_answer(b"1", Method.COMPLETE, ANSWER)
    assert ANSWER.body in reply
    result = json.loads(reply)["result"]
    validate_server_result(COMPLETE, MODERN, result)
    assert result.keys() == {"resultType", "_meta", "completion", "x"}
    assert result["resultType"] == "complete"
    assert result["_meta"]["k"] == 1


@pytest.mark.parametrize("version", LEGACY)
def test_a_legacy_answer_has_neither(version: str) -> None:
    """As the schema of each revision has it."""
    result = json.loads(legacy.encode_answer(b"1", Method.COMPLETE, ANSWER))["result"]
    validate_server_result(COMPLETE, version, result)
    assert result.keys() == {"_meta", "completion", "x"}
