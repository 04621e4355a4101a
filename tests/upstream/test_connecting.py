import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, Self

import msgspec
import pytest
from yarl import URL

from mcp_federator.config import Duration, Tls
from mcp_federator.errors import ConfigError, Reason
from mcp_federator.upstream.connecting import proxy_for, tls_context
from tests.instruments.wire import End, Wire, contents, event, never, raw, result, stream
from tests.upstream.asking import asking, members, run
from tests.upstream.certificates import Authority

READ = "resources/read"
ONE = result(contents("x://1"))
HOME = "127.0.0.1"


@pytest.fixture
def authority(tmp_path: Path) -> Authority:
    return Authority(tmp_path)


# --- TLS ---


def test_trusts_the_configured_authority(authority: Authority) -> None:
    """With `ca_file` a server of that authority is asked, over one connection."""

    async def body() -> None:
        tls = Tls(ca_file=str(authority.file))
        async with Wire({READ: ONE}, tls=authority.server(HOME)) as wire, asking(wire.url, tls=tls) as alpha:
            for _ in range(3):
                assert members(await alpha.read())["contents"]
            assert wire.connections == 1

    run(body())


@pytest.mark.parametrize(
    ("hosts", "settings", "trusted"),
    [
        pytest.param([HOME], {}, False, id="unknown-authority"),
        pytest.param([HOME], {"ca_file": "other"}, False, id="other-authority"),
        pytest.param(["elsewhere.test"], {"ca_file": "own"}, False, id="other-host"),
        pytest.param(
            ["inside.test"], {"ca_file": "own", "server_name": "inside.test"}, True, id="server-name"
        ),
        pytest.param([HOME], {"ca_file": "own", "server_name": "inside.test"}, False, id="other-server-name"),
        pytest.param(["elsewhere.test"], {"verify": False}, True, id="not-verified"),
    ],
)
def test_who_is_trusted(
    authority: Authority, tmp_path: Path, hosts: list[str], settings: dict[str, Any], trusted: bool
) -> None:
    """Authority and name both count, unless `verify` is off."""
    files = {"own": authority.file, "other": Authority(tmp_path, "other").file}
    if "ca_file" in settings:
        settings = settings | {"ca_file": str(files[settings["ca_file"]])}

    async def body() -> None:
        wire = Wire({READ: ONE}, tls=authority.server(*hosts))
        async with wire, asking(wire.url, tls=Tls(**settings)) as alpha:
            if trusted:
                assert members(await alpha.read())["contents"]
            else:
                assert (await alpha.fails()).reason is Reason.UNREACHABLE
                assert wire.received == []

    run(body())


@pytest.mark.parametrize("shown", ["two-files", "one-file", "none"])
def test_shows_its_certificate(authority: Authority, tmp_path: Path, shown: str) -> None:
    """A server that asks for a certificate gets ours, its key in a file of its own or in the same."""
    certificate, key = authority.issue("client")
    together = tmp_path / "both.pem"
    together.write_text(Path(certificate).read_text() + Path(key).read_text())
    files: dict[str, dict[str, Any]] = {
        "two-files": {"cert_file": certificate, "key_file": key},
        "one-file": {"cert_file": str(together)},
        "none": {},
    }

    async def body() -> None:
        tls = Tls(ca_file=str(authority.file), **files[shown])
        wire = Wire({READ: ONE}, tls=authority.server(HOME, clients=True))
        async with wire, asking(wire.url, tls=tls) as alpha:
            if shown == "none":
                assert (await alpha.fails()).reason is Reason.UNREACHABLE
            else:
                assert members(await alpha.read())["contents"]

    run(body())


def test_H38_cancelling_closes_a_tls_connection(authority: Authority) -> None:
    """The upstream learns at once that nobody waits any more."""

    async def body() -> None:
        tls = Tls(ca_file=str(authority.file))
        wire = Wire({READ: never()}, tls=authority.server(HOME))
        async with wire, asking(wire.url, tls=tls) as alpha:
            asker = asyncio.create_task(alpha.read())
            (request,) = await wire.arrived(READ)
            asker.cancel()
            async with asyncio.timeout(2):
                await request.gone.wait()

    run(body())


def test_streams_over_tls(authority: Authority) -> None:
    """An event stream that stays open gives its answer over TLS too."""

    async def body() -> None:
        tls = Tls(ca_file=str(authority.file))
        wire = Wire({READ: stream(event(contents("x://1")), End.HOLD)}, tls=authority.server(HOME))
        async with wire, asking(wire.url, tls=tls) as alpha:
            assert members(await alpha.read())["contents"]

    run(body())


def test_a_handshake_that_never_ends_is_no_connection() -> None:
    """`connect_timeout` covers TLS."""

    async def body() -> None:
        async with port() as number:
            options = {"connect_timeout": Duration(0.1), "timeout": Duration(30)}
            async with asking(f"https://{HOME}:{number}/mcp", **options) as alpha:
                async with asyncio.timeout(5):
                    assert (await alpha.fails()).reason is Reason.UNREACHABLE

    run(body())


def test_a_server_without_tls_is_no_connection() -> None:
    """An http port under an https URL fails as unreachable."""

    async def body() -> None:
        nonsense = port(b"HTTP/1.1 400 Bad Request\r\n\r\n")
        async with nonsense as number, asking(f"https://{HOME}:{number}/mcp") as alpha:
            assert (await alpha.fails()).reason is Reason.UNREACHABLE

    run(body())


@pytest.mark.parametrize(
    ("settings", "key"),
    [
        pytest.param({"ca_file": "missing"}, "ca_file", id="no-authority-file"),
        pytest.param({"ca_file": "empty"}, "ca_file", id="no-authority"),
        pytest.param({"cert_file": "missing"}, "cert_file", id="no-certificate-file"),
        pytest.param({"cert_file": "empty"}, "cert_file", id="no-certificate"),
        pytest.param({"cert_file": "certificate"}, "cert_file", id="no-key"),
        pytest.param({"cert_file": "certificate", "key_file": "other-key"}, "cert_file", id="other-key"),
        pytest.param({"cert_file": "certificate", "key_file": "locked-key"}, "cert_file", id="pass-phrase"),
    ],
)
def test_files_that_cannot_be_used(
    authority: Authority, tmp_path: Path, settings: dict[str, str], key: str
) -> None:
    """The message names the place in the file; nobody is asked for a pass phrase."""
    (tmp_path / "empty").touch()
    certificate, _ = authority.issue("one")
    _, other = authority.issue("two")
    locked_certificate, locked = authority.issue("three", password=b"secret")
    if settings.get("key_file") == "locked-key":
        certificate = locked_certificate
    files = {
        "missing": str(tmp_path / "missing"),
        "empty": str(tmp_path / "empty"),
        "certificate": certificate,
        "other-key": other,
        "locked-key": locked,
    }
    with pytest.raises(ConfigError) as caught:
        tls_context("alpha", msgspec.convert({name: files[value] for name, value in settings.items()}, Tls))
    assert caught.value.path == f"upstreams.alpha.tls.{key}"


# --- proxy ---


@asynccontextmanager
async def port(says: bytes = b"") -> AsyncIterator[int]:
    """A port that accepts, says one thing or nothing, and listens until the other side closes."""

    async def talk(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(says)
        while await reader.read(1000):
            pass
        writer.close()

    server = await asyncio.start_server(talk, HOME, 0)
    try:
        yield server.sockets[0].getsockname()[1]
    finally:
        server.close()
        await server.wait_closed()


class Tunnel:
    """A proxy for CONNECT: leads every tunnel to one port, and writes down what was asked for."""

    def __init__(self, port: int) -> None:
        self.asked: list[str] = []
        self.port = 0
        self._to = port
        self._tasks: set[asyncio.Task[Any]] = set()

    async def __aenter__(self) -> Self:
        self._server = await asyncio.start_server(self._lead, HOME, 0)
        self.port = self._server.sockets[0].getsockname()[1]
        return self

    async def __aexit__(self, *_: object) -> None:
        self._server.close()
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    async def _lead(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._tasks.add(task)
        self.asked.append((await reader.readuntil(b"\r\n\r\n")).decode())
        upstream_reader, upstream_writer = await asyncio.open_connection(HOME, self._to)
        writer.write(b"HTTP/1.1 200 OK\r\n\r\n")
        ways = ((reader, upstream_writer), (upstream_reader, writer))
        try:
            await asyncio.gather(*(self._pour(source, sink) for source, sink in ways))
        finally:
            writer.close()
            upstream_writer.close()
            self._tasks.discard(task)

    async def _pour(self, source: asyncio.StreamReader, sink: asyncio.StreamWriter) -> None:
        while data := await source.read(65536):
            sink.write(data)
        sink.close()


def test_goes_through_the_proxy() -> None:
    """A proxy gets the whole URL, the upstream's own Host and the upstream's headers."""

    async def body() -> None:
        async with Wire({READ: ONE}) as proxy:
            options = {"proxy": f"http://{HOME}:{proxy.port}", "headers": {"X-Key": "k"}}
            async with asking("http://docs.test/mcp", **options) as alpha:
                assert members(await alpha.read())["contents"]
                (request,) = proxy.calls(READ)
                assert request.target == "http://docs.test/mcp"
                assert (request.header("host"), request.header("x-key")) == ("docs.test", "k")

    run(body())


def test_tunnels_tls_through_the_proxy(authority: Authority) -> None:
    """The proxy of an https upstream learns its name and port, and nothing else."""

    async def body() -> None:
        async with Wire({READ: ONE}, tls=authority.server("docs.test")) as wire, Tunnel(wire.port) as proxy:
            options = {
                "proxy": f"http://{HOME}:{proxy.port}",
                "tls": Tls(ca_file=str(authority.file)),
                "headers": {"X-Key": "s3cret"},
            }
            async with asking("https://docs.test/mcp", **options) as alpha:
                assert members(await alpha.read())["contents"]
                assert wire.calls(READ)[0].header("x-key") == "s3cret"
            assert [asked.split()[:2] for asked in proxy.asked] == [["CONNECT", "docs.test:443"]]
            assert "s3cret" not in proxy.asked[0]

    run(body())


def test_a_proxy_that_refuses_is_no_connection() -> None:
    """What the proxy says is told, the URL is not."""

    async def body() -> None:
        refusal = raw(b"HTTP/1.1 407 Proxy Authentication Required\r\nContent-Length: 0\r\n\r\n")
        async with Wire(refusal) as proxy:
            options = {"proxy": f"http://{HOME}:{proxy.port}"}
            async with asking("https://docs.test/mcp?key=s3cret", **options) as alpha:
                failure = await alpha.fails()
                assert failure.reason is Reason.UNREACHABLE
                assert failure.detail == "the proxy answered 407"

    run(body())


def test_a_proxy_that_is_down_is_no_connection() -> None:
    """The upstream is not reached another way."""

    async def body() -> None:
        async with Wire({READ: ONE}) as wire, Wire({}) as proxy:
            await proxy.stop()
            async with asking(wire.url, proxy=f"http://{HOME}:{proxy.port}") as alpha:
                assert (await alpha.fails()).reason is Reason.UNREACHABLE
            assert wire.received == []

    run(body())


@pytest.mark.parametrize("netrc", [False, True])
def test_the_environment_is_left_alone(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, netrc: bool) -> None:
    """Without `proxy: env` its proxies do not count; a netrc file never does."""
    file = tmp_path / "netrc"
    file.write_text(f"machine {HOME} login user password s3cret\n")
    monkeypatch.setenv("NETRC", str(file))
    monkeypatch.setenv("http_proxy", f"http://{HOME}:1")
    monkeypatch.setenv("no_proxy", HOME)

    async def body() -> None:
        options = {"proxy": "env"} if netrc else {}
        async with Wire({READ: ONE}) as wire, asking(wire.url, **options) as alpha:
            await alpha.read()
            assert wire.calls(READ)[0].header("authorization") is None

    run(body())


def test_the_environment_counts_where_configured(monkeypatch: pytest.MonkeyPatch) -> None:
    """With `proxy: env` the variables' proxy is gone through."""

    async def body() -> None:
        async with Wire({READ: ONE}) as proxy:
            monkeypatch.setenv("http_proxy", f"http://user:pw@{HOME}:{proxy.port}")
            monkeypatch.delenv("no_proxy", raising=False)
            async with asking("http://docs.test/mcp", proxy="env") as alpha:
                await alpha.read()
                (request,) = proxy.calls(READ)
                assert request.target == "http://docs.test/mcp"
                assert request.header("proxy-authorization") == "Basic dXNlcjpwdw=="

    run(body())


@pytest.mark.parametrize(
    ("variables", "url", "expected"),
    [
        pytest.param({}, "http://a.test/", None, id="none"),
        pytest.param({"http_proxy": "http://p:1"}, "http://a.test/", "http://p:1", id="http"),
        pytest.param({"http_proxy": "http://p:1"}, "https://a.test/", None, id="other-scheme"),
        pytest.param({"https_proxy": "https://p:1"}, "https://a.test/", "https://p:1", id="https"),
        pytest.param({"all_proxy": "http://p:1"}, "https://a.test/", "http://p:1", id="all"),
        pytest.param(
            {"all_proxy": "http://p:1", "no_proxy": "a.test"}, "http://a.test/", None, id="no-proxy"
        ),
        pytest.param({"all_proxy": "http://p:1", "no_proxy": ".test"}, "http://a.test/", None, id="domain"),
        pytest.param({"all_proxy": "http://p:1", "no_proxy": "a.test:80"}, "http://a.test/", None, id="port"),
        pytest.param(
            {"all_proxy": "http://p:1", "no_proxy": "*"}, "http://a.test/", None, id="no-proxy-at-all"
        ),
    ],
)
def test_proxy_of_the_environment(
    monkeypatch: pytest.MonkeyPatch, variables: dict[str, str], url: str, expected: str | None
) -> None:
    """The usual variables, as everybody reads them."""
    for name in ("http_proxy", "https_proxy", "all_proxy", "no_proxy"):
        monkeypatch.delenv(name, raising=False)
        monkeypatch.delenv(name.upper(), raising=False)
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    found = proxy_for("alpha", URL(url), "env")
    assert found == (None if expected is None else URL(expected))


def test_a_proxy_of_another_kind_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    """SOCKS is told at start, also where the environment says it."""
    monkeypatch.setenv("http_proxy", "socks5://p:1")
    with pytest.raises(ConfigError, match=r"upstreams\.alpha\.proxy"):
        proxy_for("alpha", URL("http://a.test/"), "env")
