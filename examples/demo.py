"""Six upstreams of four kinds behind one federator, ready to be tried.

Four are MCP servers over HTTP, three of revision 2026-07-28 and one of 2025, each a process of ours; one is a
server over stdio that the federator starts; one is a directory.  Starts them, waits until the federator has
really reached all six, says what to try, and runs until Ctrl-C.
Whatever goes wrong ends the whole with exit code 1 and the words of the process that failed.
"""

import argparse
import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
import urllib.request
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path
from types import FrameType
from typing import IO

HERE = Path(__file__).parent
SERVERS = {"handbook": 9101, "desk": 9102, "cabinet": 9103, "ledger": 9104}
UPSTREAMS = [*SERVERS, "notebook", "folder"]
PATIENCE = 30
GRACE = 10
SHOWN_LINES = 20


class DemoError(Exception):
    """Why the demo cannot go on."""


class Part:
    """One process of the demo, and what it says."""

    def __init__(self, name: str, command: list[str], environment: dict[str, str]) -> None:
        self.name = name
        self._output: IO[bytes] = tempfile.TemporaryFile()  # noqa: SIM115 - closed by end
        # In a group of its own, so that Ctrl-C reaches the demo alone, which then ends its parts in order.
        self._process = subprocess.Popen(  # noqa: S603 - our own programs
            [sys.executable, *command],
            stdin=subprocess.DEVNULL,
            stdout=self._output,
            stderr=subprocess.STDOUT,
            env={**os.environ, **environment},
            start_new_session=True,
        )

    def check(self) -> None:
        """Raise if the process has ended."""
        # What it said before it ended is in the file once it has ended.
        code = self._process.poll()
        if code is not None:
            raise DemoError(f"{self.name} ended with {code}; {self.said()}")

    def wait_for(self, words: str) -> None:
        """Return when it has said so; raise if it ends or takes too long."""
        deadline = time.monotonic() + PATIENCE
        while words not in self._all():
            self.check()
            if time.monotonic() > deadline:
                raise DemoError(f"{self.name} is not ready after {PATIENCE} s; {self.said()}")
            time.sleep(0.05)

    def said(self) -> str:
        """The end of what it has said, to be shown."""
        lines = self._all().splitlines()[-SHOWN_LINES:] or ["nothing"]
        return f"{self.name} said:\n" + "".join(f"    {line}\n" for line in lines)

    def _all(self) -> str:
        size = os.fstat(self._output.fileno()).st_size
        return os.pread(self._output.fileno(), size, 0).decode(errors="replace")

    def end(self) -> None:
        """Ask it to end, and kill it if it does not."""
        self._process.terminate()
        try:
            self._process.wait(GRACE)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        self._output.close()


def refuse_taken(who: str, port: int) -> None:
    """Raise if the port is not free."""
    with socket.socket() as probe:
        # As the servers do: a port that only waits for old connections to die is free.
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind(("127.0.0.1", port))
        except OSError as problem:
            raise DemoError(f"port {port}, which {who} needs, is taken ({problem.strerror})") from None


def start(stack: ExitStack, ports: dict[str, int], port: int, admin_port: int) -> list[Part]:
    """Start the servers, then the federator; `stack` ends them, the federator first."""
    federator = "the federator"
    for who, needed in (*ports.items(), (federator, port), (federator, admin_port)):
        refuse_taken(who, needed)
    parts = []
    for name, number in ports.items():
        parts.append(Part(name, [str(HERE / f"{name}.py"), "--port", str(number)], {}))
        stack.callback(parts[-1].end)
    for part in parts:
        part.wait_for("listens on")
    command = ["-m", "mcp_federator", "serve", "-c", str(HERE / "federator.yaml")]
    command += ["--port", str(port), "--admin-port", str(admin_port)]
    environment = {f"{name.upper()}_PORT": str(number) for name, number in ports.items()}
    environment["PYTHON"] = sys.executable
    parts.append(Part(federator, command, environment))
    stack.callback(parts[-1].end)
    parts[-1].wait_for("MCP endpoint")
    return parts


def wait_until_reached(parts: list[Part], endpoint: str, status_url: str) -> None:
    """Return when the federator has reached every upstream and lists something of each."""
    deadline = time.monotonic() + PATIENCE
    unreached: dict[str, str] = dict.fromkeys(UPSTREAMS, "not asked yet")
    while unreached:
        for part in parts:
            part.check()
        if time.monotonic() > deadline:
            trouble = ", ".join(f"{name} ({why})" for name, why in unreached.items())
            said = "".join(part.said() for part in parts)
            raise DemoError(f"not reached within {PATIENCE} s: {trouble}\n{said}")
        time.sleep(0.1)
        try:
            with urllib.request.urlopen(status_url, timeout=5) as answer:  # noqa: S310 - our own port
                upstreams = json.load(answer)["upstreams"]
        except OSError as problem:
            unreached = dict.fromkeys(UPSTREAMS, f"{status_url}: {problem}")
            continue
        unreached = {each["name"]: each["error"] or "no answer yet" for each in upstreams if not each["up"]}
    listed = run_command(["list", "--url", endpoint])
    for name in UPSTREAMS:
        if not any(line.startswith(f"{name}+") for line in listed.splitlines()):
            raise DemoError(f"nothing of {name} is listed:\n{listed}")


def run_command(arguments: list[str]) -> str:
    """The output of `mcp-federator ARGUMENTS`."""
    command = [sys.executable, "-m", "mcp_federator", *arguments]
    done = subprocess.run(  # noqa: S603 - our own program
        command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, timeout=PATIENCE, check=False
    )
    if done.returncode:
        raise DemoError(f"mcp-federator {' '.join(arguments)} ended with {done.returncode}:\n{done.stdout}")
    return done.stdout


def hear_of_a_touch(arguments: list[str], file: Path) -> str:
    """What `mcp-federator ARGUMENTS` prints when the file is touched."""
    listener = Part("mcp-federator listen", ["-m", "mcp_federator", *arguments], {})
    try:
        listener.wait_for("listening")
        for _ in range(PATIENCE):
            file.touch()
            time.sleep(1)
            if "updated" in listener.said():
                break
        return listener.said()
    finally:
        listener.end()


def from_here(path: Path) -> str:
    """A path as it is written in a terminal that stands where this one does."""
    return str(path.relative_to(Path.cwd()) if path.is_relative_to(Path.cwd()) else path)


def program() -> str:
    """How to call `mcp-federator` from there."""
    ours = Path(sys.executable).with_name("mcp-federator")
    found = shutil.which("mcp-federator")
    if found is not None and Path(found).samefile(ours):
        return "mcp-federator"
    return from_here(ours)


def things_to_try(endpoint: str, admin: str) -> list[tuple[str, str, Callable[[], str]]]:
    """What to type, what it shows, and how the demo does it by itself."""
    uri = "desk+desk://clock"
    metrics = f"{admin}/metrics"
    say = program()
    listing = ["list", "--url", endpoint]
    reading = ["read", uri, "--url", endpoint]
    elsewhere = ["read", "ledger+ledger://2026/03", "--url", endpoint]
    listening = ["listen", "folder+file:///welcome.md", "--url", endpoint]
    file = HERE.resolve() / "folder" / "welcome.md"

    def counted() -> str:
        with urllib.request.urlopen(metrics, timeout=5) as answer:  # noqa: S310 - our own port
            lines = answer.read().decode().splitlines()
        return "\n".join(line for line in lines if "cache_requests" in line)

    return [
        (
            f"{say} {' '.join(listing)}",
            "all six in one list, each resource under its upstream's name",
            lambda: run_command(listing),
        ),
        (
            f"{say} {' '.join(reading)}",
            "say it twice: the number stands still for ten seconds, so long the desk lets a copy be kept",
            lambda: run_command(reading) + run_command(reading),
        ),
        (
            f"{say} {' '.join(elsewhere)}",
            "of a server of the 2025 revisions, which said nothing of how long: the configuration did",
            lambda: run_command(elsewhere),
        ),
        (
            f"{say} {' '.join(listening)}",
            f"prints a line, within a second, for each `touch {from_here(file)}` in a third terminal",
            lambda: hear_of_a_touch(listening, file),
        ),
        (
            f"curl -s {metrics} | grep cache_requests",
            "how many queries were hits, misses and so on, for each upstream",
            counted,
        ),
    ]


def options_of_the_command_line() -> argparse.Namespace:
    """Which ports, and whether to end by itself."""
    parser = argparse.ArgumentParser(description="Six upstreams behind one federator.")
    parser.add_argument("--port", type=int, default=8080, help="port of the endpoint")
    parser.add_argument("--admin-port", type=int, default=8081, help="port of the admin listener")
    parser.add_argument(
        "--server-ports",
        type=int,
        nargs=len(SERVERS),
        default=list(SERVERS.values()),
        metavar="PORT",
        help="ports of " + ", ".join(SERVERS),
    )
    parser.add_argument("--once", action="store_true", help="do what there is to try, then end")
    options = parser.parse_args()
    ports = [options.port, options.admin_port, *options.server_ports]
    if not all(0 < port < 1 << 16 for port in ports) or len({*ports}) < len(ports):
        parser.error("expected ports from 1 to 65535, each another one")
    return options


def main() -> int:
    """Run the demo."""
    options = options_of_the_command_line()

    def interrupt(_: int, __: FrameType | None) -> None:
        raise KeyboardInterrupt

    # Also where the shell that started us lets background work ignore Ctrl-C.
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, interrupt)
    endpoint = f"http://127.0.0.1:{options.port}/mcp"
    admin = f"http://127.0.0.1:{options.admin_port}"
    try:
        with ExitStack() as stack:
            ports = dict(zip(SERVERS, options.server_ports, strict=True))
            print(f"Starting {', '.join(UPSTREAMS)} and the federator...", flush=True)
            parts = start(stack, ports, options.port, options.admin_port)
            wait_until_reached(parts, endpoint, f"{admin}/status")
            print(f"\nOne MCP endpoint over {', '.join(UPSTREAMS)}: {endpoint}")
            print("Give it to any MCP client (streamable HTTP), or try, in another terminal:\n")
            for command, shows, act in things_to_try(endpoint, admin):
                print(f"  {command}\n      {shows}\n", flush=True)
                if options.once:
                    print(act(), flush=True)
            if not options.once:
                print("Ctrl-C ends it all.", flush=True)
            while not options.once:
                time.sleep(0.5)
                for part in parts:
                    part.check()
    except KeyboardInterrupt:
        print("\nEnded.")
    except (DemoError, OSError, subprocess.TimeoutExpired) as problem:
        print(f"The demo cannot go on: {problem}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
