"""What a benchmark starts: upstreams, a federator before them, a baseline beside it; all are processes."""

import json
import os
import socket
import subprocess
import tempfile
import urllib.request
from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from statistics import median
from time import monotonic, sleep
from typing import Any, NamedTuple

from benchmarks import load
from benchmarks.messages import Message, message
from tests.instruments import redis_server
from tests.instruments.processes import Child, python


@dataclass(frozen=True)
class Row:
    """One line of the report; `limit` is the promise, None where nothing is promised."""

    name: str
    value: float
    unit: str
    limit: float | None
    at_least: bool = False
    detail: Mapping[str, Any] = field(default_factory=dict)

    @property
    def kept(self) -> bool:
        """Whether the promise is kept."""
        if self.limit is None:
            return True
        return self.value >= self.limit if self.at_least else self.value <= self.limit


@dataclass(frozen=True)
class Effort:
    """How long to measure: seconds of one run of wrk, rounds of a comparison, trials of one request."""

    seconds: int
    rounds: int
    trials: int
    reads: int


class Upstreams:
    """Scripted upstreams in one process, one port each."""

    def __init__(self, process: Child) -> None:
        self.ports = [int(port) for port in process.wait_for(r"listens on (.*)\n")[1].split()]

    @property
    def urls(self) -> list[str]:
        """Their endpoints."""
        return [f"http://127.0.0.1:{port}/mcp" for port in self.ports]

    def calls(self, method: str) -> int:
        """How often they were called, all together."""
        return int(json.loads(get(f"http://127.0.0.1:{self.ports[0]}/")).get(method, 0))


class Server:
    """A process that answers POSTs, and what it costs."""

    def __init__(self, process: Child, port: int) -> None:
        self.process = process
        self.url = f"http://127.0.0.1:{port}/mcp"

    def cpu_seconds(self) -> float:
        """Processor time it has used, in user space and in the kernel."""
        # The name of the program, in parentheses, may hold anything; what follows it is numbers.
        fields = Path(f"/proc/{self.process.pid}/stat").read_text().rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")

    def resident_mib(self) -> float:
        """Memory it holds, in MiB."""
        status = Path(f"/proc/{self.process.pid}/status").read_text()
        return round(int(status.split("VmRSS:")[1].split()[0]) / 1024, 1)


class Federator(Server):
    """`mcp-federator serve`; `admin` is its other listener."""

    def __init__(self, process: Child, port: int, admin_port: int) -> None:
        super().__init__(process, port)
        self.admin = f"http://127.0.0.1:{admin_port}"

    def wait(self, timeout: float = 20) -> None:
        """Return when every upstream was probed: from then on discover may be kept for a while.

        Raises:
            RuntimeError: the process ended or `timeout` seconds passed; tells its output.
        """
        end = monotonic() + timeout
        while monotonic() < end and self.process.running:
            try:
                if json.loads(post(self.url, message("server/discover")))["result"]["ttlMs"]:
                    return
            except OSError:
                pass
            sleep(0.05)
        raise RuntimeError(f"the federator is not ready: {self.process.output}")


class _Measured(NamedTuple):
    rate: load.Rate
    cpu_us: float


class Rig:
    """Starts what a benchmark needs and ends it, in reverse order, when the benchmark is over."""

    def __init__(self, stack: ExitStack, folder: Path, effort: Effort) -> None:
        self._stack = stack
        self.folder = folder
        self.effort = effort

    def another(self) -> AbstractContextManager["Rig"]:
        """A rig for what has to end before this one."""
        return rig(self.effort)

    def upstreams(self, **options: str | float) -> Upstreams:
        """Scripted upstreams; see benchmarks.upstream for the options."""
        flags = [word for name, value in options.items() for word in (f"--{name}", str(value))]
        return Upstreams(self._start("benchmarks.upstream", *flags))

    def federator(
        self,
        upstreams: Upstreams,
        *,
        cache: Mapping[str, Any] | None = None,
        upstream: Mapping[str, Any] | None = None,
        log_level: str = "warning",
    ) -> Federator:
        """A federator before these upstreams, named `up0`, `up1` and so on, once it has probed them all.

        Requests are not logged, as the baselines do not log them, unless `log_level` is `info`.
        """
        port, admin_port = _free_ports(2)
        config = {
            "server": {
                "port": port,
                "admin_port": admin_port,
                "log": {"level": log_level},
                "secret": "a secret of the benchmarks",
            },
            "cache": cache or {},
            "upstreams": {f"up{n}": {"url": url, **(upstream or {})} for n, url in enumerate(upstreams.urls)},
        }
        path = self.folder / f"federator-{port}.yaml"
        path.write_text(json.dumps(config))
        federator = Federator(self._start("mcp_federator", "serve", "-c", str(path)), port, admin_port)
        federator.wait()
        return federator

    def bare(self, body: bytes) -> Server:
        """The bare handler that answers with `body`."""
        path = self.folder / f"body-{len(body)}"
        path.write_bytes(body)
        return self._listening("benchmarks.bare", str(path))

    def redis(self) -> redis_server.Server:
        """A Redis of its own."""
        return self._stack.enter_context(redis_server.server())

    def bare_redis(self, body: bytes, redis: redis_server.Server, looks: Sequence[Sequence[str]]) -> Server:
        """The bare handler that looks in Redis under these keys in turn, and answers with `body`."""
        answer, keys = self.folder / "body", self.folder / "keys"
        answer.write_bytes(body)
        keys.write_text(json.dumps(looks))
        return self._listening("benchmarks.bare_redis", str(answer), redis.url, str(keys))

    def proxy(self, url: str) -> Server:
        """The bare reverse proxy before `url`."""
        return self._listening("benchmarks.proxy", url)

    def ratio(
        self, name: str, baseline: Server, ours: Server, script: str, *, limit: float | None, **detail: Any
    ) -> Row:
        """Load both servers with the same script, in turn since the machine is never quiet for long.

        The value is the median of the rounds' ratios.  Beside it stands the ratio of the processor time that
        a request takes, which other processes disturb less.
        """
        for server in (baseline, ours):
            self._measure(server, script, 1)
        seconds = self.effort.seconds
        pairs = [
            (self._measure(baseline, script, seconds), self._measure(ours, script, seconds))
            for _ in range(self.effort.rounds)
        ]
        ratios = [round(our.rate.per_second / base.rate.per_second, 3) for base, our in pairs]
        measured = {
            "ratios": ratios,
            "cpu_ratio": round(median(base.cpu_us / our.cpu_us for base, our in pairs), 3),
            "baseline_per_second": round(median(base.rate.per_second for base, _ in pairs)),
            "per_second": round(median(our.rate.per_second for _, our in pairs)),
            "baseline_cpu_us": round(median(base.cpu_us for base, _ in pairs), 1),
            "cpu_us": round(median(our.cpu_us for _, our in pairs), 1),
            "p50_ms": round(median(our.rate.p50_ms for _, our in pairs), 3),
            "p99_ms": round(median(our.rate.p99_ms for _, our in pairs), 3),
        }
        return Row(
            name, round(median(ratios), 3), "ratio", limit, at_least=True, detail={**measured, **detail}
        )

    def _measure(self, server: Server, script: str, seconds: int) -> _Measured:
        before = server.cpu_seconds()
        rate = load.run(server.url, script, self.folder, seconds=seconds)
        return _Measured(rate, (server.cpu_seconds() - before) * 1e6 / rate.requests)

    def _listening(self, module: str, *arguments: str) -> Server:
        process = self._start(module, *arguments)
        return Server(process, int(process.wait_for(r"listens on (\d+)\n")[1]))

    def _start(self, module: str, *arguments: str) -> Child:
        return self._stack.enter_context(python("-m", module, *arguments))


@contextmanager
def rig(effort: Effort) -> Iterator[Rig]:
    """A rig with a temporary folder; whatever it started ends with the block."""
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="mcp-federator-bench-")))
        yield Rig(stack, folder, effort)


def post(url: str, message: Message) -> bytes:
    """The answer to one request."""
    request = urllib.request.Request(url, message.body.encode(), message.headers)  # noqa: S310 - our own ports
    with urllib.request.urlopen(request, timeout=30) as answer:  # noqa: S310 - likewise
        body: bytes = answer.read()
    return body


def get(url: str) -> bytes:
    """What a GET answers."""
    with urllib.request.urlopen(url, timeout=10) as answer:  # noqa: S310 - our own ports
        body: bytes = answer.read()
    return body


def commit() -> str:
    """The commit that is measured, with `+` when the tree differs from it."""
    git = ["git", "describe", "--always", "--dirty=+", "--abbrev=12", "--exclude=*"]
    done = subprocess.run(git, capture_output=True, text=True, check=False)  # noqa: S603 - our own words
    return done.stdout.strip() or "none"


def _free_ports(count: int) -> list[int]:
    """Ports that nobody listens on; held together, so that they differ."""
    with ExitStack() as stack:
        sockets = [stack.enter_context(socket.create_server(("127.0.0.1", 0))) for _ in range(count)]
        return [each.getsockname()[1] for each in sockets]
