"""What legacy sessions hear of changes, and on which of their streams."""

import asyncio
from collections.abc import Iterable
from typing import Any

import pytest

from mcp_federator.endpoint import stream as streams
from mcp_federator.endpoint import subscriptions
from mcp_federator.hub import hub as hubs
from mcp_federator.model import Change, Offers, Wanted
from tests.endpoint.door import PATIENCE, Door, LegacyClient, began, run, settle
from tests.endpoint.events import Events
from tests.hub.speaker import Speaker

RESOURCE = Change.RESOURCE
ONE = "docs+x://1"


async def stream(client: LegacyClient, token: str | None = None) -> Events:
    """A stream of its session, its head read."""
    connection = await client.listen(None if token is None else {"Authorization": token})
    assert (await connection.receive()).status == 200
    return Events(connection)


async def subscribed(client: LegacyClient, *uris: str) -> None:
    for uri in uris:
        response = await client.ask("resources/subscribe", {"uri": uri})
        assert (response.status, response.message["result"]) == (200, {})


async def nothing_more(streams: Iterable[Events], door: Door) -> None:
    """Nothing was told that was not read yet: the streams end, and that is the next thing they say."""
    door.endpoint.drain()
    for events in streams:
        assert await events.next() is None


def wanted(*uris: str) -> Wanted:
    return Wanted(lists=True, uris=frozenset(uris))


def test_H31_a_session_hears_of_what_it_subscribed_to() -> None:
    """In public URIs, and of parts of it; lists of themselves; nothing of what it does not subscribe to."""

    async def body() -> None:
        async with Door() as door:
            client = await began(door)
            events = await stream(client)
            await subscribed(client, ONE, "DOCS+x://2", ONE)
            await settle()
            assert door.speaker.wants == {b"": wanted("x://1", "x://2")}
            for uri in ("x://1", "x://1/a", "x://2", "x://3"):
                door.speaker.say(door.hub, RESOURCE, uri)
            door.speaker.say(door.hub)
            assert [await events.next() for _ in range(4)] == [
                *(
                    {"jsonrpc": "2.0", "method": "notifications/resources/updated", "params": {"uri": uri}}
                    for uri in (ONE, "docs+x://1/a", "DOCS+x://2")
                ),
                {"jsonrpc": "2.0", "method": "notifications/resources/list_changed"},
            ]
            await nothing_more([events], door)

    run(body())


def test_a_session_hears_no_more_of_what_it_unsubscribed_from() -> None:
    """Nothing is wanted of it any more; to unsubscribe from what was not subscribed to is no mistake."""

    async def body() -> None:
        async with Door() as door:
            client = await began(door)
            events = await stream(client)
            await subscribed(client, ONE, "docs+x://2")
            for uri in (ONE, ONE, "nope+x://1"):
                response = await client.ask("resources/unsubscribe", {"uri": uri})
                assert response.message["result"] == {}
            await settle()
            assert door.speaker.wants == {b"": wanted("x://2")}
            for uri in ("x://1", "x://2"):
                door.speaker.say(door.hub, RESOURCE, uri)
            assert await events.said() == ("resources/updated", "docs+x://2")
            await nothing_more([events], door)

    run(body())


def test_each_message_goes_out_on_one_stream_of_its_session(monkeypatch: pytest.MonkeyPatch) -> None:
    """The newest; when it ends, on the one before it.  Other sessions have their own."""
    monkeypatch.setattr(streams, "COMMENT_SECONDS", 0.0001)

    async def body() -> None:
        async with Door() as door:
            client, other = await began(door), await began(door)
            first, second, others = await stream(client), await stream(client), await stream(other)
            await subscribed(client, ONE)
            for number in range(50):
                door.speaker.say(door.hub, RESOURCE, f"x://1/{number}")
                assert await second.said() == ("resources/updated", f"{ONE}/{number}")
            session = next(iter(door.endpoint._legacy.subscriptions._sessions.values()))
            # It has not come to it when its client leaves.
            monkeypatch.setattr(session.streams[-1], "news", lambda: b"")
            door.speaker.say(door.hub)
            monkeypatch.setattr(streams, "COMMENT_SECONDS", 60)
            await second.connection.close()
            await until(door, streams=2)
            assert await first.said() == ("resources/list_changed", None)
            assert await others.said() == ("resources/list_changed", None)
            await nothing_more([first, others], door)

    run(body())


async def until(door: Door, *, streams: int) -> None:
    async with asyncio.timeout(PATIENCE):
        while len(door.endpoint._legacy.streams) != streams:
            await settle()


def test_what_is_told_waits_for_a_stream() -> None:
    """A client may subscribe before it opens one, and may lose one; each thing waits once."""

    async def body() -> None:
        async with Door() as door:
            client = await began(door)
            await subscribed(client, ONE)
            for _ in range(3):
                door.speaker.say(door.hub, RESOURCE, "x://1")
            door.hub._channels["docs"].pace.flush()
            events = await stream(client)
            assert await events.said() == ("resources/updated", ONE)
            await events.connection.close()
            await until(door, streams=0)
            door.speaker.say(door.hub)
            again = await stream(client)
            assert await again.said() == ("resources/list_changed", None)
            await nothing_more([again], door)

    run(body())


def test_a_session_that_ended_hears_nothing() -> None:
    """DELETE ends its streams, and what was wanted for it."""

    async def body() -> None:
        async with Door() as door:
            client, idle = await began(door), await began(door)
            events = await stream(client)
            await subscribed(client, ONE)
            await subscribed(idle, "docs+x://2")
            for one in (client, idle):
                assert (await one.delete()).status == 204
            assert await events.next() is None
            await settle()
            assert (door.speaker.wants, len(door.hub), door.endpoint.sessions) == ({}, 0, 0)

    run(body())


@pytest.mark.parametrize("has_stream", [True, False])
def test_a_session_without_a_stream_is_forgotten_after_a_while(
    has_stream: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nobody would hear what is told; one with a stream is not, however long it takes."""
    monkeypatch.setattr(subscriptions, "HELD_SECONDS", 0.01)

    async def body() -> None:
        async with Door() as door:
            client, other = await began(door), await began(door)
            if has_stream:
                await stream(client)
            await subscribed(client, ONE)
            await subscribed(other, "docs+x://2")
            async with asyncio.timeout(PATIENCE):
                while len(door.hub) > has_stream:
                    await settle()
            await settle()
            assert door.speaker.wants == ({b"": wanted("x://1")} if has_stream else {})

    run(body())


def test_sessions_without_a_stream_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    """The one that has waited longest is forgotten; subscribing once more is a new beginning."""
    monkeypatch.setattr(subscriptions, "MAX_SESSIONS", 2)

    async def body() -> None:
        async with Door() as door:
            clients = [await began(door) for _ in range(3)]
            for number in (0, 1, 0, 2):
                await subscribed(clients[number], f"docs+x://{number}")
            await settle()
            assert door.speaker.wants == {b"": wanted("x://0", "x://2")}

    run(body())


@pytest.mark.parametrize(
    ("uri", "offers", "code", "data"),
    [
        ("nope+x://1", Offers(resources=True), -32002, {"uri": "nope+x://1"}),
        ("more+x://1", Offers(resources=True), -32602, {"uri": "more+x://1"}),
        (ONE, Offers(lists=True), -32601, None),
        (ONE, None, -32601, None),
    ],
    ids=["no-upstream", "tells-not", "none-tells", "unknown"],
)
def test_what_cannot_be_subscribed_to(
    uri: str, offers: Offers | None, code: int, data: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The error says whose fault it is; nothing is wanted."""
    monkeypatch.setattr(hubs, "KNOW_SECONDS", 0.01)

    async def body() -> None:
        async with Door(speaker=Speaker(offers=offers)) as door:
            more = Speaker("more", Offers())
            door.hub.adopt([door.speaker.voice, more.voice])
            response = await (await began(door)).ask("resources/subscribe", {"uri": uri}, id="x")
            assert (response.status, response.code, response.message["id"]) == (200, code, "x")
            assert response.message["error"].get("data") == data
            assert len(door.hub) == 0

    run(body())


def test_several_processes_do_not_share_subscriptions() -> None:
    """So none is accepted; lists are told wherever a session's stream is."""

    async def body() -> None:
        async with Door(alone=False) as door:
            client = await began(door)
            events = await stream(client)
            response = await client.ask("resources/subscribe", {"uri": ONE})
            assert (response.status, response.code) == (200, -32601)
            door.speaker.say(door.hub)
            assert await events.said() == ("resources/list_changed", None)

    run(body())


@pytest.mark.parametrize(
    ("where", "name", "code"), [(subscriptions, "MAX_URIS", -32602), (hubs, "MAX_WEIGHT", -32603)]
)
def test_subscriptions_are_bounded(where: Any, name: str, code: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Those of a session, and all of them; what is subscribed to once more takes no room."""
    monkeypatch.setattr(where, name, 2 if name == "MAX_URIS" else 700)

    async def body() -> None:
        async with Door() as door:
            client = await began(door)
            await subscribed(client, ONE, "docs+x://2")
            response = await client.ask("resources/subscribe", {"uri": "docs+x://3"})
            assert (response.status, response.code) == (200, code)
            await client.ask("resources/unsubscribe", {"uri": ONE})
            await subscribed(client, "docs+x://3")

    run(body())


def test_a_session_hears_on_behalf_of_who_asked_last() -> None:
    """What was heard for somebody else's credentials is not told to whoever brings the session's id."""

    async def body() -> None:
        forwarded = frozenset({"authorization"})
        async with Door(speaker=Speaker(forwards=True), forwarded=forwarded) as door:
            client = await began(door)
            response = await client.post(
                {"jsonrpc": "2.0", "id": 1, "method": "resources/subscribe", "params": {"uri": ONE}},
                {"Authorization": "A"},
            )
            assert response.message["result"] == {}
            await settle()
            assert door.speaker.wants == {b"A": wanted("x://1")}
            door.speaker.say(door.hub, RESOURCE, "x://1", b"A")
            events = await stream(client, "B")
            await settle()
            assert door.speaker.wants == {b"B": wanted("x://1")}
            door.speaker.say(door.hub, RESOURCE, "x://1/b", b"B")
            assert await events.said() == ("resources/updated", "docs+x://1/b")
            await nothing_more([events], door)

    run(body())


def test_a_batch_may_subscribe() -> None:
    """In the one revision that has them."""

    async def body() -> None:
        async with Door() as door:
            client = await began(door, "2025-03-26")
            events = await stream(client)
            response = await client.post(
                [
                    {"jsonrpc": "2.0", "id": n, "method": "resources/subscribe", "params": {"uri": uri}}
                    for n, uri in enumerate((ONE, "nope+x://1"))
                ]
            )
            assert [reply.get("result") for reply in response.message] == [{}, None]
            door.speaker.say(door.hub, RESOURCE, "x://1")
            assert await events.said() == ("resources/updated", ONE)

    run(body())
