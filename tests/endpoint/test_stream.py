"""The event streams of legacy sessions."""

import asyncio
from typing import Any

import pytest

from mcp_federator.endpoint import stream, subscriptions
from tests.endpoint.door import PATIENCE, Client, Door, LegacyClient, began, request, run, settle

COMMENT = b"3\r\n:\n\n\r\n"
END = b"0\r\n\r\n"


async def opened(client: LegacyClient) -> Client:
    """A connection with the stream's head and first comment read."""
    connection = await client.listen()
    response = await connection.receive()
    assert response.status == 200
    assert response.header("Content-Type") == "text/event-stream"
    assert response.header("Cache-Control") == "no-cache"
    assert response.header("X-Accel-Buffering") == "no"
    assert response.header("Content-Length") is None
    await expect(connection, COMMENT)
    return connection


async def expect(connection: Client, what: bytes) -> None:
    async with asyncio.timeout(PATIENCE):
        assert await connection.reader.readexactly(len(what)) == what


async def counted(door: Door, streams: int) -> None:
    """Until so many streams are open."""
    async with asyncio.timeout(PATIENCE):
        while len(door.endpoint._legacy.streams) != streams:
            await settle()


def test_a_stream_opens_at_once_and_is_kept_alive(monkeypatch: pytest.MonkeyPatch) -> None:
    """Head and comment come without waiting for anything, and comments follow."""
    monkeypatch.setattr(stream, "COMMENT_SECONDS", 0.001)

    async def body() -> None:
        async with Door() as door:
            connection = await opened(await began(door))
            for _ in range(3):
                await expect(connection, COMMENT)
            assert door.endpoint.sessions == 1
            assert door.told[-1]["method"] == "GET"
            assert door.told[-1]["era"] == "legacy"

    run(body())


def test_a_session_is_served_while_its_stream_is_open() -> None:
    """The stream occupies no place among requests."""

    async def body() -> None:
        async with Door() as door:
            client = await began(door)
            await opened(client)
            assert (await client.read()).status == 200

    run(body())


def test_a_stream_ends_with_its_session() -> None:
    """DELETE ends it in order, and the connection with it; another session's goes on."""

    async def body() -> None:
        async with Door() as door:
            client, other = await began(door), await began(door)
            mine, others = await opened(client), await opened(other)
            await client.delete()
            await expect(mine, END)
            assert await mine.at_end()
            assert door.endpoint.sessions == 1
            assert not others.reader.at_eof()
            assert (await (await client.listen()).receive()).status == 404

    run(body())


def test_streams_end_when_the_process_drains() -> None:
    """In order, at once, and no new one is opened; requests are still served."""

    async def body() -> None:
        async with Door() as door:
            client = await began(door)
            connection = await opened(client)
            door.endpoint.drain()
            await expect(connection, END)
            assert await connection.at_end()
            response = await (await client.listen()).receive()
            assert (response.status, response.code) == (503, -32603)
            assert (await client.read()).status == 200

    run(body())


def test_a_client_that_leaves_frees_its_stream() -> None:
    """Nothing of it is kept."""

    async def body() -> None:
        async with Door() as door:
            connection = await opened(await began(door))
            await connection.close()
            await counted(door, 0)
            assert door.endpoint.sessions == 0

    run(body())


def test_a_new_stream_takes_the_place_of_the_sessions_oldest(monkeypatch: pytest.MonkeyPatch) -> None:
    """A client that lost its connections unnoticed is not refused for it."""
    monkeypatch.setattr(subscriptions, "MAX_PER_SESSION", 2)

    async def body() -> None:
        async with Door() as door:
            client = await began(door)
            first, second, third = [await opened(client) for _ in range(3)]
            await expect(first, END)
            await counted(door, 2)
            assert not second.reader.at_eof()
            assert not third.reader.at_eof()
            assert door.endpoint.sessions == 1

    run(body())


def test_streams_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    """Beyond the bound 503 and when to come again; there is room again when one has ended."""
    monkeypatch.setattr(stream, "MAX_STREAMS", 1)

    async def body() -> None:
        async with Door() as door:
            client, other = await began(door), await began(door)
            await opened(client)
            response = await (await other.listen()).receive()
            assert (response.status, response.header("Retry-After")) == (503, "1")
            await client.delete()
            await counted(door, 0)
            await opened(other)

    run(body())


@pytest.mark.parametrize(
    ("headers", "status"),
    [
        ({"Accept": "application/json"}, 406),
        ({"Accept": None}, 200),
        ({"Accept": "*/*"}, 200),
        ({"MCP-Protocol-Version": "2025-06-18"}, 400),
        ({"Origin": "http://evil.test"}, 403),
        ({"Origin": "http://localhost:6274"}, 200),
        ({"Last-Event-ID": "7"}, 200),
    ],
    ids=str,
)
def test_what_a_stream_asks_for(headers: dict[str, Any], status: int) -> None:
    """It must be able to take events, and the other checks are those of every request."""

    async def body() -> None:
        async with Door() as door:
            response = await (await (await began(door)).listen(headers)).receive()
            assert response.status == status
            allowed = response.header("Access-Control-Allow-Origin")
            assert allowed == (headers.get("Origin") if status == 200 else None)

    run(body())


def test_a_stream_for_http_1_0_ends_with_its_connection() -> None:
    """There are no chunks in that version."""

    async def body() -> None:
        async with Door() as door:
            client = await began(door)
            connection = await door.connect()
            fields = {"Accept": "text/event-stream", "Mcp-Session-Id": client.session}
            sent = request(b"", fields, verb="GET").replace(b"HTTP/1.1", b"HTTP/1.0", 1)
            await connection.send(sent)
            response = await connection.receive()
            assert response.header("Transfer-Encoding") is None
            await expect(connection, b":\n\n")
            await client.delete()
            assert await connection.at_end()

    run(body())


def test_a_stream_comes_after_what_was_asked_before_it() -> None:
    """Replies on one connection stay in order."""

    async def body() -> None:
        async with Door() as door:
            client = await began(door)
            connection = await door.connect()
            ping = client.sent({"jsonrpc": "2.0", "id": 1, "method": "ping"})
            await connection.send(ping + client.sent(b"", {"Accept": "text/event-stream"}, "GET"))
            assert (await connection.receive()).message["result"] == {}
            assert (await connection.receive()).header("Content-Type") == "text/event-stream"

    run(body())
