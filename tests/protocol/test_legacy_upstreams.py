import json
from typing import Any

import mcp_types
import msgspec
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from mcp_federator.model import Change, Event, Method, Query, Retry, Scope, Trace
from mcp_federator.protocol.legacy import (
    INITIALIZED,
    SPOKEN,
    answer_request,
    call_headers,
    call_params,
    cancelled,
    change_of,
    decode_initialize,
    decode_result,
    encode_initialize,
    listen_headers,
    messages,
    session_id,
)
from mcp_federator.protocol.modern import Discovered

TRACE = Trace("00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01", "a=b", "k=v")


def initialized(**members: Any) -> bytes:
    return json.dumps(
        {
            "protocolVersion": "2025-06-18",
            "capabilities": {"resources": {"listChanged": True, "subscribe": True}, "completions": {}},
            "serverInfo": {"name": "s", "version": "1"},
        }
        | members
    ).encode()


# --- what is sent ---


def test_initialize_is_what_the_schema_says() -> None:
    """It proposes the newest legacy revision, and names us."""
    params = json.loads(encode_initialize(b"{}"))
    parsed = mcp_types.InitializeRequestParams.model_validate(params)
    assert parsed.protocol_version == SPOKEN[0] == "2025-11-25"
    assert parsed.client_info.name == "mcp-federator"
    assert params["capabilities"] == {}


def test_initialize_promises_no_answers() -> None:
    """What would let the server ask us is left out; anything else goes along as it was written."""
    asked = (
        b'{"roots":{},"sampling":{},"elicitation":{"form":{}},"tasks":{},"extensions":{"a.b/c":{"n":1.10}}}'
    )
    assert b'"capabilities":{"extensions":{"a.b/c":{"n":1.10}}}' in encode_initialize(asked)


@pytest.mark.parametrize(
    ("query", "params"),
    [
        pytest.param(Query(Method.READ, uri='x://"é'), {"uri": 'x://"é'}, id="read"),
        pytest.param(Query(Method.LIST), {}, id="first-page"),
        pytest.param(Query(Method.LIST, cursor=""), {"cursor": ""}, id="empty-cursor"),
        pytest.param(
            Query(Method.READ, uri="x://1", retry=Retry(b"{}", b'"s"'), alone=True),
            {"uri": "x://1"},
            id="retry",
        ),
    ],
)
def test_params_are_what_was_asked_and_no_more(query: Query, params: dict[str, Any]) -> None:
    """No `_meta`, and nothing that these revisions do not have."""
    assert json.loads(call_params(query)) == params


@given(st.text(), st.none() | st.text())
def test_params_hold_any_text(uri: str, cursor: str | None) -> None:
    """Whatever a URI or a cursor is, it arrives."""
    params = json.loads(call_params(Query(Method.READ, uri=uri, cursor=cursor)))
    assert (params["uri"], params.get("cursor")) == (uri, cursor)


@pytest.mark.parametrize(
    ("fields", "expected"),
    [
        pytest.param(call_headers(), {}, id="initialize"),
        pytest.param(
            call_headers("2025-06-18", "S"),
            {"MCP-Protocol-Version": "2025-06-18", "Mcp-Session-Id": "S"},
            id="session",
        ),
        pytest.param(call_headers("2025-03-26"), {"MCP-Protocol-Version": "2025-03-26"}, id="no-session"),
        pytest.param(
            call_headers(trace=TRACE), {"traceparent": TRACE.traceparent, "tracestate": "a=b"}, id="trace"
        ),
        pytest.param(
            call_headers(trace=TRACE, baggage=True),
            {"traceparent": TRACE.traceparent, "tracestate": "a=b", "baggage": "k=v"},
            id="baggage",
        ),
    ],
)
def test_header_fields(fields: dict[str, str], expected: dict[str, str]) -> None:
    """Beside the two content types: the version and the session where there are such, and the trace."""
    usual = {"Accept": "application/json, text/event-stream", "Content-Type": "application/json"}
    assert fields == usual | expected


def test_notifications_are_what_the_schema_says() -> None:
    """`initialized`, and `cancelled` with our id."""
    mcp_types.InitializedNotification.model_validate_json(INITIALIZED)
    told = mcp_types.CancelledNotification.model_validate_json(cancelled(77))
    assert told.params is not None
    assert told.params.request_id == 77


# --- what comes back ---


def test_a_server_is_what_it_says_in_initialize() -> None:
    """Version, capabilities, software."""
    assert decode_initialize(initialized()) == Discovered(
        ("2025-06-18",),
        resources=True,
        list_changed=True,
        subscribe=True,
        completions=True,
        server_name="s",
        server_version="1",
    )


@pytest.mark.parametrize(
    "odd",
    [
        pytest.param({"serverInfo": None}, id="null"),
        pytest.param({"serverInfo": 5}, id="number"),
        pytest.param({"serverInfo": {"name": 5, "version": []}}, id="other-types"),
        pytest.param({"capabilities": {"resources": None, "completions": 1}}, id="capabilities"),
    ],
)
def test_odd_members_of_initialize_count_as_absent(odd: dict[str, Any]) -> None:
    """A server that says little is a server all the same."""
    found = decode_initialize(initialized(**odd))
    assert found.versions == ("2025-06-18",)
    assert found.server_name == "s" or "serverInfo" in odd
    assert found.resources is ("capabilities" not in odd)


@pytest.mark.parametrize(
    "result",
    [b"5", b"{}", b"null", initialized(protocolVersion=5), initialized(capabilities=[])],
    ids=["number", "empty", "null", "version", "capabilities"],
)
def test_what_is_no_initialize_result_is_refused(result: bytes) -> None:
    """Without a version or with capabilities of another type there is nothing to go on."""
    with pytest.raises(ValueError, match=r".+"):
        decode_initialize(result)


@pytest.mark.parametrize(
    ("value", "found"), [(None, None), ("", None), ("a~!", "a~!"), ("x" * 4096, "x" * 4096)]
)
def test_session_ids(value: str | None, found: str | None) -> None:
    """Visible ASCII; an empty one is none."""
    assert session_id(value) == found


@pytest.mark.parametrize("value", ["a b", "a\tb", "é", "a\r\nX: y", "x" * 4097, "\x7f"])
def test_session_ids_that_may_not_go_back(value: str) -> None:
    """What could end the header field, or is no session id, is refused."""
    with pytest.raises(ValueError, match="session id"):
        session_id(value)


def test_a_result_has_the_hints_that_it_gives() -> None:
    """None unless the server says so anyway; unknown members stay byte for byte."""
    bare = decode_result(b'{"contents":[],"x":1.10,"_meta":{"a":1,"io.modelcontextprotocol/x":2}}')
    assert (bare.interim, bare.ttl_ms, bare.scope, bare.meta) == (False, None, None, b'"a":1')
    assert {name: bytes(raw) for name, raw in bare.members.items()} == {"contents": b"[]", "x": b"1.10"}
    given_ = decode_result(b'{"ttlMs":5,"cacheScope":"public"}')
    assert (given_.ttl_ms, given_.scope) == (5, Scope.PUBLIC)


def test_a_word_of_the_modern_era_means_nothing() -> None:
    """`resultType` was any member then: it neither interrupts nor goes on."""
    found = decode_result(b'{"contents":[],"resultType":"input_required"}')
    assert (found.interim, list(found.members)) == (False, ["contents"])


@pytest.mark.parametrize("result", [b"5", b"[]", b"null"])
def test_a_result_is_an_object(result: bytes) -> None:
    """Anything else is an error."""
    with pytest.raises(ValueError, match=r".+"):
        decode_result(result)


# --- what a server says of its own accord ---


@pytest.mark.parametrize(
    ("message", "answer"),
    [
        pytest.param({"id": 1, "method": "ping"}, {"jsonrpc": "2.0", "id": 1, "result": {}}, id="ping"),
        pytest.param(
            {"id": "é\\u0041", "method": "ping", "params": {}},
            {"jsonrpc": "2.0", "id": "é\\u0041", "result": {}},
            id="text-id",
        ),
        pytest.param({"id": 0, "method": "roots/list"}, -32601, id="roots"),
        pytest.param({"id": -5, "method": "elicitation/create", "params": {}}, -32601, id="elicitation"),
        pytest.param({"method": "notifications/message", "params": {}}, None, id="notification"),
        pytest.param({"id": None, "method": "ping"}, None, id="null-id"),
        pytest.param({"id": {}, "method": "ping"}, None, id="object-id"),
        pytest.param({"id": 1, "result": {}}, None, id="response"),
        pytest.param({"id": 1, "method": 5}, None, id="no-method"),
    ],
)
def test_what_is_answered(message: dict[str, Any], answer: Any) -> None:
    """A ping gets its result, any other request a refusal, with the id as it came; anything else nothing."""
    found = answer_request(json.dumps({"jsonrpc": "2.0"} | message).encode())
    if answer is None:
        assert found is None
        return
    assert found is not None
    said = json.loads(found)
    if answer == -32601:
        mcp_types.JSONRPCError.model_validate(said)
        assert (said["id"], said["error"]["code"]) == (message["id"], answer)
    else:
        assert said == answer


@pytest.mark.parametrize(
    ("message", "event"),
    [
        ({"method": "notifications/resources/list_changed"}, Event("alpha", Change.LIST)),
        (
            {"method": "notifications/resources/updated", "params": {"uri": "x://\u00e9"}},
            Event("alpha", Change.RESOURCE, "x://\u00e9"),
        ),
        ({"method": "notifications/resources/updated"}, Event("alpha", Change.RESOURCE)),
        ({"method": "notifications/tools/list_changed"}, None),
        ({"method": "notifications/resources/List_changed"}, None),
        ({"method": ["notifications/resources/list_changed"]}, None),
        ({"id": 1, "result": {}}, None),
    ],
)
def test_what_a_message_says_of_a_change(message: dict[str, Any], event: Event | None) -> None:
    """Two notifications do; an update of nobody knows what may be one of anything."""
    assert change_of("alpha", json.dumps({"jsonrpc": "2.0"} | message).encode()) == event


DEEP = b'{"method":"notifications/resources/updated","params":' + b"[" * 100_000


@given(st.binary())
@example(DEEP)
def test_no_bytes_break_the_listening(message: bytes) -> None:
    """What is no message says nothing."""
    assert change_of("alpha", message) is None


@pytest.mark.parametrize("place", ["", "e/1"])
def test_the_fields_that_open_a_stream(place: str) -> None:
    """Those of the session, but that events are wanted and nothing is sent; and where to go on."""
    session = call_headers("2025-11-25", "S1") | {"authorization": "a"}
    expected = {
        "Accept": "text/event-stream",
        "MCP-Protocol-Version": "2025-11-25",
        "Mcp-Session-Id": "S1",
        "authorization": "a",
    }
    found = listen_headers(session, place)
    assert {name.lower(): value for name, value in found.items()} == {
        name.lower(): value
        for name, value in (expected | ({"Last-Event-ID": place} if place else {})).items()
    }


@given(st.binary())
@example(DEEP)
def test_no_bytes_break_the_answering(message: bytes) -> None:
    """What is no message is answered with nothing."""
    assert answer_request(message) is None or json.loads(answer_request(message) or b"")["jsonrpc"] == "2.0"


@pytest.mark.parametrize(
    ("body", "found"),
    [
        pytest.param(b'{"a":1}', [b'{"a":1}'], id="one"),
        pytest.param(b"", [b""], id="nothing"),
        pytest.param(b' [{"a":1}, {"b":2} ]', [b'{"a":1}', b'{"b":2}'], id="batch"),
        pytest.param(b"[]", [], id="empty-batch"),
        pytest.param(b'["[",5]', [b'"["', b"5"], id="of-anything"),
    ],
)
def test_H35_batches_are_taken_apart(body: bytes, found: list[bytes]) -> None:
    """What is no batch stays as it is."""
    assert messages(body) == found


def test_a_batch_has_so_many_messages() -> None:
    """Our answer is one of them; of more than a thousand the rest could only be there to keep us busy."""
    assert len(messages(b"[%b1]" % (b"1," * 999))) == 1000
    with pytest.raises(ValueError, match="more than 1000"):
        messages(b"[%b1]" % (b"1," * 1000))


@pytest.mark.parametrize("body", [b"[", b"[1,]", b"[" * 100_000, b'["\xff"]'])
def test_a_broken_batch_is_refused(body: bytes) -> None:
    """Also one that nests without end, or is no UTF-8."""
    with pytest.raises((ValueError, msgspec.DecodeError)):
        messages(body)
