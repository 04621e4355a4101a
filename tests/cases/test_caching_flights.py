"""Many at once, and those who walk away: case H30, over the whole product.

Each row is one input.  It is judged by what reached the upstream, and by what each client got.
"""

import asyncio

import pytest

from tests.instruments import servers
from tests.instruments.fronted import (
    FORWARD,
    LIST,
    ONE,
    PARAMS,
    QUICK,
    READ,
    SHELF,
    URI,
    Clock,
    after,
    bearer,
    choosing,
    failed,
    fronted,
    run,
    shown,
    text,
    waiting,
)
from tests.instruments.house import house
from tests.instruments.servers import Shelf
from tests.instruments.wire import (
    Answer,
    Wire,
    contents,
    drop,
    error,
    never,
    page,
    reply,
    result,
)

# H30: many at once, and those who walk away.

CROWD = 100


@pytest.mark.parametrize("method", SHELF)
def test_H30_the_first_one_leaves(method: str) -> None:
    """A hundred ask at once, the first disconnects: one upstream call, ninety-nine answers."""

    async def body() -> None:
        go = asyncio.Event()
        async with fronted({method: result(SHELF[method], after=go)}) as (it, wire):
            leader = asyncio.create_task(it.post(method, PARAMS[method]))
            await wire.arrived(method)
            others = [asyncio.create_task(it.post(method, PARAMS[method])) for _ in range(CROWD - 1)]
            await waiting(it, CROWD)
            leader.cancel()
            await waiting(it, CROWD - 1)
            go.set()
            for one in others:
                assert len(shown(await one)) == 1
            assert leader.cancelled()
            assert len(wire.calls(method)) == 1
            assert await it.samples("mcp_federator_cache_requests_total", outcome="miss") == 1
            if method == READ:
                assert (
                    await it.samples("mcp_federator_cache_requests_total", outcome="coalesced") == CROWD - 1
                )

    run(body())


FAILURES: dict[str, tuple[Answer, str, int]] = {
    "500": (reply(b"", status=500), "bad_reply", 1),
    "garbage": (reply(b"}"), "bad_reply", 1),
    "closed": (drop(), "unreachable", 2),
    "401": (reply(b"", status=401), "refused", 1),
    "429": (reply(b"", status=429), "refused", 1),
    "redirect": (reply(b"", status=302, headers={"Location": "/"}), "refused", 1),
}


@pytest.mark.parametrize("kind", FAILURES)
def test_H30_the_one_request_fails(kind: str) -> None:
    """A hundred get the error of one request; it is not remembered, and the next one tries anew."""
    answer, reason, calls = FAILURES[kind]

    async def body() -> None:
        go, clock = asyncio.Event(), Clock()
        async with fronted({READ: [*([after(go, answer)] * calls), result(ONE)]}, clock=clock) as (it, wire):
            asked = [asyncio.create_task(it.read(URI)) for _ in range(CROWD)]
            await waiting(it, CROWD)
            go.set()
            for one in asked:
                failed(await one, reason)
            assert len(wire.calls(READ)) == calls
            clock.now += 1
            assert (await it.read(URI)).uris == [URI]
            assert len(wire.calls(READ)) == calls + 1

    run(body())


def test_H30_the_one_request_is_answered_with_an_error() -> None:
    """Likewise an error that is an answer."""

    async def body() -> None:
        go = asyncio.Event()
        async with fronted({READ: [after(go, error(7001)), result(ONE)]}) as (it, wire):
            asked = [asyncio.create_task(it.read(URI, id=n)) for n in range(CROWD)]
            await waiting(it, CROWD)
            go.set()
            for n, one in enumerate(asked):
                told = await one
                assert (told.message["id"], told.error["code"]) == (n, 7001)
            assert (await it.read(URI)).uris == [URI]
            assert len(wire.calls(READ)) == 2

    run(body())


def test_H30_the_one_request_gets_no_answer() -> None:
    """Nor does a time-out stay: all are told, then the next one is answered."""

    async def body() -> None:
        async with fronted({READ: [never(), result(ONE)]}, QUICK) as (it, wire):
            for told in await asyncio.gather(*(it.read(URI) for _ in range(10))):
                failed(told, "timeout")
            (call,) = wire.calls(READ)
            await call.gone.wait()
            assert (await it.read(URI)).uris == [URI]

    run(body())


@pytest.mark.parametrize("method", SHELF)
def test_H30_all_leave(method: str) -> None:
    """The upstream's connection is closed within a second, no task is left, and it is nobody's failure."""

    async def body() -> None:
        async with fronted({method: [never(), result(SHELF[method])]}, {"breaker": {"failures": 1}}) as (
            it,
            wire,
        ):
            asked = [asyncio.create_task(it.post(method, PARAMS[method])) for _ in range(CROWD)]
            (call,) = await wire.arrived(method)
            await waiting(it, CROWD)
            for one in asked:
                one.cancel()
            async with asyncio.timeout(1):
                await call.gone.wait()
            await waiting(it, 0)
            while flights():
                await it.status()
            status = (await it.status())["upstreams"][0]
            assert (status["in_flight"], status["breaker"], status["up"]) == (0, "closed", True)
            assert it.app._federation._budget.taken == 0
            assert len(shown(await it.post(method, PARAMS[method]))) == 1
            assert len(wire.calls(method)) == 2

    run(body())


def flights() -> list[str]:
    """The work for others that is still under way in this process."""
    names = (task.get_name() for task in asyncio.all_tasks())
    return [name for name in names if name.startswith(("mcp-federator flight", "list "))]


def test_H30_the_last_one_of_several_leaves_while_others_come() -> None:
    """Who comes when all have left does not wait for what was given up."""

    async def body() -> None:
        async with fronted({READ: [never(), result(ONE)]}) as (it, wire):
            first = asyncio.create_task(it.read(URI))
            (call,) = await wire.arrived(READ)
            first.cancel()
            # That somebody left is known a moment after he did (ADR 0025).
            async with asyncio.timeout(1):
                await call.gone.wait()
            second = await it.read(URI)
            assert second.uris == [URI]
            assert len(wire.calls(READ)) == 2

    run(body())


def test_H30_what_may_not_be_shared_is_not_coalesced() -> None:
    """Nothing is known yet of a URI: each token flies alone, one request for all who have it."""

    async def body() -> None:
        go = asyncio.Event()
        answer = choosing(
            lambda request: result(contents("x://1", str(request.header("authorization")), scope="private"))
        )
        async with fronted({READ: after(go, answer)}, FORWARD) as (it, wire):
            tokens = [str(n) for n in range(10)]
            asked = [
                (token, asyncio.create_task(it.read(URI, headers=bearer(token)))) for token in tokens * 3
            ]
            await waiting(it, 30)
            await wire.arrived(READ, 10)
            go.set()
            for token, one in asked:
                assert text(await one) == f"Bearer {token}"
            assert sorted(call.header("authorization") or "" for call in wire.calls(READ)) == [
                f"Bearer {token}" for token in tokens
            ]

    run(body())


def test_H30_a_crowd_before_a_list_of_many_upstreams() -> None:
    """Fifty list at once, five upstreams are asked once each."""

    async def body() -> None:
        go = asyncio.Event()
        wires = [Wire({LIST: result(page(f"x://{n}"), after=go)}) for n in range(5)]
        try:
            for wire in wires:
                await wire.start()
            async with house({f"u{n}": wire.url for n, wire in enumerate(wires)}) as it:
                asked = [asyncio.create_task(it.page()) for _ in range(50)]
                await waiting(it, 50)
                go.set()
                for one in asked:
                    assert (await one).uris == [f"u{n}+x://{n}" for n in range(5)]
                assert [len(wire.calls(LIST)) for wire in wires] == [1] * 5
        finally:
            for wire in wires:
                await wire.stop()

    run(body())


def test_H30_a_real_server_is_asked_once() -> None:
    """Fifty readers of a server of the SDK that takes its time: one call, fifty answers."""

    async def body() -> None:
        with servers.running(Shelf({"x://1": "text"})) as server:
            async with house({"alpha": server.url}) as it:
                with server.held():
                    asked = [asyncio.create_task(it.read(URI)) for _ in range(50)]
                    await waiting(it, 50)
                for one in asked:
                    assert text(await one) == "text"
                assert server.calls.count(READ) == 1

    run(body())
