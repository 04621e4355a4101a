"""How much one client, and all of them, can make the listener hold."""

import asyncio
import logging
import tracemalloc

import pytest

from mcp_federator.endpoint import wire
from mcp_federator.model import Answer
from tests.endpoint.door import (
    HIT,
    Client,
    Door,
    ScriptedSource,
    compact,
    read,
    read_fields,
    request,
    run,
    settle,
)

pytestmark = pytest.mark.usefixtures("each_loop")

KIB = 1 << 10
MIB = 1 << 20


def test_H33_long_names_fit() -> None:
    """A URI of 40 KiB fits into one header field; a field of more than 64 KiB is 431, repeating nothing."""

    async def body() -> None:
        async with Door() as door:
            uri = "docs+x://" + "a" * 40_000
            assert (await door.post(read(uri))).status == 200
            response = await door.ask(request(read(), {"X-Long": "a" * 70_000}))
            assert (response.status, response.code) == (431, -32600)
            assert b"aaa" not in response.body

    run(body())


def test_H38_client_that_reads_nothing_is_left(monkeypatch: pytest.MonkeyPatch) -> None:
    """A reply that nobody takes is given up, and its connection with it."""
    monkeypatch.setattr("mcp_federator.endpoint.wire.SEND_SECONDS", 0.01)

    async def body() -> None:
        huge = Answer(b'"contents":[{"uri":"docs+x://1","text":"%b"}]' % (b"x" * 20_000_000), HIT.hint)
        async with Door(ScriptedSource(huge)) as door:
            client = await door.connect()
            client.pause()
            await client.send(request(read()))
            while door.web.connections:
                await settle()

    run(body())


def with_head(size: int) -> bytes:
    """A read whose header fields are about so long, none longer than 50 KiB."""
    sizes = [50 * KIB] * (size // (50 * KIB)) + [size % (50 * KIB)]
    return request(read(), {f"X-{n}": "a" * length for n, length in enumerate(sizes)})


async def refused(client: Client) -> None:
    """The reply says that the head is too long, and is the last."""
    response = await client.receive()
    assert (response.status, response.code) == (431, -32600)
    assert "128 KiB" in response.message["error"]["message"]
    assert b"aaa" not in response.body
    assert response.header("Connection") == "close"
    assert await client.at_end()


@pytest.mark.parametrize("step", [1000, 30_000, MIB], ids=["small pieces", "pieces", "whole"])
@pytest.mark.parametrize("before", [0, 3])
@pytest.mark.parametrize("ends", [True, False], ids=["complete", "endless"])
def test_head_is_bounded_in_all(step: int, before: int, *, ends: bool) -> None:
    """Beyond 128 KiB it is 431, in whatever pieces it comes; requests before it are answered first."""

    async def body() -> None:
        async with Door() as door:
            client = await door.connect()
            first, sent = request(read()) * before, with_head(200 * KIB)
            if ends:
                first, sent = b"", first + with_head(140 * KIB)
            await client.send(first)
            for _ in range(before if first else 0):
                assert (await client.receive()).status == 200
            sent = sent[: 150 * KIB]
            await client.send(*(sent[start : start + step] for start in range(0, len(sent), step)))
            for _ in range(0 if first else before):
                assert (await client.receive()).status == 200
            await refused(client)
            assert len(door.source.asked) == before

    run(body())


def test_nothing_more_is_taken_in_behind_a_head_that_is_too_long() -> None:
    """While a request before it is under way, what its client goes on sending is not kept."""

    async def body() -> None:
        go = asyncio.Event()

        async def slow(*_: object) -> Answer:
            await go.wait()
            return HIT

        async with Door(ScriptedSource(slow)) as door:
            client = await door.connect()
            head = request(read()).partition(b"\r\n\r\n")[0]
            await client.send(request(read()))
            tracemalloc.start()
            try:
                await client.send(head, *[b"\r\nX-More: %b" % (b"a" * 60_000)] * 100)
                while not door.source.asked:
                    await settle()
                for _ in range(100):  # turns of the loop in which all of it arrives
                    await settle()
                held = tracemalloc.get_traced_memory()[0]
            finally:
                tracemalloc.stop()
            assert held < MIB
            go.set()
            assert (await client.receive()).status == 200

    run(body())


CHUNKED = request(
    b"", {**read_fields(), "Content-Length": None, "Transfer-Encoding": "chunked", "Expect": "100-continue"}
)


@pytest.mark.parametrize("path", ["/mcp", "/elsewhere"])
@pytest.mark.parametrize(
    ("begin", "more"),
    [
        (b"2\r\n{}\r\n0\r\n", b"X-More: %b\r\n" % (b"a" * 50_000)),
        (b"2;", b"a" * 50_000),
        (b"2;", b"a=b;" * 12_500),
    ],
    ids=["trailers", "an extension", "extensions"],
)
def test_what_frames_a_body_is_bounded(
    begin: bytes, more: bytes, path: str, caplog: pytest.LogCaptureFixture
) -> None:
    """Fields behind a body, or extensions of one chunk, that do not end are 400, and nothing is asked."""

    async def body() -> None:
        async with Door() as door:
            client = await door.connect()
            await client.send(CHUNKED.replace(b"/mcp", path.encode(), 1) + begin)
            # That far it was read, and what comes now comes apart.
            assert (await client.receive()).status == (100 if path == "/mcp" else 404)
            await client.send(more * 3)
            if path == "/mcp":
                response = await client.receive()
                assert (response.status, response.code) == (400, -32700)
            assert await client.at_end()
            assert door.source.asked == []
            assert [line["status"] for line in door.told] == ["client_error"]

    run(body())
    assert [record for record in caplog.records if record.levelno > logging.DEBUG] == []


def test_small_chunks_are_no_long_framing() -> None:
    """A body that comes as a hundred thousand chunks is a body."""

    async def body() -> None:
        async with Door() as door:
            text = compact(read())
            text = text[:-1] + b" " * (100_000 - len(text)) + b"}"
            client = await door.connect()
            await client.send(CHUNKED)
            assert (await client.receive()).status == 100
            await client.send(*(b"1;a=b\r\n%c\r\n" % byte for byte in text), b"0\r\n\r\n")
            assert (await client.receive()).status == 200

    run(body())


@pytest.mark.parametrize("step", [7000, 100_000, 2 * MIB])
def test_only_the_head_counts(step: int) -> None:
    """Neither bodies nor what came before on the connection make a head too long."""

    async def body() -> None:
        async with Door() as door:
            text = compact(read())
            large = request(text[:-1] + b" " * (900 * KIB) + b"}", read_fields())
            sent = (request(read()) * 40 + with_head(120 * KIB) + large) * 3
            client = await door.connect()
            sending = asyncio.ensure_future(
                client.send(*(sent[start : start + step] for start in range(0, len(sent), step)))
            )
            for _ in range(3 * 42):
                assert (await client.receive()).status == 200
            await sending

    run(body())


def test_fields_are_counted() -> None:
    """More than 128 of them are 431 too."""

    async def body() -> None:
        async with Door() as door:
            usual = request(read()).partition(b"\r\n\r\n")[0].count(b"\r\n")
            many = {f"X-{n}": "1" for n in range(128 - usual)}
            client = await door.connect()
            await client.send(request(read(), many))
            assert (await client.receive()).status == 200
            await client.send(request(read(), {**many, "X-More": "1"}))
            await refused(client)

    run(body())


def test_connections_are_bounded(monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture) -> None:
    """One too many is closed at once, whoever is there goes on, and the log says so once a minute."""
    monkeypatch.setattr(wire, "MAX_CONNECTIONS", 2)

    async def body() -> None:
        async with Door() as door:
            one, two = await door.connect(), await door.connect()
            for client in (one, two):
                await client.send(request(read()))
                assert (await client.receive()).status == 200
            for _ in range(3):
                assert await (await door.connect()).at_end()
            await one.send(request(read()))
            assert (await one.receive()).status == 200
            await two.close()
            while len(door.web.connections) == 2:
                await settle()
            assert (await door.post(read())).status == 200

    run(body())
    assert [(record.levelno, "2 connections" in record.message) for record in caplog.records] == [
        (logging.WARNING, True)
    ]


@pytest.mark.parametrize(("size", "count"), [(20 * KIB, 1000), (33 * KIB, 500), (MIB, 50), (16 * MIB, 4)])
def test_who_reads_nothing_is_not_answered_on(size: int, count: int) -> None:
    """Of a client that asks on and reads nothing, no more than one reply and 64 KiB wait to be sent."""

    async def body() -> None:
        most = 0

        async def watched(*_: object) -> Answer:
            nonlocal most
            (connection,) = door.web.connections
            assert connection.transport is not None
            most = max(most, connection.transport.get_write_buffer_size())
            return Answer(b'"contents":[{"uri":"x","text":"%b"}]' % (b"x" * size), HIT.hint)

        async with Door(ScriptedSource(watched)) as door:
            client = await door.connect()
            client.pause()
            sending = asyncio.ensure_future(client.send(*[request(read(id=n)) for n in range(count)]))
            while not door.source.asked:
                await settle()
            (connection,) = door.web.connections
            while not connection.writing_paused:
                await settle()
            assert connection.transport is not None
            assert most <= 64 * KIB
            assert connection.transport.get_write_buffer_size() <= size + 65 * KIB
            client.resume()
            for n in range(count):
                assert (await client.receive()).message["id"] == n
            await sending
            assert most <= 64 * KIB

    run(body())
