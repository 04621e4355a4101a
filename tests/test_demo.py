"""examples/demo.py, run as a user runs it, on ports of its own."""

import os
import random
import re
import signal
import socket
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest

from tests.instruments.processes import Child, python

DEMO = Path(__file__).parent.parent / "examples" / "demo.py"


def free_ports(count: int) -> list[int]:
    """Below those that the system gives to connections, or one of these could take a port before its turn."""
    ports: list[int] = []
    for port in random.sample(range(20_000, 32_000), 1000):
        with suppress(OSError), socket.create_server(("127.0.0.1", port)):
            ports.append(port)
        if len(ports) == count:
            break
    return ports


@contextmanager
def demo(ports: list[int], *flags: str, env: dict[str, str] | None = None) -> Iterator[Child]:
    port, admin_port, *servers = map(str, ports)
    arguments = ["--port", port, "--admin-port", admin_port, "--server-ports", *servers, *flags]
    with python(str(DEMO), *arguments, env=env) as process:
        yield process


def children(pid: int) -> list[int]:
    return [int(each) for each in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]


def command_line(pid: int) -> str:
    return Path(f"/proc/{pid}/cmdline").read_text()


def listening(ports: list[int]) -> list[int]:
    def answers(port: int) -> bool:
        with socket.socket() as probe:
            return probe.connect_ex(("127.0.0.1", port)) == 0

    return [port for port in ports if answers(port)]


def test_once_shows_everything_and_ends() -> None:
    """All six are listed, a read stands still for ten seconds, a touched file is told, all is counted."""
    ports = free_ports(6)
    with demo(ports, "--once") as process:
        assert process.ended(50) == 0, process.output
        output = process.output
    for line in (
        "handbook+file:///handbook/travel/costs.md",
        "desk+desk://clock",
        "cabinet+urn:isbn:0451450523",
        "cabinet+file:///handbook/travel/costs.md",
        "ledger+ledger://2026/03",
        "notebook+note:monday",
        "folder+file:///recipes/plain%20bread.txt",
    ):
        assert re.search(rf"^{re.escape(line)} ", output, re.MULTILINE), output
    first, second = re.findall(r"look number (\d+)", output)
    assert first == second
    assert "Month 3: 40 sold, 5 returned." in output
    assert "updated folder+file:///welcome.md" in output
    assert re.search(
        r'cache_requests_total\{.*"resources/read",outcome="hit".*upstream="desk"\} 1\.0', output
    )
    assert not listening(ports)


def test_an_interrupt_ends_all_its_processes() -> None:
    """Ctrl-C ends the demo with 0, and nothing it started is left."""
    ports = free_ports(6)
    with demo(ports) as process:
        process.wait_for(r"Ctrl-C ends it all", timeout=50)
        parts = children(process.pid)
        assert len(parts) == 5
        started = [each for part in parts for each in children(part)]
        assert any("notebook.py" in command_line(each) for each in started)
        assert listening(ports) == ports
        process.signal(signal.SIGINT)
        assert process.ended() == 0, process.output
        assert "Traceback" not in process.output
    assert not listening(ports)
    assert not [each for each in started if Path(f"/proc/{each}").exists()]


def test_a_part_that_dies_ends_the_demo() -> None:
    """A server that goes away while the demo runs ends it with 1, and it says which one it was."""
    ports = free_ports(6)
    with demo(ports) as process:
        process.wait_for(r"Ctrl-C ends it all", timeout=50)
        [desk] = [each for each in children(process.pid) if "desk.py" in command_line(each)]
        os.kill(desk, signal.SIGKILL)
        assert process.ended() == 1, process.output
        assert "desk ended with -9" in process.output
    assert not listening(ports)


@pytest.mark.parametrize("at", [0, 1, 3], ids=["endpoint", "admin", "desk"])
def test_a_taken_port_is_named(at: int) -> None:
    """A port that somebody has ends the demo with 1 and is named together with who needs it."""
    ports = free_ports(6)
    with socket.create_server(("127.0.0.1", ports[at])), demo(ports, "--once") as process:
        assert process.ended(30) == 1
        who = "desk" if at == 3 else "the federator"
        assert f"port {ports[at]}, which {who} needs, is taken" in process.output
    assert not listening(ports)


def test_a_server_that_cannot_start_is_quoted(tmp_path: Path) -> None:
    """What a failing server said stands in the demo's own last words."""
    (tmp_path / "uvicorn.py").write_text("raise SystemExit('no uvicorn today')")
    with demo(free_ports(6), "--once", env={"PYTHONPATH": str(tmp_path)}) as process:
        assert process.ended(30) == 1
        assert re.search(r"handbook ended with 1; handbook said:\n +no uvicorn today", process.output)
