"""A hundred readers of one public URI that nobody has read before: how often the upstream is asked."""

import asyncio
from collections.abc import Iterator

from aiohttp import ClientSession, TCPConnector

from benchmarks.messages import Message, message
from benchmarks.rig import Rig, Row

READERS = 100


def rows(rig: Rig) -> Iterator[Row]:
    """The most calls that any of the URIs cost."""
    upstreams = rig.upstreams(delay=0.2)
    federator = rig.federator(upstreams)
    calls = []
    for trial in range(rig.effort.trials):
        before = upstreams.calls("resources/read")
        asyncio.run(_crowd(federator.url, message("resources/read", uri=f"up0+file:///articles/{trial}.md")))
        calls.append(upstreams.calls("resources/read") - before)
    yield Row("one_flight", max(calls), "calls", 1, detail={"readers": READERS, "all": calls})


async def _crowd(url: str, read: Message) -> None:
    async with ClientSession(connector=TCPConnector(limit=READERS)) as client:

        async def one() -> None:
            async with client.post(url, data=read.body, headers=read.headers) as answer:
                assert '"contents"' in await answer.text()

        await asyncio.gather(*(one() for _ in range(READERS)))
