"""Every wait for an upstream over HTTP has an end, and every answer a limit."""

import asyncio
import json
import socket
import tracemalloc

import pytest

from mcp_federator.config import Breaker, Duration
from mcp_federator.errors import Reason
from mcp_federator.model import Retry
from tests.instruments.wire import (
    Answer,
    End,
    Wire,
    contents,
    discovered,
    drop,
    event,
    never,
    page,
    raw,
    reply,
    reset,
    result,
    stream,
    when_reused,
)
from tests.upstream.asking import asking, members, run

READ = "resources/read"
LIST = "resources/list"
SOON = Duration(0.2)
"""A deadline that a test waits for."""

ONE = contents("x://1")
NOTIFICATION = b'data: {"jsonrpc":"2.0","method":"notifications/progress","params":{"progress":1}}\n\n'
JSON_HEAD = b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\n"
PLAIN = {"contents": [{"uri": "alpha+x://1", "text": "text"}]}


# --- limits ---


@pytest.mark.parametrize("way", ["json", "chunked", "gzip", "stream", "one-event", "comments"])
def test_too_large_an_answer_is_cut_off(way: str) -> None:
    """More than `max_response_bytes`, counted after inflating, is a bad reply; memory stays small."""
    large = b'{"contents":[{"uri":"x://1","text":"' + b"0" * (8 << 20) + b'"}]}'
    answers = {
        "json": result(large),
        "chunked": result(large, cut=1 << 20),
        "gzip": result(large, compress=True),
        "stream": stream(*[NOTIFICATION * 1000] * 200, event(ONE)),
        "one-event": stream(*[b"data: " + b"0" * 1000] * 5000),
        "comments": stream(*[b": " + b"k" * 100_000 + b"\n"] * 50, event(ONE)),
    }

    async def body() -> None:
        wire = Wire({READ: answers[way], LIST: result(page())})
        async with wire, asking(wire.url, max_response_bytes=1 << 20) as alpha:
            failure = await alpha.fails()
            assert failure.reason is Reason.BAD_REPLY
            await wire.calls(READ)[0].gone.wait()
            assert (await alpha.list()).count == 0

    run(body())


def test_a_bomb_is_seen_while_it_goes_off() -> None:
    """A few KiB that inflate to 256 MiB are stopped at the limit, not after."""

    async def body() -> None:
        bomb = reply(b" " * (256 << 20), compress=True)
        async with Wire({READ: bomb}) as wire, asking(wire.url) as alpha:
            wire.answers[READ] = raw(*bomb((await wire.arrived("server/discover"))[0]))
            tracemalloc.start()
            failure = await alpha.fails()
            _, peak = tracemalloc.get_traced_memory()
            tracemalloc.stop()
            assert failure.reason is Reason.BAD_REPLY
            assert peak < 48 << 20

    run(body())


def test_all_answers_share_a_budget() -> None:
    """What is too much for all at once fails as our own limit, and is there again afterwards."""

    async def body() -> None:
        large = contents("x://1", "0" * 600_000)
        gate = asyncio.Event()
        half = b'data: {"jsonrpc":"2.0","id":$ID,' + b" " * 600_000
        rest = b'"result":' + json.dumps(ONE).encode() + b"}\n\n"
        wire = Wire({READ: [stream(half, gate, rest), result(large), result(large)]})
        async with wire, asking(wire.url, budget=1 << 20) as alpha:
            first = asyncio.create_task(alpha.read())
            await wire.arrived(READ)
            while alpha.budget.taken < 600_000:  # noqa: ASYNC110 - it is read piece by piece
                await asyncio.sleep(0)
            assert (await alpha.fails()).reason is Reason.OVERLOADED
            gate.set()
            assert members(await first) == PLAIN
            await alpha.read()
            assert alpha.outcomes == {"ok": 2}

    run(body())


# --- deadlines ---


def every(piece: bytes) -> Answer:
    """A stream that says the same again and again, as fast as it is read, and never answers."""
    return stream(*[piece] * 100_000)


@pytest.mark.parametrize(
    "answer",
    [
        pytest.param(never(), id="silence"),
        pytest.param(raw(b"HTTP/1.1 200 OK\r\n", End.HOLD), id="half-a-head"),
        pytest.param(stream(b'data: {"jsonrpc"', End.HOLD), id="half-a-line"),
        pytest.param(every(b": k\n\n"), id="H17b-keep-alives"),
        pytest.param(every(NOTIFICATION), id="H17c-progress"),
    ],
)
def test_every_wait_has_an_end(answer: Answer) -> None:
    """After `timeout` the asker is told and the connection closed, whatever came meanwhile."""

    async def body() -> None:
        async with Wire({READ: answer}) as wire, asking(wire.url, timeout=SOON) as alpha:
            assert (await alpha.fails()).reason is Reason.TIMEOUT
            async with asyncio.timeout(5):
                await wire.calls(READ)[0].gone.wait()
            assert alpha.outcomes == {Reason.TIMEOUT: 1}

    run(body())


def test_nobody_listens() -> None:
    """A refused connection is told at once."""

    async def body() -> None:
        async with Wire({}) as wire:
            await wire.stop()
            async with asking(wire.url) as alpha:
                failure = await alpha.fails()
                assert failure.reason is Reason.UNREACHABLE
                assert failure.detail == "no connection (connection refused)"

    run(body())


def test_a_name_that_is_nobodys(monkeypatch: pytest.MonkeyPatch) -> None:
    """A host without an address is looked up once, and told as no connection."""
    asked: list[object] = []

    def unknown(*name: object, **_: object) -> None:
        asked.append(name)
        raise socket.gaierror(socket.EAI_NONAME, "Name or service not known")

    async def body() -> None:
        async with asking("http://docs.test/mcp") as alpha:
            failure = await alpha.fails()
            assert (failure.reason, len(asked)) == (Reason.UNREACHABLE, 1)
            assert failure.detail == "no connection (name or service not known)"

    monkeypatch.setattr(socket, "getaddrinfo", unknown)
    run(body())


def test_waiting_for_a_connection_counts() -> None:
    """Who waits until his deadline because all connections are in use was not refused by the upstream."""

    async def body() -> None:
        options = {"timeout": SOON, "max_connections": 1, "breaker": Breaker(failures=1)}
        async with Wire({READ: result(ONE)}) as wire, asking(wire.url, **options) as alpha:
            await alpha.client.probe()
            in_use = alpha.transport._free
            await in_use.acquire()
            failures = await asyncio.gather(*(alpha.fails() for _ in range(3)))
            assert {failure.reason for failure in failures} == {Reason.OVERLOADED}
            in_use.release()
            await alpha.read()
            assert (len(wire.calls(READ)), alpha.outcomes) == (1, {"ok": 1})

    run(body())


def test_connections_are_given_on() -> None:
    """Twenty requests over two connections are all answered."""

    async def body() -> None:
        async with Wire({READ: result(ONE)}) as wire, asking(wire.url, max_connections=2) as alpha:
            await asyncio.gather(*(alpha.read() for _ in range(20)))
            assert len(wire.calls(READ)) == 20
            assert wire.connections <= 2

    run(body())


# --- broken connections ---


@pytest.mark.parametrize("broken", [drop(), reset()], ids=["closed", "reset"])
def test_a_dead_kept_alive_connection_is_tried_once_anew(broken: Answer) -> None:
    """When a connection kept alive breaks before an answer, the request goes once more, on a fresh one."""

    async def body() -> None:
        answers = {READ: when_reused(broken, result(ONE)), LIST: when_reused(broken, result(page()))}
        async with Wire(answers) as wire, asking(wire.url) as alpha:
            assert members(await alpha.read()) == PLAIN
            assert len(wire.calls(READ)) == 2
            await alpha.list()
            assert [request.nth for request in wire.calls(READ)] == [1, 0]
            assert alpha.outcomes == {"ok": 2}

    run(body())


def test_many_dead_connections_cost_one_retry_each() -> None:
    """After a pause in which all kept connections died, every request still needs only one more."""

    async def body() -> None:
        gate = asyncio.Event()
        async with Wire({READ: result(ONE, after=gate)}) as wire, asking(wire.url) as alpha:
            first = [asyncio.create_task(alpha.read()) for _ in range(10)]
            await wire.arrived(READ, 10)
            gate.set()
            await asyncio.gather(*first)
            wire.answers[READ] = when_reused(drop(), result(ONE))
            await asyncio.gather(*(alpha.read() for _ in range(10)))
            assert len(wire.calls(READ)) == 30

    run(body())


@pytest.mark.parametrize(
    "broken",
    [drop(), reset(), raw(b"HTTP/1.1 200 OK\r\nConte", End.CLOSE)],
    ids=["closed", "reset", "closed-within-the-head"],
)
def test_a_broken_retry_is_the_end(broken: Answer) -> None:
    """Two breaks are a failure; there is no third try."""

    async def body() -> None:
        async with Wire({READ: broken}) as wire, asking(wire.url) as alpha:
            assert (await alpha.fails()).reason is Reason.UNREACHABLE
            assert len(wire.calls(READ)) == 2

    run(body())


def test_H29_a_retry_with_input_is_sent_once() -> None:
    """A request with `inputResponses` is never repeated, for it may have done something."""

    async def body() -> None:
        async with Wire({READ: when_reused(drop(), result(ONE))}) as wire, asking(wire.url) as alpha:
            await alpha.client.probe()
            failure = await alpha.fails(retry=Retry(b'{"a":{}}', b'"s"'))
            assert failure.reason is Reason.UNREACHABLE
            assert len(wire.calls(READ)) == 1

    run(body())


# --- going away ---


@pytest.mark.parametrize(
    "answer",
    [
        pytest.param(never(), id="before-the-head"),
        pytest.param(stream(NOTIFICATION, End.HOLD), id="within-the-stream"),
        pytest.param(raw(JSON_HEAD + b"Content-Length: 9\r\n\r\n{", End.HOLD), id="within-the-body"),
    ],
)
def test_H38_cancelling_closes_the_connection(answer: Answer) -> None:
    """An asker who is cancelled gives up the request at the upstream at once; that is nobody's failure."""

    async def body() -> None:
        async with Wire({READ: answer}) as wire, asking(wire.url, breaker=Breaker(failures=1)) as alpha:
            asker = asyncio.create_task(alpha.read())
            (request,) = await wire.arrived(READ)
            for _ in range(10):
                await asyncio.sleep(0)
            asker.cancel()
            async with asyncio.timeout(1):
                await request.gone.wait()
            assert alpha.outcomes == {}
            assert alpha.client.status.breaker == "closed"

    run(body())


def test_H38_cancelled_while_waiting_for_a_connection() -> None:
    """Whoever leaves the queue takes no connection with him."""

    async def body() -> None:
        gate = asyncio.Event()
        async with (
            Wire({READ: result(ONE, after=gate)}) as wire,
            asking(wire.url, max_connections=1) as alpha,
        ):
            first = asyncio.create_task(alpha.read())
            await wire.arrived(READ)
            waiting = [asyncio.create_task(alpha.read()) for _ in range(5)]
            await asyncio.sleep(0)
            for task in waiting[:4]:
                task.cancel()
            gate.set()
            await first
            await waiting[4]
            assert len(wire.calls(READ)) == 2

    run(body())


@pytest.mark.parametrize("broken", [drop(), reset()], ids=["closed", "reset"])
def test_a_fresh_connection_that_breaks_is_tried_once_anew(broken: Answer) -> None:
    """Also one that was made for the request; after it each is sent once more, and no more than that."""

    async def body() -> None:
        answers = {"server/discover": [broken, result(discovered())], READ: [broken, result(ONE), broken]}
        async with Wire(answers) as wire, asking(wire.url) as alpha:
            assert members(await alpha.read()) == PLAIN
            assert (len(wire.calls("server/discover")), len(wire.calls(READ))) == (2, 2)
            assert alpha.outcomes == {"ok": 1}
            assert (await alpha.fails()).reason is Reason.UNREACHABLE
            assert len(wire.calls(READ)) == 4

    run(body())


def test_a_refused_connection_is_not_tried_again() -> None:
    """Nobody is there."""

    async def body() -> None:
        async with Wire({READ: result(ONE)}) as wire, asking(wire.url) as alpha:
            await alpha.read()
            await wire.stop()
            await alpha.fails()  # the kept connection, and the one instead of it
            made = wire.connections
            failure = await alpha.fails()
            assert (failure.reason, wire.connections) == (Reason.UNREACHABLE, made)
            assert "no connection" in failure.detail

    run(body())
