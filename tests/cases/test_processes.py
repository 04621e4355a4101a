"""The whole product and the processes it starts: none outlives what it was started for."""

import asyncio
import json
import os
import signal
from pathlib import Path
from typing import Any

import pytest

from mcp_federator import config
from mcp_federator.app import App
from tests.instruments.house import PATIENCE, body_of, headers_of, running
from tests.instruments.processes import python
from tests.instruments.stdio import Stage, result

LISTED = {"resources/list": result({"resources": [{"uri": "x://1", "name": "one"}]})}
STUBBORN: list[Any] = [["stubborn", 0], ["stay", 0], ["fork", 0]]


def written(path: Path, *stages: Stage) -> str:
    """A file with these children as upstreams `u0`, `u1` and so on; each has a long grace time to go."""
    upstreams = {f"u{number}": stage.command for number, stage in enumerate(stages)}
    path.write_text(
        json.dumps({"server": {"port": 0, "admin_port": 0, "grace": 0.1}, "upstreams": upstreams})
    )
    return str(path)


def test_a_reload_ends_what_it_takes_away(tmp_path: Path) -> None:
    """And leaves what stays as it is: the same process, asked nothing new."""
    path = tmp_path / "federator.json"

    async def check() -> None:
        async with Stage(answers=LISTED) as kept, Stage(answers=LISTED, opening=STUBBORN) as removed:
            written(path, kept, removed)
            app = App(config.load(path, {}), reload=lambda: config.load(path, {}))
            async with running(app) as it:
                assert (await it.page()).uris == ["u0+x://1", "u1+x://1"]
                written(path, kept)
                os.kill(os.getpid(), signal.SIGHUP)
                await removed.all_gone()
                assert (await it.page()).uris == ["u0+x://1"]
                assert len(kept.born) == len(removed.born) == 1
                assert len(kept.calls("server/discover")) == 1

    asyncio.run(check())


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_ends_all_processes(tmp_path: Path, number: signal.Signals) -> None:
    """We end them, all at once, before we end ourselves."""

    async def check() -> None:
        async with Stage() as heeding, Stage(opening=STUBBORN) as one, Stage(opening=STUBBORN) as other:
            path = written(tmp_path / "federator.json", heeding, one, other)
            with python("-m", "mcp_federator", "serve", "-c", path) as us:
                for stage in (heeding, one, other):
                    await stage.got("server/discover")
                us.signal(number)
                await heeding.input_ends()
                assert await asyncio.to_thread(us.ended, PATIENCE) == 0
            for stage in (heeding, one, other):
                await stage.all_gone()

    asyncio.run(check())


def test_no_request_is_lost_at_a_stop(tmp_path: Path) -> None:
    """Clients that ask on without a pause get an answer to each request; the last says so."""
    (tmp_path / "shelf").mkdir()
    (tmp_path / "shelf" / "a.md").write_text("a")
    path = tmp_path / "federator.json"
    shelf = {"directory": str(tmp_path / "shelf"), "cache": {"default_ttl": 60}}
    path.write_text(json.dumps({"server": {"port": 0, "admin_port": 0}, "upstreams": {"shelf": shelf}}))
    params = {"uri": "shelf+file:///a.md"}
    body = json.dumps(body_of("resources/read", params)).encode()
    fields = {**headers_of("resources/read", params), "Host": "x", "Content-Length": str(len(body))}
    head = "".join(f"{name}: {value}\r\n" for name, value in fields.items())
    sent = f"POST /mcp HTTP/1.1\r\n{head}\r\n".encode() + body

    async def ask_on(port: int, warm: asyncio.Barrier) -> int:
        """How many were answered, up to the one that was told to be the last."""
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        count = 0
        while True:
            writer.write(sent)
            reply = (await reader.readuntil(b"\r\n\r\n")).lower()
            await reader.readexactly(int(reply.partition(b"content-length: ")[2].partition(b"\r\n")[0]))
            assert reply.startswith(b"http/1.1 200 ")
            count += 1
            if count == 20:
                await warm.wait()
            if b"connection: close" in reply:
                assert await reader.read() == b""
                writer.close()
                return count

    async def check() -> None:
        with python("-m", "mcp_federator", "serve", "-c", str(path)) as us:
            found = await asyncio.to_thread(us.wait_for, r"http://127\.0\.0\.1:(\d+)/mcp")
            warm = asyncio.Barrier(9)
            clients = [asyncio.create_task(ask_on(int(found[1]), warm)) for _ in range(8)]
            async with asyncio.timeout(PATIENCE):
                await warm.wait()
                us.signal()
                assert all(count > 20 for count in await asyncio.gather(*clients))
            assert await asyncio.to_thread(us.ended, PATIENCE) == 0

    asyncio.run(check())


def test_a_kill_ends_all_processes(tmp_path: Path) -> None:
    """Although we can do nothing any more."""

    async def check() -> None:
        async with Stage(opening=STUBBORN) as stage:
            path = written(tmp_path / "federator.json", stage)
            with python("-m", "mcp_federator", "serve", "-c", path) as us:
                await stage.got("server/discover")
                us.signal(signal.SIGKILL)
                await stage.all_gone()

    asyncio.run(check())
