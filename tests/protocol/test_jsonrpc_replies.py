"""Envelopes of upstreams: what answers our call, what is passed over, what is refused."""

import json
from contextlib import suppress
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from mcp_federator.protocol.jsonrpc import MAX_CODE, Reply, decode_message, decode_reply


def reply(result: bytes = b"{}", id: bytes = b"7") -> bytes:  # noqa: A002 - the protocol's word
    return b'{"jsonrpc":"2.0","id":' + id + b',"result":' + result + b"}"


def told(reply: Reply | None) -> Any:
    assert reply is not None
    if reply.error is None:
        assert reply.result is not None
        return bytes(reply.result)
    return reply.error.code, reply.error.message, reply.error.data and bytes(reply.error.data)


@pytest.mark.parametrize(
    ("body", "expected"),
    [
        (reply(b'{"n":9007199254740993,"f":1.10}'), b'{"n":9007199254740993,"f":1.10}'),
        (reply(b"[1]"), b"[1]"),
        (b' {"result" : {"a" : 1} , "id" : 7 , "jsonrpc" : "2.0"}\n', b'{"a" : 1}'),
        (b'{"jsonrpc":"2.0","id":7,"result":{},"error":null,"x":1}', b"{}"),
        (
            b'{"jsonrpc":"2.0","id":7,"error":{"code":-32002,"message":"m","data":{"uri":"x"}}}',
            (-32002, "m", b'{"uri":"x"}'),
        ),
        (b'{"jsonrpc":"2.0","id":7,"error":{"code":7001,"message":"m","data":null}}', (7001, "m", None)),
        (
            b'{"jsonrpc":"2.0","id":7,"error":{"code":7001,"message":"m","x":1},"result":null}',
            (7001, "m", None),
        ),
        (b'{"jsonrpc":"2.0","id":null,"error":{"code":-32600,"message":"m"}}', (-32600, "m", None)),
        (b'{"jsonrpc":"2.0","error":{"code":-32022,"message":"m"}}', (-32022, "m", None)),
    ],
)
def test_a_response_is_a_result_or_an_error(body: bytes, expected: Any) -> None:
    """The result comes byte for byte; null members count as absent; only an error may lack our id."""
    assert told(decode_reply(body, 7)) == expected
    assert told(decode_message(body, 7)) == expected


@pytest.mark.parametrize(
    "body",
    [
        pytest.param(reply(id=b"999"), id="H23-another-id"),
        pytest.param(reply(id=b'"7"'), id="H23-id-as-string"),
        pytest.param(reply(id=b"7.5"), id="H23-fraction"),
        pytest.param(reply(id=b"null"), id="H23-null-id"),
        pytest.param(b'{"jsonrpc":"2.0","result":{}}', id="H23-no-id"),
        pytest.param(
            b'{"jsonrpc":"2.0","id":"server-error","error":{"code":1,"message":""}}', id="H23-made-up-id"
        ),
        pytest.param(b'{"jsonrpc":"2.0","id":8,"error":{"code":1,"message":""}}', id="H23-error-for-another"),
        pytest.param(reply(b"null"), id="result-null"),
        pytest.param(b'{"jsonrpc":"2.0","id":7}', id="neither"),
        pytest.param(b'{"jsonrpc":"2.0","id":7,"result":{},"error":{"code":1,"message":""}}', id="both"),
        pytest.param(b'{"id":7,"result":{}}', id="no-jsonrpc"),
        pytest.param(b'{"jsonrpc":"1.0","id":7,"result":{}}', id="old-jsonrpc"),
        pytest.param(b'{"jsonrpc":"2.0","id":8,"id":7,"result":{}}', id="two-ids"),
        pytest.param(b'{"jsonrpc":"2.0","id":7,"result":{"a":1},"result":{}}', id="two-results"),
        pytest.param(
            b'{"jsonrpc":"2.0","id":7,"result":{"a":1},"r\\u0065sult":{}}', id="two-results-escaped"
        ),
        pytest.param(b'{"jsonrpc":"2.0","id":7,"error":{"code":1,"code":2,"message":""}}', id="two-codes"),
        pytest.param(b'{"jsonrpc":"2.0","id":7,"error":{"code":1.5,"message":""}}', id="float-code"),
        pytest.param(b'{"jsonrpc":"2.0","id":7,"error":{"code":true,"message":""}}', id="true-code"),
        pytest.param(b'{"jsonrpc":"2.0","id":7,"error":{"code":"1","message":""}}', id="string-code"),
        pytest.param(
            b'{"jsonrpc":"2.0","id":7,"error":{"code":%d,"message":""}}' % (MAX_CODE + 1), id="huge-code"
        ),
        pytest.param(b'{"jsonrpc":"2.0","id":7,"error":{"code":1}}', id="no-message"),
        pytest.param(b'{"jsonrpc":"2.0","id":7,"error":{"message":""}}', id="no-code"),
        pytest.param(b'{"jsonrpc":"2.0","id":7,"error":"failed"}', id="error-string"),
        pytest.param(b"[" + reply() + b"]", id="H35-batch"),
        pytest.param(b"<html></html>", id="html"),
        pytest.param(b"null", id="null"),
        pytest.param(b"\xef\xbb\xbf" + reply(), id="H15-bom"),
        pytest.param(reply(b'{"a":NaN}'), id="H14-nan"),
        pytest.param(reply(b'{"a":Infinity}'), id="H14-infinity"),
        pytest.param(reply(b'{"a":1E400}'), id="H14-1E400"),
        pytest.param(reply(b'{"a":' + b"9" * 5000 + b"}"), id="H14-5000-digits"),
        pytest.param(reply(b'{"a":"\xff"}'), id="one-bad-byte"),
        pytest.param(reply(b'{"a":"\\ud800"}'), id="half-character"),
        pytest.param(reply(b'{"a":"\x01"}'), id="control-character"),
        pytest.param(reply(b"[" * 64 + b"]" * 64), id="deep"),
        pytest.param(reply() + reply(), id="two"),
        pytest.param(reply()[:-1], id="cut"),
    ],
)
def test_what_is_no_response_to_our_call_is_refused(body: bytes) -> None:
    """One kind of exception for all of it, and no crash."""
    with pytest.raises(ValueError, match=r"."):
        decode_reply(body, 7)
    with pytest.raises(ValueError, match=r"."):
        decode_message(body, 7)


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b'{"jsonrpc":"2.0","method":"notifications/progress","params":{"progressToken":1,"progress":0.5}}',
        b'{"jsonrpc":"2.0","method":"notifications/message","params":{"level":"info","data":"x"}}',
        b'{"jsonrpc":"2.0","id":7,"method":"ping"}',
        b'{"jsonrpc":"2.0","id":"s","method":"roots/list","params":{}}',
    ],
    ids=["H16-priming-event", "progress", "log", "H23-server-request-with-our-id", "server-request"],
)
def test_what_else_a_stream_carries_is_passed_over(body: bytes) -> None:
    """Events without data, notifications and the server's requests are no response."""
    assert decode_message(body, 7) is None
    with pytest.raises(ValueError, match="no response"):
        decode_reply(body, 7)


@pytest.mark.parametrize("character", ["a", "é", "\U0001f600"])
def test_error_messages_are_cut_at_one_kibibyte(character: str) -> None:
    """Between characters, never within one."""
    error = json.dumps({"code": 1, "message": character * 2000}, ensure_ascii=False).encode()
    found = decode_reply(b'{"jsonrpc":"2.0","id":7,"error":' + error + b"}", 7).error
    assert found is not None
    assert 1021 <= len(found.message.encode()) <= 1024
    assert set(found.message) == {character}


@given(
    st.binary(max_size=40) | st.lists(st.sampled_from(list(reply(b'{"a":["\\n"]}'))), max_size=80).map(bytes)
)
def test_whatever_an_upstream_sends_is_a_message_or_a_value_error(body: bytes) -> None:
    """Nothing but ValueError leaves the decoder."""
    with suppress(ValueError):
        decode_message(body, 7)


@given(st.dictionaries(st.text(), st.none() | st.integers() | st.text(), max_size=3), st.booleans())
def test_results_are_carried_byte_for_byte(result: dict[str, Any], compact: bool) -> None:
    """Spelling, order and blanks of a result are kept."""
    text = msgspec.json.encode(result) if compact else json.dumps(result, indent=1).encode()
    assert told(decode_reply(reply(text), 7)) == text
