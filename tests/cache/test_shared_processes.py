"""Flights across processes: one upstream call a round, and a leader may die."""

import asyncio
import random
import sys
from asyncio.subprocess import PIPE, Process
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from tests.instruments.redis_server import Server

PATIENCE = 3.0


async def start(url: str) -> Process:
    flyer = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "tests.cache.flyer", url, stdin=PIPE, stdout=PIPE
    )
    assert flyer.stdout is not None
    async with asyncio.timeout(30):
        assert await flyer.stdout.readline() == b"ready\n"
    return flyer


@asynccontextmanager
async def flyers(url: str, count: int) -> AsyncIterator[list[Process]]:
    """So many processes, until the end of the block."""
    started = await asyncio.gather(*(start(url) for _ in range(count)))
    processes = list(started)
    try:
        yield processes
    finally:
        for process in processes:
            if process.returncode is None:
                process.kill()
            await process.wait()


async def ask(process: Process, round_: str) -> tuple[str, float] | None:
    """What it answered and in how many seconds; None if it died."""
    assert process.stdin is not None
    assert process.stdout is not None
    process.stdin.write(f"{round_}\n".encode())
    told = (await process.stdout.readline()).decode().split()
    return (told[1], float(told[2])) if told else None


def test_ten_processes_call_upstream_once_a_round(redis: Server) -> None:
    """200 rounds on cold keys: 200 calls, and everybody has the answer."""

    async def body() -> None:
        async with flyers(redis.url, 10) as processes:
            for number in range(200):
                told = await asyncio.gather(*(ask(each, str(number)) for each in processes))
                assert {each[0] for each in told if each is not None} == {str(number)}
            calls = [int(redis.ask("GET", f"calls:{number}")) for number in range(200)]
            assert sum(calls) == 200

    asyncio.run(body())


def test_a_leader_that_is_killed_costs_one_more_call(redis: Server) -> None:
    """At any point of its flight: at most two calls, and nobody waits above the bound."""

    async def body() -> None:
        chance = random.Random(7)
        async with flyers(redis.url, 4) as processes:
            for number in range(6):
                victim = processes.pop()
                processes.append(await start(redis.url))
                asked = [asyncio.create_task(ask(victim, str(number)))]
                await asyncio.sleep(0.01)
                asked += [asyncio.create_task(ask(each, str(number))) for each in processes]
                await asyncio.sleep(chance.random() * 0.04)
                victim.kill()
                await victim.wait()
                told = [each for each in await asyncio.gather(*asked[1:]) if each is not None]
                assert {answer for answer, _ in told} == {str(number)}
                assert max(seconds for _, seconds in told) < PATIENCE
                assert int(redis.ask("GET", f"calls:{number}")) <= 2

    asyncio.run(body())
