"""Two replicas over one Redis, read by sixteen clients in Zipf's order: how often the upstream is asked.

Every answer may be kept by all for longer than the benchmark takes, so one call for each key is the least.
"""

import asyncio
import random
from collections.abc import Iterator
from itertools import accumulate

from aiohttp import ClientSession, TCPConnector

from benchmarks.messages import message
from benchmarks.rig import Rig, Row

KEYS = 1_000
READERS = 16
SEED = 4


def rows(rig: Rig) -> Iterator[Row]:
    """The promise: the calls, at most one for each key that was read and a hundredth more."""
    redis = rig.redis()
    upstreams = rig.upstreams(delay=0.01)
    cache = {"redis": {"url": redis.url}}
    urls = [rig.federator(upstreams, cache=cache).url for _ in range(2)]
    weights = list(accumulate(1 / rank for rank in range(1, KEYS + 1)))
    keys = random.Random(SEED).choices(range(KEYS), cum_weights=weights, k=rig.effort.reads // 10)
    asyncio.run(_read(urls, keys))
    calls, known = upstreams.calls("resources/read"), len(set(keys))
    detail = {"keys": known, "reads": len(keys), "replicas": len(urls)}
    yield Row("redis_zipf", calls, "calls", known * 101 // 100, detail=detail)


async def _read(urls: list[str], keys: list[int]) -> None:
    """Read all keys, in this order as far as there are readers, on each replica by turns."""
    work = iter(enumerate(keys))
    async with ClientSession(connector=TCPConnector(limit=READERS)) as client:

        async def reader() -> None:
            for number, key in work:
                read = message("resources/read", uri=f"up0+file:///articles/{key}.md")
                async with client.post(
                    urls[number % len(urls)], data=read.body, headers=read.headers
                ) as answer:
                    assert '"contents"' in await answer.text()

        await asyncio.gather(*(reader() for _ in range(READERS)))
