"""H39: Redis in all weathers under the whole product; each request is answered, hits resume by themselves.

The memory tier is off where hits are counted, so that each of them comes out of Redis.  Nothing is said here
of how long a request takes beyond a bound that no asker would notice as a hang: that is for the benchmarks.
"""

import asyncio
import os
import signal
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from time import monotonic
from typing import Any

import pytest
from redis import Redis

from tests.instruments.fronted import READ, run, text
from tests.instruments.house import House, house
from tests.instruments.redis_server import Server
from tests.instruments.wire import Received, Wire, contents, result

CROWD = 50
LONGEST = 3.0
"""Seconds in which each of a crowd is answered, on a machine that has other things to do."""


def echo(request: Received) -> Any:
    """What is read says its URI, so that nobody gets another's answer unnoticed."""
    uri = request.params["uri"]
    return result(contents(uri, uri))(request)


@asynccontextmanager
async def fronted(url: str, wire: Wire, **cache: Any) -> AsyncIterator[House]:
    sections = {"memory": 0, "redis": {"url": url}, **cache}
    async with house({"alpha": wire.url}, server={"secret": "a secret of the house"}, cache=sections) as it:
        yield it


async def crowd(it: House, name: str) -> list[str]:
    """So many reads at a time, each of another URI: what `Cache-Status` says; every one is answered right."""
    uris = [f"x://{name}/{number}" for number in range(CROWD)]
    started = monotonic()
    replies = await asyncio.gather(*(it.read(f"alpha+{uri}") for uri in uris))
    assert monotonic() - started < LONGEST
    assert [text(reply) for reply in replies] == uris
    return [reply.cache_status for reply in replies]


async def hits(it: House) -> None:
    """Until Redis gives hits."""
    async with asyncio.timeout(15):
        while not (await it.read("alpha+x://again")).cache_status.startswith("mcp-federator; hit"):
            pass


async def listening(it: House) -> None:
    async with asyncio.timeout(15):
        while not (await it.status())["cache"]["redis"]["up"]:
            pass


Weather = Callable[[Server], AbstractAsyncContextManager[None]]


@asynccontextmanager
async def stopped(redis: Server) -> AsyncIterator[None]:
    redis.stop()
    yield
    redis.start()


@asynccontextmanager
async def asleep(redis: Server) -> AsyncIterator[None]:
    """`DEBUG SLEEP`: it takes connections, and answers nobody."""
    sleeping = asyncio.create_task(asyncio.to_thread(redis.ask, "DEBUG", "SLEEP", 3))
    await asyncio.sleep(0.1)
    yield
    await sleeping


@asynccontextmanager
async def frozen(redis: Server) -> AsyncIterator[None]:
    """Nothing moves: what is sent is swallowed."""
    os.kill(redis.pid, signal.SIGSTOP)
    try:
        yield
    finally:
        os.kill(redis.pid, signal.SIGCONT)


@asynccontextmanager
async def readonly(redis: Server) -> AsyncIterator[None]:
    """It has become somebody's replica, as after a failover."""
    redis.ask("CONFIG", "SET", "replica-serve-stale-data", "yes")
    redis.ask("REPLICAOF", "127.0.0.1", 1)
    yield
    redis.ask("REPLICAOF", "NO", "ONE")


@asynccontextmanager
async def full(redis: Server) -> AsyncIterator[None]:
    """No memory is left, and nothing may be evicted."""
    redis.ask("CONFIG", "SET", "maxmemory-policy", "noeviction")
    redis.ask("CONFIG", "SET", "maxmemory", 1)
    yield
    redis.ask("CONFIG", "SET", "maxmemory", 0)


@asynccontextmanager
async def crowded(redis: Server) -> AsyncIterator[None]:
    """Others have taken all connections but two."""
    with Redis(port=redis.port, single_connection_client=True) as admin:
        admin.execute_command("CONFIG", "SET", "maxclients", 4)
        admin.execute_command("CLIENT", "KILL", "TYPE", "normal", "SKIPME", "yes")
        yield
        admin.execute_command("CONFIG", "SET", "maxclients", 1000)


@asynccontextmanager
async def forgetful(redis: Server) -> AsyncIterator[None]:
    """Somebody empties it again and again, scripts included."""
    going = True

    async def forget() -> None:
        while going:
            await asyncio.to_thread(redis.ask, "FLUSHALL")
            await asyncio.to_thread(redis.ask, "SCRIPT", "FLUSH")

    forgetting = asyncio.create_task(forget())
    yield
    going = False
    await forgetting


@asynccontextmanager
async def unheard(redis: Server) -> AsyncIterator[None]:
    """The connection that listens is killed as soon as it stands."""
    going = True

    async def kill() -> None:
        while going:
            await asyncio.to_thread(redis.ask, "CLIENT", "KILL", "TYPE", "pubsub")

    killing = asyncio.create_task(kill())
    yield
    going = False
    await killing


WEATHERS: list[Weather] = [stopped, asleep, frozen, readonly, full, crowded, forgetful, unheard]


@pytest.mark.parametrize("weather", WEATHERS, ids=lambda weather: weather.__name__)
def test_H39_every_request_is_answered_and_hits_resume(own: Server, weather: Weather) -> None:
    """Before, in it, at its end; nobody restarts anything."""

    async def check() -> None:
        async with Wire({READ: echo}) as wire, fronted(own.url, wire) as it:
            await listening(it)
            await hits(it)
            async with weather(own):
                for number in range(4):
                    await crowd(it, f"in/{number}")
                    await crowd(it, f"in/{number}")
                assert (await it.get("/readyz")).status == 200
            await crowd(it, "after")
            await hits(it)
            await listening(it)
            counted = {
                outcome: await it.samples("mcp_federator_cache_requests_total", outcome=outcome)
                for outcome in ("hit", "stale", "miss", "coalesced", "bypass")
            }
            asked = await it.samples("mcp_federator_requests_total", method=READ)
            assert sum(counted.values()) == asked
            assert counted["bypass"] == 0

    run(check())


@pytest.mark.parametrize("weather", [stopped, asleep, frozen, readonly, full], ids=lambda one: one.__name__)
def test_H39_trouble_is_counted_and_shown(own: Server, weather: Weather) -> None:
    """What fails is in the metrics and on the status page; readiness does not change."""

    async def check() -> None:
        async with Wire({READ: echo}) as wire, fronted(own.url, wire) as it:
            await listening(it)
            assert await it.samples("mcp_federator_redis_up") == 1
            async with weather(own):
                await crowd(it, "in")
                status = (await it.status())["cache"]["redis"]
                assert await it.samples("mcp_federator_redis_errors_total") > 0
                assert status["failing"]
                if weather is not full:
                    assert status["breaker"] != "closed"
                    assert not status["up"]
                    assert await it.samples("mcp_federator_redis_up") == 0
                assert (await it.get("/readyz")).body == b"ready\n"
            await hits(it)
            await listening(it)
            assert (await it.status())["cache"]["redis"]["failing"].keys() <= {
                "subscribe",
                "probe",
                "private",
            }

    run(check())


def test_H39_absent_at_start(own: Server) -> None:
    """It is used as soon as it is there."""

    async def check() -> None:
        own.stop()
        async with Wire({READ: echo}) as wire, fronted(own.url, wire) as it:
            await crowd(it, "before")
            assert not (await it.status())["cache"]["redis"]["up"]
            assert (await it.get("/readyz")).status == 200
            own.start()
            await hits(it)
            await listening(it)

    run(check())


def test_H39_black_holed(black_hole: str) -> None:
    """An address that swallows everything; memory goes on to give hits."""

    async def check() -> None:
        async with Wire({READ: echo}) as wire, fronted(black_hole, wire, memory="1MiB") as it:
            await crowd(it, "x")
            statuses = await crowd(it, "x")
            assert all(status.startswith("mcp-federator; hit; ttl=") for status in statuses)
            assert len(wire.calls(READ)) == CROWD

    run(check())


def test_an_outage_does_not_empty_the_memory(own: Server) -> None:
    """What was kept is served as before, for `outage_freshness`; then it is stale, and fetched anew."""

    async def check() -> None:
        redis = {"url": own.url, "outage_freshness": "1s"}
        async with Wire({READ: echo}) as wire, fronted(own.url, wire, memory="1MiB", redis=redis) as it:
            await listening(it)
            await crowd(it, "x")
            own.stop()
            statuses = await crowd(it, "x")
            assert all(status.startswith("mcp-federator; hit; ttl=") for status in statuses)
            assert len(wire.calls(READ)) == CROWD
            async with asyncio.timeout(10):
                while (await it.read("alpha+x://x/0")).cache_status.startswith("mcp-federator; hit"):
                    pass
            assert len(wire.calls(READ)) == CROWD + 1

    run(check())
