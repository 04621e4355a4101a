"""One replica as a process: for each round told on stdin it asks for one key, and tells how that ended.

    python -m tests.cache.flyer URL
    stdin:  ROUND            stdout: ROUND ANSWER SECONDS

Its upstream takes 30 ms, and counts its calls in Redis, outside of the cache's keys.
"""

import asyncio
import sys

from redis.asyncio import Redis

from mcp_federator.model import Answer
from tests.cache.replica import Replica, public, read, replica


async def ask(one: Replica, counter: Redis, round_: str) -> str:
    async def upstream() -> Answer:
        await counter.incr(f"calls:{round_}")
        await asyncio.sleep(0.03)
        return public(round_)

    loop = asyncio.get_running_loop()
    started = loop.time()
    answer = await one.fetch(read(round_), upstream)
    return f"{round_} {answer} {loop.time() - started:.3f}"


async def main(url: str) -> None:
    loop = asyncio.get_running_loop()
    lines = asyncio.StreamReader()
    await loop.connect_read_pipe(lambda: asyncio.StreamReaderProtocol(lines), sys.stdin)
    async with replica(url) as one, Redis.from_url(url) as counter:
        print("ready", flush=True)  # noqa: T201 - a program that talks to the test
        while line := await lines.readline():
            print(await ask(one, counter, line.decode().strip()), flush=True)  # noqa: T201 - likewise


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1]))
