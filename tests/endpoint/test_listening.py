import asyncio
import gc
from typing import Any

import pytest

from mcp_federator.endpoint import stream
from mcp_federator.endpoint.listening import ListenStream
from mcp_federator.hub import Listener
from mcp_federator.hub import hub as hubs
from mcp_federator.model import Change, Offers, Wanted
from tests.endpoint.door import PATIENCE, Door, began, request, run, settle
from tests.endpoint.events import ID, LISTEN, Events, listening, opened, wish
from tests.hub.speaker import Speaker

RESOURCE = Change.RESOURCE
IN_ORDER = [f"docs+x://{number}" for number in range(9, 0, -1)]


async def until_listening(door: Door, count: int) -> None:
    """Until so many listen."""
    async with asyncio.timeout(PATIENCE):
        while len(door.hub) != count or len(door.endpoint._legacy.streams) != count:
            await settle()


@pytest.mark.parametrize("id", [1, "1", 0, "", -5, 9007199254740993, "s-1"], ids=repr)
def test_H31_every_message_bears_the_id_as_it_was_sent(id: Any) -> None:  # noqa: A002 - the protocol's word
    """The acknowledgement comes first and at once; then what was asked for, then the end."""

    async def body() -> None:
        async with Door() as door:
            asked = wish("docs+x://1", "nope+z://1", lists=True, id=id)
            events, acknowledgement = await opened(door, asked)
            assert acknowledgement == {
                "jsonrpc": "2.0",
                "method": "notifications/subscriptions/acknowledged",
                "params": {
                    "_meta": {ID: id},
                    "notifications": {"resourcesListChanged": True, "resourceSubscriptions": ["docs+x://1"]},
                },
            }
            door.speaker.say(door.hub, RESOURCE, "x://1")
            door.speaker.say(door.hub, RESOURCE, "x://2")
            door.speaker.say(door.hub)
            told = [await events.next() for _ in range(2)]
            assert told == [
                {
                    "jsonrpc": "2.0",
                    "method": "notifications/resources/updated",
                    "params": {"_meta": {ID: id}, "uri": "docs+x://1"},
                },
                {
                    "jsonrpc": "2.0",
                    "method": "notifications/resources/list_changed",
                    "params": {"_meta": {ID: id}},
                },
            ]
            door.endpoint.drain()
            assert await events.next() == {
                "jsonrpc": "2.0",
                "id": id,
                "result": {"resultType": "complete", "_meta": {ID: id}},
            }
            assert await events.next() is None
            assert await events.connection.at_end()

    run(body())


@pytest.mark.parametrize(
    ("notifications", "granted"),
    [
        ({}, {}),
        ({"toolsListChanged": True, "promptsListChanged": True}, {}),
        ({"resourcesListChanged": False, "resourceSubscriptions": []}, {}),
        ({"resourceSubscriptions": ["nope+x://1"]}, {}),
        (
            {"resourceSubscriptions": [*IN_ORDER, "nope+x://", *IN_ORDER], "toolsListChanged": True},
            {"resourceSubscriptions": IN_ORDER},
        ),
    ],
    ids=str,
)
def test_only_what_is_relayed_is_acknowledged(notifications: dict[str, Any], granted: dict[str, Any]) -> None:
    """An empty filter is one too, and its stream stays open."""

    async def body() -> None:
        async with Door() as door:
            asked = wish()
            asked["params"]["notifications"] = notifications
            events, acknowledgement = await opened(door, asked)
            assert acknowledgement["params"]["notifications"] == granted
            door.speaker.say(door.hub, Change.LIST)
            door.endpoint.drain()
            assert (await events.next())["result"]["resultType"] == "complete"

    run(body())


def test_H32_who_did_not_ask_for_lists_is_not_told_of_them() -> None:
    """Of fifty listeners half opted in; a storm is few messages for them and none for the others."""

    async def body() -> None:
        async with Door() as door:
            streams = [await listening(door, "docs+x://1", lists=n % 2 == 0, id=n) for n in range(50)]
            for _ in range(500):
                door.speaker.say(door.hub)
            door.hub._channels["docs"].pace.flush()
            await asyncio.gather(*(streams[n].said() for n in range(0, 50, 2)))
            door.endpoint.drain()
            for n, events in enumerate(streams):
                rest = [message async for message in remaining(events)]
                assert rest.pop()["id"] == n
                assert len(rest) <= (n % 2 == 0)
            assert len(door.speaker.invalidated) == 2

    run(body())


async def remaining(events: Events) -> Any:
    while (message := await events.next()) is not None:
        yield message


def test_a_client_may_listen_more_than_once() -> None:
    """Each stream has its own filter and its own end; so have two clients with one id."""

    async def body() -> None:
        async with Door() as door:
            one, two = await listening(door, "docs+x://1"), await listening(door, "docs+x://2", id="two")
            door.speaker.say(door.hub, RESOURCE, "x://2")
            assert (await two.next())["params"] == {"_meta": {ID: "two"}, "uri": "docs+x://2"}
            await one.connection.close()
            await until_listening(door, 1)
            door.speaker.say(door.hub, RESOURCE, "x://2/a")
            assert await two.said() == ("resources/updated", "docs+x://2/a")

    run(body())


def test_H38_a_client_that_leaves_is_released_at_once() -> None:
    """Nobody wants of its upstream what nobody listens to."""

    async def body() -> None:
        async with Door() as door:
            events = await listening(door, "docs+x://1", lists=True)
            await settle()
            assert door.speaker.wants == {b"": Wanted(lists=True, uris=frozenset({"x://1"}))}
            await events.connection.close()
            await until_listening(door, 0)
            await settle()
            assert door.speaker.wants == {}

    run(body())


def test_a_thousand_streams_leave_nothing() -> None:
    """Tasks, connections, wishes and objects are as before."""

    async def body() -> None:
        async with Door() as door:
            before = len(asyncio.all_tasks())
            for _ in range(20):
                streams = [await listening(door, f"docs+x://{n}", lists=True, id=n) for n in range(50)]
                assert len(door.hub) == 50
                for events in streams:
                    await events.connection.close()
                await until_listening(door, 0)
                door.clients.clear()
            async with asyncio.timeout(PATIENCE):
                while len(asyncio.all_tasks()) > before or door.web.connections:
                    await settle()
            await settle()
            assert door.speaker.wants == {}
            assert door.hub._channels["docs"].contexts == {}
            assert door.hub._weight == 0
            gc.collect()
            # By type: to ask some objects of other tests what they are runs code of theirs.
            assert [one for one in gc.get_objects() if type(one) in {ListenStream, Listener}] == []

    run(body())


def test_a_stream_is_kept_alive(monkeypatch: pytest.MonkeyPatch) -> None:
    """With comments, which are no messages."""
    monkeypatch.setattr(stream, "COMMENT_SECONDS", 0.001)

    async def body() -> None:
        async with Door() as door:
            events = await listening(door, "docs+x://1")
            waiting = asyncio.create_task(events.said())
            async with asyncio.timeout(PATIENCE):
                while events.comments < 3:
                    await settle()
            door.speaker.say(door.hub, RESOURCE, "x://1")
            assert await waiting == ("resources/updated", "docs+x://1")

    run(body())


def test_a_listener_that_takes_nothing_is_dropped_and_slows_nobody(monkeypatch: pytest.MonkeyPatch) -> None:
    """It is counted; the others have long been told."""
    monkeypatch.setattr(stream, "SLOW_SECONDS", 0.05)
    long = "x" * 100_000

    async def body() -> None:
        async with Door() as door:
            slow, quick = await listening(door, "docs+x://"), await listening(door, "docs+x://")
            slow.connection.pause()
            for number in range(200):
                door.speaker.say(door.hub, RESOURCE, f"x://{number}/{long}")
                assert await quick.said() == ("resources/updated", f"docs+x://{number}/{long}")
            await until_listening(door, 1)
            text = door.metrics.render()[0].decode()
            assert 'mcp_federator_listeners_dropped_total{reason="slow"} 1.0' in text
            assert "mcp_federator_listeners 1.0" in text

    run(body())


@pytest.mark.parametrize("known", [True, False])
def test_an_upstream_that_is_unknown_is_waited_for(known: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """Not for long; then its resources are left out of the acknowledgement."""
    monkeypatch.setattr(hubs, "KNOW_SECONDS", 0.02)

    async def body() -> None:
        async with Door(speaker=Speaker(offers=None)) as door:
            if known:
                door.speaker.found.set()
            _, acknowledgement = await opened(door, wish("docs+x://1"))
            granted = {"resourceSubscriptions": ["docs+x://1"]} if known else {}
            assert acknowledgement["params"]["notifications"] == granted

    run(body())


def test_an_upstream_that_tells_nothing_is_left_out() -> None:
    """What cannot be honoured is not acknowledged, and nothing is wanted of it."""

    async def body() -> None:
        async with Door(speaker=Speaker(offers=Offers(lists=True))) as door:
            _, acknowledgement = await opened(door, wish("docs+x://1", lists=True))
            assert acknowledgement["params"]["notifications"] == {"resourcesListChanged": True}
            await settle()
            assert door.speaker.wants == {b"": Wanted(lists=True)}

    run(body())


@pytest.mark.parametrize(
    ("asked", "headers", "status", "code"),
    [
        (wish(*(f"docs+x://{n}" for n in range(10_000))), {}, 400, -32602),
        (wish(), {"Accept": "application/json"}, 406, -32600),
        (wish(), {"Accept": None}, 200, None),
        (wish(), {"Accept": "text/event-stream"}, 200, None),
        (wish(), {"Mcp-Method": None}, 400, -32020),
        (wish(), {"Mcp-Method": "resources/list"}, 400, -32020),
        (wish(), {"Mcp-Name": "docs+x://1"}, 200, None),
        (wish(), {"Origin": "http://evil.test"}, 403, -32600),
        (wish(), {"Origin": "http://localhost:6274"}, 200, None),
        (wish(), {"Mcp-Session-Id": "stray", "Last-Event-ID": "7"}, 200, None),
    ],
    ids=["many", "json", "any", "events", "no-method", "method", "name", "origin", "own-origin", "stray"],
)
def test_what_a_wish_to_listen_must_be(
    asked: Any, headers: dict[str, str | None], status: int, code: int | None
) -> None:
    """A refusal is an error in JSON with the request's id; the other checks are those of every request."""

    async def body() -> None:
        async with Door() as door:
            connection = await door.connect()
            await connection.send(request(asked, headers))
            response = await connection.receive()
            assert response.status == status
            if code is not None:
                assert response.code == code
                assert len(door.hub) == 0
            else:
                allowed = response.header("Access-Control-Allow-Origin")
                assert allowed == headers.get("Origin")

    run(body())


def test_ten_thousand_uris_are_refused_with_the_limit() -> None:
    """The message says how many there may be, and what to do."""

    async def body() -> None:
        async with Door() as door:
            response = await door.post(wish(*(f"docs+x://{n}" for n in range(10_000))))
            assert "may name 1000 URIs: open several streams" in response.message["error"]["message"]

    run(body())


@pytest.mark.parametrize("bound", ["streams", "wishes"])
def test_listeners_are_bounded(bound: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Beyond the bound 503 and when to come again; there is room again when one has ended."""
    monkeypatch.setattr(*((stream, "MAX_STREAMS", 1) if bound == "streams" else (hubs, "MAX_WEIGHT", 300)))

    async def body() -> None:
        async with Door() as door:
            events = await listening(door, "docs+x://1")
            response = await door.post(wish("docs+x://2"))
            assert (response.status, response.code) == (503, -32603)
            assert response.header("Retry-After") == "1"
            assert response.message["error"]["data"] == {"reason": "overloaded"}
            await events.connection.close()
            await until_listening(door, 0)
            await listening(door, "docs+x://2")

    run(body())


def test_H38_a_posted_cancellation_is_accepted() -> None:
    """Some clients post one beside closing the stream, without `Mcp-Method`; it ends nobody's stream."""

    async def body() -> None:
        async with Door() as door:
            events = await listening(door, "docs+x://1")
            cancelled = {"jsonrpc": "2.0", "method": "notifications/cancelled", "params": {"requestId": 1}}
            response = await door.post(cancelled, {"Mcp-Method": None})
            assert (response.status, response.body) == (202, b"")
            door.speaker.say(door.hub, RESOURCE, "x://1")
            assert await events.said() == ("resources/updated", "docs+x://1")

    run(body())


def test_no_stream_is_opened_while_the_process_ends() -> None:
    """The refusal says so; streams that are open have been told the end."""

    async def body() -> None:
        async with Door() as door:
            events = await listening(door)
            door.endpoint.drain()
            assert (await door.post(wish())).status == 503
            assert (await events.next())["id"] == 1

    run(body())


def test_a_wish_to_listen_is_told_like_any_request() -> None:
    """When the stream is opened, in the log and in the metrics; both eras' streams count together."""

    async def body() -> None:
        async with Door() as door:
            await listening(door)
            assert door.told[-1]["method"] == LISTEN
            assert door.told[-1]["status"] == "ok"
            assert door.counted[f'era="modern",method="{LISTEN}",status="ok"'] == 1
            await (await began(door)).listen()
            await until_listening(door, 2)

    run(body())
