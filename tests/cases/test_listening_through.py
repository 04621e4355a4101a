"""Real clients of every era before real upstreams of every kind: changes are told, and then reads are new.

One federator stands before all of them; copies may be kept for an hour.
"""

import asyncio
import re
import signal
import sys
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import ExitStack, asynccontextmanager, suppress
from pathlib import Path
from typing import Any

import pytest

from mcp_federator.model import ANYONE, Method, Query
from tests.instruments import legacy
from tests.instruments.house import House, house
from tests.instruments.processes import Child, child, python

ROOT = Path(__file__).parents[2]
TELLING = str(ROOT / "tests/instruments/telling.py")
NODE = ["node", str(legacy.NODE_FOLDER / "listener.mjs")]
KEPT = {"cache": {"default_ttl": "1h"}}
PATIENCE = 20.0

CLIENTS = {
    "command": [sys.executable, "-u", "-m", "mcp_federator", "listen", "--lists", "--url"],
    "python-legacy": [legacy.PYTHON, "-u", str(ROOT / "tests/legacy/listener.py")],
    "typescript": [*NODE, "modern"],
    "typescript-legacy": [*NODE, "legacy"],
}
RESOURCES = {
    "modern": "tell://a",
    "piped": "tell://a",
    "old": "file:///notes/1.md",
    "old-piped": "file:///notes/1.md",
    "folder": "file:///a.txt",
}
"""What is listened to at each upstream."""


def run(body: Coroutine[Any, Any, None]) -> None:
    """Run a test's body to its end; processes of all kinds take their time to start."""
    asyncio.run(asyncio.wait_for(body, 50))


class Street:
    """The federator, and what changes at its upstreams."""

    def __init__(self, it: House, folder: Path) -> None:
        self.it = it
        self.folder = folder

    async def edit(self, name: str) -> None:
        """Change the resource at an upstream."""
        if name == "folder":
            file = self.folder / "a.txt"
            file.write_text(file.read_text() + "!")
        else:
            native = RESOURCES[name].replace("tell://", "tell://edit/").replace("notes/", "notes/edit/")
            # Past the cache, which would keep what is said to that as well.
            await self.it.app._federation.clients[name].fetch(Query(Method.READ, native), ANYONE)

    async def text(self, name: str) -> str:
        """What it is now, as we serve it."""
        reply = await self.it.read(f"{name}+{RESOURCES[name]}")
        return str(reply.result["contents"][0]["text"])

    async def edited(self, name: str, told: Callable[[], bool]) -> None:
        """Change it until that is told: an acknowledgement comes before the upstream was asked to tell."""
        for _ in range(10):
            await self.edit(name)
            with suppress(TimeoutError):
                await until(told, 1)
                return
        raise AssertionError("nothing is told")


@asynccontextmanager
async def street(folder: Path) -> AsyncIterator[Street]:
    """A federator before all kinds of upstreams."""
    (folder / "a.txt").write_text("text")
    with ExitStack() as stack:
        modern = stack.enter_context(child(sys.executable, "-u", TELLING, "http", "0"))
        upstreams: dict[str, Any] = {
            "modern": modern.wait_for(r"listens on (\S+)")[1],
            "piped": {"command": sys.executable, "args": [TELLING, "stdio"]},
            "old": {"url": stack.enter_context(legacy.http_server()), **KEPT},
            "old-piped": {**legacy.stdio_server(), **KEPT},
            "folder": {"directory": str(folder), **KEPT},
        }
        async with house(upstreams) as it:
            yield Street(it, folder)


def line(name: str, text: str = "") -> str:
    """What a listener prints when it is told of an upstream's resource, and has read it."""
    return rf"(?m)^updated {re.escape(f'{name}+{RESOURCES[name]}')}{re.escape(f' {text}') if text else '.*'}$"


async def until(true: Callable[[], bool], seconds: float = PATIENCE) -> None:
    async with asyncio.timeout(seconds):
        while not true():  # noqa: ASYNC110 - what is waited for happens in another process
            await asyncio.sleep(0.01)


async def said(listener: Child, pattern: str) -> None:
    await asyncio.to_thread(listener.wait_for, pattern, PATIENCE)


@pytest.mark.parametrize(
    "kind",
    [pytest.param(kind, marks=legacy.needs_node if "typescript" in kind else []) for kind in CLIENTS],
)
def test_H31_H32_any_client_hears_of_any_upstream(kind: str, tmp_path: Path) -> None:
    """Of each resource it listens to, and of lists, within a second; and what it reads then is new."""
    uris = [f"{name}+{native}" for name, native in RESOURCES.items()]

    async def body() -> None:
        async with street(tmp_path) as there:
            with child(*CLIENTS[kind], there.it.url, *uris) as listener:
                await said(listener, "listening")
                for name in RESOURCES:
                    before = await there.text(name)
                    assert await there.text(name) == before

                    def told(pattern: str = line(name)) -> bool:
                        return re.search(pattern, listener.output) is not None

                    await there.edited(name, told)
                    await asyncio.sleep(0.3)
                    count = len(re.findall(line(name), listener.output))

                    def told_again(pattern: str = line(name), count: int = count) -> bool:
                        return len(re.findall(pattern, listener.output)) > count

                    await there.edit(name)
                    await until(told_again, 2)
                    assert await there.text(name) != before
                    if kind != "command":
                        await said(listener, line(name, await there.text(name)))
                (tmp_path / "b.txt").write_text("new")
                await said(listener, r"(?m)^list_changed$")
                assert "folder+file:///b.txt" in (await there.it.page()).uris
                listener.signal(signal.SIGINT)

    run(body())


def test_a_federator_behind_a_federator_tells(tmp_path: Path) -> None:
    """What the inner one tells the outer one's clients hear, under both prefixes."""
    (tmp_path / "a.txt").write_text("text")

    async def body() -> None:
        async with (
            house({"in": {"directory": str(tmp_path), **KEPT}}) as inner,
            house({"out": inner.url}) as outer,
        ):
            uri = "out+in+file:///a.txt"
            there = Street(outer, tmp_path)
            with python("-m", "mcp_federator", "listen", uri, "--url", outer.url) as listener:
                await said(listener, "listening")
                assert (await outer.read(uri)).result["contents"][0]["text"] == "text"
                await there.edited("folder", lambda: f"updated {uri}" in listener.output)
                text = (tmp_path / "a.txt").read_text()
                assert (await outer.read(uri)).result["contents"][0]["text"] == text != "text"

    run(body())
