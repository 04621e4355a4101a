"""Where scripted child processes play: what they were told, what reached them, and that none is left.

    async with Stage(answers={"resources/read": [["result", {...}]]}) as stage:
        ...use stage.upstream(), the settings of an upstream with `command`...
        await stage.got("resources/read")

The children are `stdio_child.py`; their steps are described there.
"""

import asyncio
import json
import shutil
import sys
import tempfile
from collections import Counter
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from mcp_federator.config import Upstream

PATIENCE = 15.0
"""Seconds after which waiting for a child is a failed test."""

_SCRIPT = str(Path(__file__).with_name("stdio_child.py"))

Steps = list[Any]


def result(value: Any) -> Steps:
    return [["result", value]]


def error(code: int) -> Steps:
    return [["error", code]]


MODERN: Steps = result(
    {
        "resultType": "complete",
        "supportedVersions": ["2026-07-28"],
        "capabilities": {"resources": {}},
        "serverInfo": {"name": "child", "version": "1"},
        "ttlMs": 0,
        "cacheScope": "private",
    }
)
INITIALIZED: Steps = result(
    {
        "protocolVersion": "2025-06-18",
        "capabilities": {"resources": {}},
        "serverInfo": {"name": "old child", "version": "1"},
    }
)
ONE: Steps = result({"resultType": "complete", "contents": [{"uri": "x://1", "text": "one"}]})


class Stage:
    """Children that share one plan; `opening` and `answers` are steps.

    Attributes:
        born: the process ids of those that were started, in order.
        received: the messages that reached any of them.
    """

    def __init__(self, *, opening: Steps | None = None, answers: dict[str, Steps] | None = None) -> None:
        self._plan = {
            "opening": opening or [],
            "answers": {"server/discover": MODERN, "resources/read": ONE, **(answers or {})},
        }
        self._news = asyncio.Event()
        self._alive: set[asyncio.StreamWriter] = set()
        self._listening: set[asyncio.Task[None]] = set()
        self._seen: Counter[str] = Counter()
        self.born: list[int] = []
        self.received: list[dict[str, Any]] = []

    async def __aenter__(self) -> Self:
        self._directory = tempfile.mkdtemp()
        self._path = f"{self._directory}/s"
        self._server = await asyncio.start_unix_server(self._meet, self._path, limit=64 << 20)
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, problem: BaseException | None, trace: TracebackType | None
    ) -> None:
        try:
            if kind is None:
                await self.all_gone()
        finally:
            self._server.close()
            for writer in self._alive:
                writer.close()
            # One that came while we looked has a task all the same.
            await asyncio.gather(*self._listening)
            shutil.rmtree(self._directory)

    def upstream(self, **settings: Any) -> Upstream:
        """Settings of an upstream that is such a child."""
        return Upstream(**self.command, **settings)

    @property
    def command(self) -> dict[str, Any]:
        """`command` and `args`."""
        return {"command": sys.executable, "args": ("-S", "-I", _SCRIPT, self._path)}

    def order(self, word: str) -> None:
        """Let those go on that wait for this word."""
        for writer in self._alive:
            writer.write(f"{word}\n".encode())

    def calls(self, method: str) -> list[dict[str, Any]]:
        """What came of this method."""
        return [message for message in self.received if message.get("method") == method]

    async def got(self, method: str, count: int = 1) -> list[dict[str, Any]]:
        """Wait until a method came so often."""
        await self._until(lambda: len(self.calls(method)) >= count)
        return self.calls(method)

    async def starts(self, count: int = 1) -> None:
        """Wait until so many were started."""
        await self._until(lambda: len(self.born) >= count)

    async def ends(self, count: int = 1) -> None:
        """Wait until so many have ended, with all that they started."""
        await self._until(lambda: self._seen["gone"] >= count)

    async def input_ends(self) -> None:
        """Wait until one has seen the end of its stdin."""
        await self._until(lambda: self._seen["end of input"] > 0)

    async def all_gone(self) -> None:
        """Wait until no child is left, nor a child of one."""
        await self._until(lambda: not self._alive)

    async def _until(self, holds: Any) -> None:
        async with asyncio.timeout(PATIENCE):
            while not holds():
                self._news.clear()
                await self._news.wait()

    def _meet(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        # At once: until a task had its first turn, a child that runs would count for one that is gone.
        self._alive.add(writer)
        writer.write(json.dumps(self._plan).encode() + b"\n")
        task = asyncio.get_running_loop().create_task(self._listen(reader, writer))
        self._listening.add(task)
        task.add_done_callback(self._listening.discard)

    async def _listen(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            while line := await _line(reader):
                what, value = json.loads(line)
                self._seen[what] += 1
                if what == "born":
                    self.born.append(value)
                elif what == "got":
                    self.received.append(value)
                self._news.set()
                writer.write(b"heard\n")
        finally:
            self._alive.discard(writer)
            self._seen["gone"] += 1
            writer.close()
            self._news.set()


async def _line(reader: asyncio.StreamReader) -> bytes:
    try:
        return await reader.readuntil(b"\n")
    except asyncio.IncompleteReadError:
        return b""
    except ConnectionError:
        return b""
