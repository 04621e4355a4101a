"""What the benchmarks stand on: their upstream is an MCP server, and without wrk they say so."""

import asyncio
from pathlib import Path

from mcp_types import TextResourceContents

from tests.instruments import clients
from tests.instruments.processes import python


def test_without_wrk_they_end_with_2(tmp_path: Path) -> None:
    """A machine without wrk is told what is missing."""
    with python("-m", "benchmarks", env={"PATH": str(tmp_path)}) as process:
        assert process.ended() == 2
        assert "wrk is not installed" in process.output


def test_the_scripted_upstream_is_a_server() -> None:
    """The official client lists and reads through the upstream that the benchmarks measure with."""

    async def body(url: str) -> None:
        async with clients.sdk(url) as reader:
            assert len(await clients.resources(reader)) == 3
            result = await reader.read("file:///articles/1.md")
            [content] = result.contents
            assert isinstance(content, TextResourceContents)
            assert (len(content.text), content.uri) == (1024, "file:///articles/1.md")
            assert (result.ttl_ms, result.cache_scope) == (7, "private")

    with python("-m", "benchmarks.upstream", "--items", "3", "--ttl", "7", "--scope", "private") as process:
        port = process.wait_for(r"listens on (\d+)\n")[1]
        asyncio.run(body(f"http://127.0.0.1:{port}/mcp"))
