"""Load by wrk: POST scripts in Lua, written to a temporary folder, and what wrk counted."""

import json
import re
import shutil
import signal
import subprocess
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from time import monotonic, sleep

from benchmarks.messages import Message

CONNECTIONS = 16

_DONE = """
done = function(summary, latency)
  local e = summary.errors
  io.write(string.format('\\n@{"requests":%d,"microseconds":%d,"errors":%d,"p50":%d,"p99":%d}@\\n',
    summary.requests, summary.duration, e.connect + e.read + e.write + e.status + e.timeout,
    latency:percentile(50), latency:percentile(99)))
end
"""


@dataclass(frozen=True)
class Rate:
    """What one run counted."""

    requests: int
    per_second: float
    p50_ms: float
    p99_ms: float


def available() -> bool:
    """Whether wrk is installed."""
    return shutil.which("wrk") is not None


def same(message: Message) -> str:
    """A script that sends this message again and again."""
    headers = "".join(f"wrk.headers[ [==[{name}]==] ] = [==[{v}]==]\n" for name, v in message.headers.items())
    return f'wrk.method = "POST"\n{headers}wrk.body = [==[{message.body}]==]\n{_DONE}'


def numbered(message: Message, *, first: int = 0, callers: int = 0, cycle: int = 0) -> str:
    """A script that replaces `NUMBER` in the message's body and `Mcp-Name` by a new number each time.

    With `callers` the requests come from so many of them in turn, told apart by their tokens; with `cycle`
    the numbers begin anew after so many.
    """
    before, after = message.body.split("NUMBER")
    name_before, name_after = message.headers["Mcp-Name"].split("NUMBER")
    authorization = f'wrk.headers["Authorization"] = "Bearer token-" .. n % {callers}' if callers else ""
    return f"""
{same(message)}
local n = {first}
request = function()
  n = n + 1
  {f"if n > {first + cycle} then n = {first + 1} end" if cycle else ""}
  wrk.headers["Mcp-Name"] = [==[{name_before}]==] .. n .. [==[{name_after}]==]
  {authorization}
  return wrk.format("POST", nil, wrk.headers, [==[{before}]==] .. n .. [==[{after}]==])
end
"""


def run(
    url: str, script: str, folder: Path, *, seconds: int, enough: Callable[[], bool] = lambda: False
) -> Rate:
    """One run of wrk in one thread with 16 connections, for `seconds` or until there were `enough` requests.

    Raises:
        RuntimeError: a request failed or was answered with another status than 2xx or 3xx.
    """
    path = folder / "script.lua"
    path.write_text(script)
    command = ["wrk", "-t1", f"-c{CONNECTIONS}", f"-d{seconds}s", "--timeout", "10s", "-s", str(path), url]
    end = monotonic() + seconds
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:  # noqa: S603 - our own words
        try:
            while process.poll() is None and monotonic() < end and not enough():
                sleep(0.1)
            # It stops early on an interrupt, and counts all the same.
            if process.poll() is None and monotonic() < end:
                process.send_signal(signal.SIGINT)
            output, _ = process.communicate(timeout=30)
        except BaseException:
            process.kill()
            raise
    found = re.search(r"@(\{.*\})@", output)
    if process.returncode or not found:
        raise RuntimeError(f"wrk failed: {output}")
    counted = json.loads(found[1])
    if counted["errors"] or not counted["requests"]:
        raise RuntimeError(f"wrk saw errors: {output}")
    return Rate(
        counted["requests"],
        counted["requests"] * 1e6 / counted["microseconds"],
        counted["p50"] / 1000,
        counted["p99"] / 1000,
    )
