"""`subscriptions/listen` and what is told of changes, held against the official types."""

import json
from typing import Any

import pytest
from mcp_types.methods import parse_server_notification, validate_client_request, validate_server_result
from multidict import CIMultiDict

from mcp_federator.errors import McpError
from mcp_federator.protocol import modern, subscriptions
from mcp_federator.protocol.jsonrpc import Request, decode_request
from mcp_federator.protocol.subscriptions import LISTEN, MAX_URIS, Filter
from mcp_federator.protocol.vocabulary import (
    LEGACY,
    META_CAPABILITIES,
    META_SUBSCRIPTION,
    META_VERSION,
    MODERN,
)

META = {META_VERSION: MODERN, META_CAPABILITIES: {}}
FIELDS = CIMultiDict({"MCP-Protocol-Version": MODERN, "Mcp-Method": LISTEN})
URIS = [f"docs+x://{number}" for number in range(MAX_URIS)]
IDS = [b"1", b'"1"', b"0", b'""', b"-5", b"9007199254740993", b'"s-\\u0031"', b'"100%d"']


def request(params: Any) -> Request:
    text = json.dumps(params | {"_meta": META}) if isinstance(params, dict) else params
    return decode_request(f'{{"jsonrpc":"2.0","id":1,"method":"{LISTEN}","params":{text}}}'.encode())


@pytest.mark.parametrize(
    ("notifications", "wanted"),
    [
        ({}, Filter()),
        ({"resourcesListChanged": True}, Filter(lists=True)),
        ({"resourcesListChanged": False}, Filter()),
        ({"resourcesListChanged": None, "resourceSubscriptions": None}, Filter()),
        ({"toolsListChanged": True, "promptsListChanged": True, "x": 1}, Filter()),
        ({"resourceSubscriptions": []}, Filter()),
        ({"resourceSubscriptions": ["b", "a", "b", ""]}, Filter(uris=("b", "a", ""))),
        ({"resourceSubscriptions": URIS, "resourcesListChanged": True}, Filter(lists=True, uris=tuple(URIS))),
    ],
    ids=lambda value: str(value)[:60],
)
def test_what_a_filter_wants(notifications: dict[str, Any], wanted: Filter) -> None:
    """Resources, in the order asked for; kinds that we never send are no mistake."""
    asked = request({"notifications": notifications})
    modern.check(asked, FIELDS)
    assert modern.notifications(asked) == wanted


@pytest.mark.parametrize(
    ("params", "fault"),
    [
        ({}, "params.notifications must be an object"),
        ({"notifications": None}, "params.notifications must be an object"),
        ({"notifications": []}, "params.notifications must be an object"),
        (
            {"notifications": {"resourcesListChanged": 1}},
            "params.notifications.resourcesListChanged must be true or false",
        ),
        (
            {"notifications": {"toolsListChanged": "yes"}},
            "params.notifications.toolsListChanged must be true or false",
        ),
        (
            {"notifications": {"resourceSubscriptions": "docs+x://1"}},
            "params.notifications.resourceSubscriptions must be an array of strings",
        ),
        (
            {"notifications": {"resourceSubscriptions": ["docs+x://1", None]}},
            "params.notifications.resourceSubscriptions must be an array of strings",
        ),
        (
            {"notifications": {"resourceSubscriptions": [*URIS, "docs+y://1"]}},
            "params.notifications.resourceSubscriptions may name 1000 URIs: open several streams",
        ),
        (
            '{"notifications":{"resourceSubscriptions":["a"],"resourceSubscriptions":["b"]}}',
            "params.notifications: two members of one object have the same name",
        ),
    ],
    ids=lambda value: str(value)[:60],
)
def test_a_filter_of_another_shape_is_refused(params: Any, fault: str) -> None:
    """-32602 with status 400, with the member and what it must be."""
    with pytest.raises(McpError) as caught:
        modern.notifications(request(params))
    assert (caught.value.code, caught.value.message) == (-32602, f"Invalid params: {fault}")
    assert (caught.value.status, caught.value.id) == (400, b"1")


def test_a_wish_to_listen_is_as_the_schema_says() -> None:
    """What the official types accept is accepted."""
    params = {"notifications": {"resourceSubscriptions": ["docs+x://1"]}, "_meta": META}
    validate_client_request(LISTEN, MODERN, params)
    assert request(params).fault == ""


def told(message: bytes, version: str = MODERN) -> tuple[str, dict[str, Any]]:
    """Method and params of a notification that the official types accept."""
    found = json.loads(message)
    assert found.pop("jsonrpc") == "2.0"
    parse_server_notification(found["method"], version, found.get("params"))
    assert found.keys() <= {"method", "params"}
    return found["method"].removeprefix("notifications/"), found.get("params", {})


@pytest.mark.parametrize("id", IDS)
def test_H31_each_message_bears_the_id_of_its_stream(id: bytes) -> None:  # noqa: A002 - the protocol's word
    """Byte for byte: value and type are those of the request."""
    meta = {META_SUBSCRIPTION: json.loads(id)}
    granted = Filter(lists=True, uris=("docs+x://1", 'docs+"%d'))
    assert told(subscriptions.acknowledged(id, granted)) == (
        "subscriptions/acknowledged",
        {
            "_meta": meta,
            "notifications": {"resourcesListChanged": True, "resourceSubscriptions": list(granted.uris)},
        },
    )
    assert told(subscriptions.updated("docs+x://ü", id)) == (
        "resources/updated",
        {"_meta": meta, "uri": "docs+x://ü"},
    )
    assert told(subscriptions.list_changed(id)) == ("resources/list_changed", {"_meta": meta})
    for message in (
        subscriptions.acknowledged(id, granted),
        subscriptions.updated("docs+x://1", id),
        subscriptions.list_changed(id),
    ):
        assert b'"%b":%b}' % (META_SUBSCRIPTION.encode(), id) in message


@pytest.mark.parametrize("id", IDS)
def test_the_end_is_the_response_to_the_request(id: bytes) -> None:  # noqa: A002 - the protocol's word
    """A complete result that carries nothing but the id."""
    message = subscriptions.ended(id)
    found = json.loads(message)
    validate_server_result(LISTEN, MODERN, found["result"])
    assert found == {
        "jsonrpc": "2.0",
        "id": json.loads(id),
        "result": {"resultType": "complete", "_meta": {META_SUBSCRIPTION: json.loads(id)}},
    }
    assert message.startswith(b'{"jsonrpc":"2.0","id":%b,' % id)


def test_what_is_not_granted_is_left_out_of_the_acknowledgement() -> None:
    """Nothing at all is one as well."""
    assert told(subscriptions.acknowledged(b"1", Filter()))[1]["notifications"] == {}
    assert told(subscriptions.acknowledged(b"1", Filter(uris=("a",))))[1]["notifications"] == {
        "resourceSubscriptions": ["a"]
    }


@pytest.mark.parametrize("version", LEGACY)
def test_a_legacy_client_is_told_in_the_same_words(version: str) -> None:
    """Without an id of a stream, which those revisions do not have."""
    assert told(subscriptions.updated("docs+x://1"), version) == ("resources/updated", {"uri": "docs+x://1"})
    assert told(subscriptions.list_changed(), version) == ("resources/list_changed", {})
