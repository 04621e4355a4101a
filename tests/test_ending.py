"""The end of the process, seen from outside."""

import re
from pathlib import Path

import pytest

from tests.instruments.processes import python


@pytest.mark.parametrize(
    ("read", "left"),
    [
        ("async def read(self, uri): await never()", "task stuck"),
        ("async def read(self, uri): asyncio.create_task(never(), name='mine')", "task mine"),
        ("async def read(self, uri): await asyncio.to_thread(time.sleep, 60)", "thread asyncio_0"),
        ("def read(self, uri): time.sleep(60)", "stuck: calls"),
        (
            "async def read(self, uri): threading.Thread(target=time.sleep, args=(60,), name='mine').start()",
            "thread mine",
        ),
        ("async def read(self, uri): await anext(held)", "task asynchronous generators"),
    ],
    ids=["task", "own-task", "executor", "thread", "own-thread", "generator"],
)
def test_code_that_never_ends_does_not_keep_serve_from_ending(read: str, left: str, tmp_path: Path) -> None:
    """What heeds no cancellation, or blocks, is left behind by name, and the exit is a clean one."""
    (tmp_path / "stuck.py").write_text(
        f"""
import asyncio, threading, time

async def never():
    while True:
        try:
            await asyncio.sleep(60)
        except asyncio.CancelledError:
            pass

async def endless():
    try:
        yield
    finally:
        await never()

held = endless()

class Stuck:
    prefix = "x://"
    def list(self, cursor): return []
    {read}
"""
    )
    file = tmp_path / "federator.yaml"
    file.write_text(
        "server: {port: 0, admin_port: 0, grace: 100ms}\n"
        "upstreams: {stuck: {repository: 'stuck:Stuck', timeout: 300ms}}\n"
    )
    env = {"PYTHONPATH": f"{tmp_path}:{Path.cwd()}"}
    with python("-m", "mcp_federator", "serve", "-c", str(file), env=env) as child:
        url = child.wait_for(r"MCP endpoint (\S+)")[1]
        with python("-m", "mcp_federator", "read", "stuck+x://1", "--url", url) as reading:
            assert reading.ended() == 1, reading.output
        child.signal()
        assert child.ended(10) == 0
        assert re.search(rf"warning .*{left}.*left behind|left behind.*{left}", child.output), child.output
        assert "Traceback" not in child.output


def test_threads_of_a_pool_that_have_nothing_to_do_are_no_matter(tmp_path: Path) -> None:
    """A repository need not shut its own pool down for the process to end, and nothing is said of it."""
    (tmp_path / "pooled.py").write_text(
        """
from concurrent.futures import ThreadPoolExecutor

class Pooled:
    prefix = "x://"
    pool = ThreadPoolExecutor(4)
    def list(self, cursor): return []
    def read(self, uri): return self.pool.submit(str, "text").result()
"""
    )
    file = tmp_path / "federator.yaml"
    file.write_text("upstreams: {pooled: {repository: 'pooled:Pooled'}}\n")
    env = {"PYTHONPATH": f"{tmp_path}:{Path.cwd()}"}
    with python("-m", "mcp_federator", "read", "pooled+x://1", "-c", str(file), env=env) as child:
        assert child.ended(10) == 0
        assert child.output.splitlines()[-2] == "text"
