"""Envelopes: what is a message, what is refused and how, and what goes out."""

import json
from contextlib import suppress

import pytest
from hypothesis import given
from hypothesis import strategies as st
from mcp_types import jsonrpc as official

from mcp_federator.errors import McpError
from mcp_federator.protocol.jsonrpc import (
    Meta,
    Request,
    decode_request,
    encode_call,
    error_body,
)
from mcp_federator.protocol.vocabulary import Code

VERSION = b'"io.modelcontextprotocol/protocolVersion":"2026-07-28"'
CAPABILITIES = b'"io.modelcontextprotocol/clientCapabilities":{"sampling":{}}'


def read(id: bytes = b"1", params: bytes = b'"uri":"x"', meta: bytes = VERSION) -> bytes:  # noqa: A002 - the protocol's word
    return b'{"jsonrpc":"2.0","id":%b,"method":"resources/read","params":{%b,"_meta":{%b}}}' % (
        id,
        params,
        meta,
    )


def refusal(body: bytes) -> McpError:
    with pytest.raises(McpError) as caught:
        decode_request(body)
    assert caught.value.status == 400
    return caught.value


# Requests


def test_a_request_is_decoded_as_deep_as_it_is_used() -> None:
    """Id, capabilities and token stay JSON text; uri and version become strings."""
    meta = (
        VERSION
        + b","
        + CAPABILITIES
        + b',"io.modelcontextprotocol/clientInfo":{"name":"c","version":"1"},"progressToken":"p"'
        + b',"traceparent":"tp","tracestate":"ts","baggage":"b"'
    )
    assert decode_request(read(b'"a-1"', meta=meta)) == Request(
        b'"a-1"',
        "resources/read",
        Meta("2026-07-28", b'{"sampling":{}}', "tp", "ts", "b"),
        "x",
    )


def test_a_request_holds_copies() -> None:
    """Nothing keeps the client's whole body alive."""
    request = decode_request(read(params=b'"uri":"x","requestState":"s"', meta=CAPABILITIES))
    assert request.retry is not None
    parts = [request.id, request.meta.capabilities, request.retry.request_state]
    assert [type(part) for part in parts] == [bytes] * 3


@pytest.mark.parametrize(
    "id",
    [
        b"0",
        b'""',
        b'"1"',
        b"1",
        b"-5",
        b"9007199254740993",
        b"9" * 5000,
        b"-" + b"9" * 30,
        b"1.0",
        b"-0",
        b'"a\\"b"',
        b'"\\u0031"',
        '"é"'.encode(),
        b'"null"',
    ],
    ids=lambda value: f"{value.decode():.16}",
)
def test_H23_ids_come_back_as_they_came(id: bytes) -> None:  # noqa: A002 - the protocol's word
    """Value, type and spelling of a string or integer are kept."""
    assert decode_request(read(id)).id == id
    assert decode_request(read(id).replace(b",", b" , ")).id == id


@pytest.mark.parametrize(
    "id", [b"null", b"1.5", b"true", b"false", b"{}", b"[]", b"[1]", b"1e2", b"1.05", b"-0.5"]
)
def test_H23_other_ids_are_refused(id: bytes) -> None:  # noqa: A002 - the protocol's word
    """What is neither string nor integer is an invalid request, and is not given back."""
    error = refusal(read(id))
    assert (error.code, error.id) == (Code.INVALID_REQUEST, None)


def deep(levels: int) -> bytes:
    return read(params=b'"uri":"x","d":' + b'{"a":' * levels + b"1" + b"}" * levels)


@pytest.mark.parametrize(
    ("body", "code"),
    [
        (b"[" * 100_000, Code.PARSE_ERROR),
        (b'{"a":' * 100_000, Code.PARSE_ERROR),
        (b'{"jsonrpc":"2.0","id":' + b"[" * 100_000, Code.PARSE_ERROR),
        (deep(200), Code.PARSE_ERROR),
        (deep(63), Code.PARSE_ERROR),
        (b"\xef\xbb\xbf" + read(), Code.PARSE_ERROR),
        (read().decode().encode("utf-16"), Code.PARSE_ERROR),
        (read().decode().encode("utf-16-le"), Code.PARSE_ERROR),
        (b"", Code.PARSE_ERROR),
        (b" ", Code.PARSE_ERROR),
        (b"\x00", Code.PARSE_ERROR),
        (b"{", Code.PARSE_ERROR),
        (read()[:-1], Code.PARSE_ERROR),
        (read() + b"x", Code.PARSE_ERROR),
        (read() + read(), Code.PARSE_ERROR),
        (read(params=b'"uri":"\xff"'), Code.PARSE_ERROR),
        (read(params=b'"uri":"x","d":"\xff"'), Code.PARSE_ERROR),
        (read(params=b'"uri":"\\ud800"'), Code.PARSE_ERROR),
        (read(params=b'"uri":"x","d":NaN'), Code.PARSE_ERROR),
        (read(params=b'"uri":"x","d":01'), Code.PARSE_ERROR),
        (read(params=b'"uri":"a\nb"'), Code.PARSE_ERROR),
        (b"hello", Code.PARSE_ERROR),
        (b"uri=x&id=1", Code.PARSE_ERROR),
    ],
    ids=lambda value: repr(value[:24]) if isinstance(value, bytes) else value.name,
)
def test_H15_broken_json_is_refused(body: bytes, code: Code) -> None:
    """Deep, cut, in another encoding or no JSON at all: an answer with status 400 and no id."""
    error = refusal(body)
    assert (error.code, error.id) == (code, None)


def test_H15_sixty_two_levels_below_params_pass() -> None:
    """The limit of 64 counts the envelope and the params."""
    assert decode_request(deep(62)).uri == "x"


@pytest.mark.parametrize(
    "body",
    [b"[]", b"[" + read() + b"," + read() + b"]", b"[" + read() + b"]", b'"str"', b"1", b"null", b"true"],
    ids=["empty", "two", "one", "string", "number", "null", "true"],
)
def test_H35_a_batch_is_no_message(body: bytes) -> None:
    """Whatever is no object is an invalid request."""
    error = refusal(body)
    assert (error.code, error.id) == (Code.INVALID_REQUEST, None)


def test_H35_a_notification_has_no_id() -> None:
    """Without an id it is a notification; null is not "no id"."""
    assert decode_request(b'{"jsonrpc":"2.0","method":"notifications/x"}') == Request(None, "notifications/x")
    assert refusal(b'{"jsonrpc":"2.0","method":"notifications/x","id":null}').code == Code.INVALID_REQUEST


@pytest.mark.parametrize(
    ("body", "id"),
    [
        (b"{}", None),
        (b'{"id":7,"method":"m"}', b"7"),
        (b'{"jsonrpc":"1.0","id":7,"method":"m"}', b"7"),
        (b'{"jsonrpc":2.0,"id":"a","method":"m"}', b'"a"'),
        (b'{"jsonrpc":null,"id":7,"method":"m"}', b"7"),
        (b'{"jsonrpc":"2.0","id":7}', b"7"),
        (b'{"jsonrpc":"2.0","id":7,"method":5}', b"7"),
        (b'{"jsonrpc":"2.0","id":7,"method":null}', b"7"),
        (b'{"jsonrpc":"2.0","id":7,"method":"m","params":[]}', b"7"),
        (b'{"jsonrpc":"2.0","id":7,"method":"m","params":null}', b"7"),
        (b'{"jsonrpc":"2.0","id":7,"method":"m","params":"p"}', b"7"),
        (b'{"jsonrpc":"2.0","id":1.5,"method":5}', None),
        (b'{"jsonrpc":"2.0","id":7,"result":{}}', b"7"),
    ],
)
def test_an_envelope_of_another_shape_is_refused(body: bytes, id: bytes | None) -> None:  # noqa: A002 - MCP's word
    """An invalid request gets its id back where it has a proper one."""
    error = refusal(body)
    assert (error.code, error.id) == (Code.INVALID_REQUEST, id)


@pytest.mark.parametrize(
    ("body", "id"),
    [
        (b'{"jsonrpc":"2.0","id":1,"id":2,"method":"m"}', b"2"),
        (b'{"jsonrpc":"2.0","id":1,"method":5,"method":6}', None),
        (b'{"jsonrpc":"2.0","id":1,"method":"a","method":"m"}', b"1"),
        (b'{"jsonrpc":"2.0","id":1,"method":"a","meth\\u006fd":"m"}', b"1"),
        (b'{"jsonrpc":"2.0","id":1,"method":"m","params":{},"params":{}}', b"1"),
        (b'{"jsonrpc":"2.0","id":1,"method":"m","x":1,"x":1}', b"1"),
        (read(params=b'"uri":"x","uri":"y"'), b"1"),
        (read(params=b'"uri":"x","u\\u0072i":"y"'), b"1"),
        (read(params=b'"uri":"x","_meta":{}'), b"1"),
        (read(params=b'"uri":"x","k":1,"k":2'), b"1"),
        (read(params=b'"uri":"x","":1,"":2'), b"1"),
        (read(meta=VERSION + b"," + VERSION), b"1"),
        (read(meta=VERSION + b',"a":1,"\\u0061":2'), b"1"),
        (read(meta=VERSION + b',"traceparent":"a","traceparent":"b"'), b"1"),
    ],
)
def test_equal_names_are_refused(body: bytes, id: bytes | None) -> None:  # noqa: A002 - MCP's word
    """Two members of one name in envelope, params or `_meta`: readers would disagree which one counts."""
    for spelling in (body, body.replace(b",", b" ,\n ")):
        error = refusal(spelling)
        assert error.code == Code.INVALID_REQUEST
        assert "same name" in error.message
        assert error.id == id


def test_equal_names_elsewhere_are_not_our_affair() -> None:
    """What we do not read may be as it likes."""
    assert decode_request(read(params=b'"uri":"x","d":{"a":1,"a":2}')).uri == "x"


@pytest.mark.parametrize(
    ("params", "cursor", "fault"),
    [
        (b'"cursor":""', "", False),
        (b'"cursor":"x"', "x", False),
        (b'"cursor":null', None, False),
        (b'"cursor":123', None, True),
        (b'"cursor":["x"]', None, True),
        (b'"cursor":true', None, True),
        (b'"a":1', None, False),
    ],
)
def test_H06_empty_string_is_a_cursor(params: bytes, cursor: str | None, fault: bool) -> None:
    """Null is no cursor, `""` is one, anything but a string is a fault that is told later."""
    request = decode_request(read(params=params))
    assert (request.cursor, bool(request.fault)) == (cursor, fault)


@pytest.mark.parametrize(
    ("params", "responses", "state", "fault"),
    [
        (b'"inputResponses":{"a":{"n":1.10}}', b'{"a":{"n":1.10}}', None, False),
        (b'"requestState":"op\\u0061que"', None, b'"op\\u0061que"', False),
        (b'"inputResponses":{ },"requestState":""', b"{ }", b'""', False),
        (b'"inputResponses":[],"requestState":"s"', b"[]", b'"s"', True),
        (b'"requestState":5', None, b"5", True),
        (b'"requestState":5,"cursor":5', None, b"5", True),
    ],
)
def test_H29_a_retry_is_kept_byte_for_byte(
    params: bytes, responses: bytes | None, state: bytes | None, fault: bool
) -> None:
    """Answers and state go back to the upstream as the client spelt them."""
    request = decode_request(read(params=b'"uri":"x",' + params))
    assert request.retry is not None
    assert (request.retry.input_responses, request.retry.request_state) == (responses, state)
    assert bool(request.fault) == fault


def test_H29_null_is_no_retry() -> None:
    """Members that are null count as absent."""
    request = decode_request(read(params=b'"uri":"x","inputResponses":null,"requestState":null'))
    assert (request.retry, request.fault) == (None, "")


@pytest.mark.parametrize("uri", [b"5", b"null", b"{}", b"true"])
def test_a_uri_of_another_type_is_no_uri(uri: bytes) -> None:
    """The dialect tells the client, at its turn."""
    request = decode_request(read(params=b'"uri":' + uri))
    assert (request.uri, request.fault) == (None, "")


@pytest.mark.parametrize(
    "uri", ["file:///a b.txt", "file:///café/x", 'a"b\\c', "x://\U0001f600", "", "http://Ex.com?#"]
)
def test_H01_uris_are_taken_as_they_are(uri: str) -> None:
    """In whatever spelling JSON has for it, the string is the string."""
    for ascii_only in (True, False):
        text = json.dumps(uri, ensure_ascii=ascii_only).encode()
        assert decode_request(read(params=b'"uri":' + text)).uri == uri


@pytest.mark.parametrize("meta", [b"null", b"5", b"[]", b'"x"'])
def test_a_meta_that_is_no_object_says_nothing(meta: bytes) -> None:
    """The dialect misses the version in it."""
    body = b'{"jsonrpc":"2.0","id":1,"method":"m","params":{"_meta":' + meta + b"}}"
    assert decode_request(body).meta == Meta()


@given(
    st.binary(max_size=60)
    | st.lists(st.sampled_from(list(read()) + list(b'[]{}"\\,:')), max_size=200).map(bytes)
)
def test_whatever_comes_is_a_request_or_an_error_for_the_client(body: bytes) -> None:
    """Nothing but McpError leaves the decoder."""
    try:
        decode_request(body)
    except McpError as error:
        json.loads(error_body(error))


@given(
    st.integers(0, len(read())),
    st.integers(0, len(read())),
    st.sampled_from([b"", b'"', b"\\", b"{", b"]", b"\xff"]),
)
def test_damaged_requests_are_requests_or_errors(start: int, end: int, patch: bytes) -> None:
    """A cut or an insertion anywhere is an McpError, or harmless."""
    body = read(
        b'"\\u0041"', params=b'"uri":"x","cursor":null,"d":[{"a":"]"}]', meta=VERSION + b"," + CAPABILITIES
    )
    with suppress(McpError):
        decode_request(body[:start] + patch + body[end:])


# Errors and calls


@pytest.mark.parametrize("id", [b"7", b'"a\\u0041"', b"9007199254740993"])
def test_error_bodies_are_official_errors(id: bytes) -> None:  # noqa: A002 - the protocol's word
    """An error body validates with mcp-types and carries the id it was given."""
    body = error_body(McpError(-32602, 'No "such"\nthing é', data=b'{"uri":"x"}'), id)
    assert body.startswith(b'{"jsonrpc":"2.0","id":' + id + b",")
    error = official.jsonrpc_message_adapter.validate_json(body)
    assert isinstance(error, official.JSONRPCError)
    assert (error.error.code, error.error.message) == (-32602, 'No "such"\nthing é')
    assert error.error.data == {"uri": "x"}
    assert error.id == json.loads(id)


def test_an_error_without_id_has_no_id_member() -> None:
    """Neither null nor invented (basic/index, "Error Responses")."""
    assert error_body(McpError(-32700, "no")) == b'{"jsonrpc":"2.0","error":{"code":-32700,"message":"no"}}'


def test_an_error_knows_the_id_it_was_made_with() -> None:
    """The caller's id goes first, the error's own is next."""
    error = McpError(-32600, "no", id=b"7")
    assert b'"id":7,' in error_body(error)
    assert b'"id":8,' in error_body(error, b"8")


def test_half_characters_in_a_message_do_not_break_the_error() -> None:
    """Header fields may hold bytes that are no UTF-8; a message that quotes them is still sent."""
    assert json.loads(error_body(McpError(-32600, "got \udcff")))["error"]["message"] == "got ?"


def test_a_call_is_an_official_request() -> None:
    """Our id, the method, and params as they were given."""
    call = encode_call(77, "resources/read", b'{"uri":"x","n":1.10}')
    assert call == b'{"jsonrpc":"2.0","id":77,"method":"resources/read","params":{"uri":"x","n":1.10}}'
    assert isinstance(official.jsonrpc_message_adapter.validate_json(call), official.JSONRPCRequest)
