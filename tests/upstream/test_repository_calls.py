"""How a repository's methods are called: on the loop or in a thread, within bounds."""

import asyncio
import threading
from dataclasses import dataclass
from typing import Any

from mcp_federator.config import Duration, Size
from mcp_federator.errors import Reason
from tests.upstream.asking import run
from tests.upstream.mounted import Repo, mounted


@dataclass
class Own:
    uri: str
    name: str


def test_methods_may_be_async() -> None:
    """All of them, on the loop's own thread."""

    class Async:
        prefix = "x:"

        def __init__(self) -> None:
            self.threads: Any = []

        async def list(self, cursor: str | None) -> Any:
            self.threads.append(threading.current_thread())
            return [Own("x:1", str(cursor))]

        async def parse_uri(self, uri: str) -> str:
            await asyncio.sleep(0)
            return uri + "!"

        async def read(self, what: str) -> str:
            self.threads.append(threading.current_thread())
            return what

        async def cache_control(self, _: str | None) -> Any:
            return "public", 5

        async def close(self) -> None:
            self.threads.append(None)

    async def body() -> None:
        repo = Async()
        async with mounted(repo) as alpha:
            assert (await alpha.read())[0]["text"] == "x:1!"
            assert await alpha.page()
        assert repo.threads == [threading.main_thread(), threading.main_thread(), None]

    run(body())


def test_a_sync_method_does_not_block_the_loop() -> None:
    """It waits for what only the loop can give, and gets it."""

    async def body() -> None:
        gate = threading.Event()
        async with mounted(Repo(lambda _: str(gate.wait(10)))) as alpha:
            asking = asyncio.ensure_future(alpha.read())
            await asyncio.sleep(0)
            gate.set()
            assert (await asking)[0]["text"] == "True"

    run(body())


def test_a_method_that_hangs_ends_for_its_asker() -> None:
    """At the upstream's time-out; the others go on."""

    async def body() -> None:
        gate = threading.Event()
        repo = Repo(lambda uri: gate.wait(10) if uri == "x:slow" else "text")
        async with mounted(repo, timeout=Duration(0.2)) as alpha:
            slow, fast = await asyncio.gather(alpha.fails(uri="x:slow"), alpha.read())
            assert (slow.reason, fast[0]["text"]) == (Reason.TIMEOUT, "text")
            gate.set()

    run(body())


def test_an_answer_is_bounded() -> None:
    """More than `max_response_bytes` is a bad reply."""

    async def body() -> None:
        async with mounted(Repo("x" * 2000), max_response_bytes=Size(1000)) as alpha:
            failure = await alpha.fails()
            assert (failure.reason, "more than 1000 bytes" in failure.detail) == (Reason.BAD_REPLY, True)

    run(body())


def test_more_than_max_in_flight_is_refused_at_once() -> None:
    """As with any upstream."""

    async def body() -> None:
        gate = threading.Event()
        async with mounted(Repo(lambda _: str(gate.wait(10))), max_in_flight=1) as alpha:
            first = asyncio.ensure_future(alpha.read())
            await asyncio.sleep(0)
            assert (await alpha.fails()).reason is Reason.OVERLOADED
            gate.set()
            await first

    run(body())
