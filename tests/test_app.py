import asyncio
import os
import signal
import socket
import sys
from collections.abc import Callable
from contextlib import ExitStack
from datetime import datetime
from pathlib import Path

import aiohttp
import pytest
from yarl import URL

from mcp_federator.app import App, _Address
from mcp_federator.config import Config
from mcp_federator.errors import ConfigError
from mcp_federator.stacks import Federation, load
from tests.endpoint.door import Client, read, request
from tests.instruments.house import PATIENCE, House, configured, house, running
from tests.instruments.wire import Answers, Wire, by_uri, contents, page, reply, result

READ = "resources/read"
LIST = "resources/list"


def serving(text: str = "text") -> dict[str, Answers]:
    return {READ: result(contents("x://1", text)), LIST: result(page("x://1"))}


async def until(true: Callable[[], bool]) -> None:
    """Let the loop run until something is so."""
    async with asyncio.timeout(PATIENCE):
        while not true():  # noqa: ASYNC110 - turns of the loop, not a wait
            await asyncio.sleep(0)


class Files:
    """An app whose configuration is a file that the test writes."""

    def __init__(self, directory: Path) -> None:
        self.path = directory / "federator.yaml"

    def write(self, text: str, grace: float = 1) -> None:
        self.path.write_text(f"server: {{port: 0, admin_port: 0, grace: {grace}}}\n{text}")

    def read(self) -> Config:
        return load(self.path, {})

    def app(self) -> App:
        return App(self.read(), reload=self.read, watch=lambda _: self.path.read_bytes())


async def reloaded(it: House, result: str) -> None:
    """Tell the app to reload, and wait until it has."""
    before = await it.samples("mcp_federator_reloads_total", result=result)
    it.app.reload()
    async with asyncio.timeout(PATIENCE):
        while await it.samples("mcp_federator_reloads_total", result=result) == before:
            pass


def test_a_reload_adds_changes_and_removes_upstreams(tmp_path: Path) -> None:
    """After a reload clients meet the new set of upstreams under the new names."""

    async def check() -> None:
        files = Files(tmp_path)
        async with Wire(serving("one")) as one, Wire(serving("two")) as two:
            files.write(f"upstreams: {{a: {{url: {one.url}}}, b: {{url: {one.url}}}}}")
            async with running(files.app()) as it:
                assert (await it.page()).uris == ["a+x://1", "b+x://1"]
                files.write(f"upstreams: {{b: {{url: {two.url}, prefix: 'new:'}}, c: {{url: {two.url}}}}}")
                await reloaded(it, "applied")
                assert (await it.page()).uris == ["new:x://1", "c+x://1"]
                assert (await it.read("new:x://1")).result["contents"][0]["text"] == "two"
                assert (await it.read("a+x://1")).error["code"] == -32602
                assert [one["name"] for one in (await it.status())["upstreams"]] == ["b", "c"]

    asyncio.run(check())


def test_an_unchanged_upstream_keeps_its_connections_and_entries(tmp_path: Path) -> None:
    """A reload that leaves an upstream as it is neither probes it again nor forgets its answers."""

    async def check() -> None:
        files = Files(tmp_path)
        async with Wire(serving()) as wire:
            upstream = f"a: {{url: {wire.url}}}"
            files.write(f"upstreams: {{{upstream}}}")
            async with running(files.app()) as it:
                await it.read("a+x://1")
                files.write(f"upstreams: {{{upstream}, b: {{url: {wire.url}, timeout: 5s}}}}")
                await reloaded(it, "applied")
                assert "hit" in (await it.read("a+x://1")).cache_status
                await it.read("b+x://1")
                assert len(wire.calls(READ)) == 2
                assert len(wire.calls("server/discover")) == 2

    asyncio.run(check())


def test_what_holds_for_all_reaches_an_unchanged_upstream(tmp_path: Path) -> None:
    """A reload of `lists` and `cache` costs no connection and no entry, and holds for what comes after it."""

    async def check() -> None:
        files = Files(tmp_path)
        async with Wire(serving()) as wire:
            upstreams = f"upstreams: {{a: {{url: {wire.url}}}}}"
            files.write(upstreams)
            async with running(files.app()) as it:
                kept = await it.read("a+x://1")
                assert kept.result["ttlMs"] > 5000
                files.write(f"{upstreams}\nlists: {{window: 2}}\ncache: {{max_ttl: 5s}}")
                await reloaded(it, "applied")
                assert "hit" in (await it.read("a+x://1")).cache_status
                assert 0 < (await it.read("a+x://2")).result["ttlMs"] <= 5000
                assert (len(wire.calls("server/discover")), len(wire.calls(READ))) == (1, 2)

    asyncio.run(check())


def test_the_status_page_tells_of_the_last_reload(tmp_path: Path) -> None:
    """Result, time and message, for whoever cannot see the log."""

    async def check() -> None:
        files = Files(tmp_path)
        async with Wire(serving()) as wire:
            files.write(f"upstreams: {{a: {{url: {wire.url}}}}}")
            async with running(files.app()) as it:
                assert (await it.status())["last_reload"] is None
                files.write("upstreams: {a: {ulr: 'http://hunter2/'}}")
                await reloaded(it, "refused")
                told = (await it.status())["last_reload"]
                assert told["result"] == "refused"
                assert f"{files.path}: upstreams.a.ulr: unknown key" in told["message"]
                assert "hunter2" not in told["message"]
                assert datetime.fromisoformat(told["at"]).tzinfo is not None
                files.write(f"cache: {{memory: 1MiB}}\nupstreams: {{a: {{url: {wire.url}}}}}")
                await reloaded(it, "applied")
                told = (await it.status())["last_reload"]
                assert (told["result"], told["message"]) == ("applied", "after a restart: cache.memory")

    asyncio.run(check())


def test_a_reload_that_breaks_is_counted_as_failed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """A fault of our own while reloading leaves the old in force, and is no fault of the file."""

    async def broken(_: Federation, __: Config) -> None:
        raise RuntimeError("a fault")

    async def check() -> None:
        files = Files(tmp_path)
        async with Wire(serving()) as wire:
            files.write(f"upstreams: {{a: {{url: {wire.url}}}}}")
            async with running(files.app()) as it:
                monkeypatch.setattr(Federation, "apply", broken)
                await reloaded(it, "failed")
                assert (await it.status())["last_reload"]["result"] == "failed"
                assert (await it.page()).uris == ["a+x://1"]

    asyncio.run(check())
    assert "could not be put in force" in caplog.text


def test_a_reload_warns_of_what_should_be_meant(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """Forwarded credentials are said aloud after a reload as at the start."""

    async def check() -> None:
        files = Files(tmp_path)
        files.write("upstreams: {a: {url: 'http://127.0.0.1:9/'}}")
        async with running(files.app()) as it:
            files.write("upstreams: {a: {url: 'http://127.0.0.1:9/', forward: [authorization]}}")
            await reloaded(it, "applied")

    asyncio.run(check())
    assert "upstreams.a.forward sends the caller's authorization on" in caplog.text


@pytest.mark.parametrize(
    "text",
    [
        pytest.param("upstreams: {a: {ulr: http://127.0.0.1:1/}}", id="unknown key"),
        pytest.param("upstreams: [", id="no YAML"),
        pytest.param(
            "upstreams: {a: {url: 'http://h/', prefix: 'p:'}, b: {url: 'http://h/', prefix: 'p:q'}}",
            id="prefixes collide",
        ),
    ],
)
def test_a_bad_reload_leaves_the_old_in_force(tmp_path: Path, text: str) -> None:
    """A configuration that cannot be used is refused, counted, and changes nothing."""

    async def check() -> None:
        files = Files(tmp_path)
        async with Wire(serving()) as wire:
            files.write(f"upstreams: {{a: {{url: {wire.url}}}}}")
            async with running(files.app()) as it:
                files.write(text)
                await reloaded(it, "refused")
                assert (await it.page()).uris == ["a+x://1"]
                assert (await it.get("/readyz")).status == 200

    asyncio.run(check())


def test_a_reload_changes_what_is_forwarded(tmp_path: Path) -> None:
    """`forward` added by a reload takes effect for requests that come after it."""

    async def check() -> None:
        files = Files(tmp_path)
        async with Wire(serving()) as wire:
            files.write(f"upstreams: {{a: {{url: {wire.url}}}}}")
            async with running(files.app()) as it:
                said = {"Authorization": "Bearer a-token"}
                await it.read("a+x://1", headers=said)
                files.write(f"upstreams: {{a: {{url: {wire.url}, forward: [authorization]}}}}")
                await reloaded(it, "applied")
                await it.read("a+x://2", headers=said)
                assert [call.header("authorization") for call in wire.calls(READ)] == [None, "Bearer a-token"]

    asyncio.run(check())


def test_a_changed_file_is_noticed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nobody has to say so when a file changes, even by a swapped symlink."""
    monkeypatch.setattr("mcp_federator.app.WATCH_SECONDS", 0.01)

    async def check() -> None:
        files = Files(tmp_path)
        first, second = tmp_path / "first", tmp_path / "second"
        async with Wire(serving()) as wire:
            files.write(f"upstreams: {{a: {{url: {wire.url}}}}}")
            files.path.rename(first)
            files.write(f"upstreams: {{b: {{url: {wire.url}}}}}")
            files.path.rename(second)
            files.path.symlink_to(first)
            async with running(files.app()) as it:
                assert (await it.page()).uris == ["a+x://1"]
                swap = tmp_path / "swap"
                swap.symlink_to(second)
                swap.rename(files.path)
                async with asyncio.timeout(PATIENCE):
                    while (await it.page()).uris != ["b+x://1"]:
                        pass

    asyncio.run(check())


def test_a_stop_lets_requests_under_way_end() -> None:
    """After `stop` the app is unready, takes no connection, and answers what it had taken."""

    async def check() -> None:
        gate = asyncio.Event()
        async with (
            Wire({READ: result(contents("x://1"), after=gate)}) as wire,
            house({"a": wire.url}) as it,
        ):
            reading = asyncio.create_task(it.read("a+x://1"))
            await until(lambda: len(wire.calls(READ)) == 1)
            it.app.stop()
            async with asyncio.timeout(PATIENCE):
                while (await it.get("/readyz")).status != 503:
                    pass
            assert (await it.get("/readyz")).body == b"draining\n"
            assert (await it.status())["ready"] is False
            gate.set()
            assert (await reading).result["contents"][0]["uri"] == "a+x://1"

    asyncio.run(check())


def test_a_stop_loses_no_request_of_a_kept_connection(monkeypatch: pytest.MonkeyPatch) -> None:
    """Under load each connection ends with a reply that says so, those that idled when it began as well."""
    monkeypatch.setattr("mcp_federator.endpoint.wire.LAST_SECONDS", PATIENCE)

    async def check() -> None:
        answered = 0
        stopping = asyncio.Event()
        answers = {"x://0": contents("x://0"), "x://1": contents("x://1", ttl=0)}
        async with (
            Wire({READ: by_uri(answers)}) as wire,
            house({"a": wire.url}, server={"grace": PATIENCE}) as it,
        ):
            url = URL(it.url)

            async def ask(number: int) -> None:
                nonlocal answered
                client = Client(*await asyncio.open_connection(url.host, url.port))
                last = False
                while not last:
                    await client.send(request(read(f"a+x://{number % 2}")))
                    response = await client.receive()
                    assert response.status == 200
                    answered += 1
                    last = response.header("Connection") == "close"
                    if not last and number < 2:
                        await stopping.wait()
                assert await client.at_end()
                await client.close()

            asking = [asyncio.create_task(ask(number)) for number in range(8)]
            await until(lambda: answered > 100)
            it.app.stop()
            while (await it.get("/readyz")).status != 503:
                pass
            stopping.set()
            async with asyncio.timeout(PATIENCE):
                await asyncio.gather(*asking)

    asyncio.run(check())


def test_the_status_says_whether_requests_are_welcome(monkeypatch: pytest.MonkeyPatch) -> None:
    """They are once both listeners stand, not before."""

    async def check() -> None:
        async with Wire({}) as wire:
            app = App(configured({"a": wire.url}))
            said: list[bool] = []
            # Looked at when the upstreams are there, while the app still starts.
            apply = app._federation.apply

            async def applied(settings: Config) -> None:
                await apply(settings)
                said.append(app._status()["ready"])

            monkeypatch.setattr(app._federation, "apply", applied)
            async with running(app) as it:
                said.append((await it.status())["ready"])
            assert said == [False, True]

    asyncio.run(check())


def test_a_stop_ends_although_a_request_does_not() -> None:
    """After the grace time what is still under way is given up."""

    async def check() -> None:
        gate = asyncio.Event()
        async with (
            Wire({READ: result(contents("x://1"), after=gate)}) as wire,
            house({"a": wire.url}, server={"grace": 0.05}) as it,
        ):
            reading = asyncio.create_task(it.read("a+x://1"))
            await until(lambda: len(wire.calls(READ)) == 1)
            it.app.stop()
            with pytest.raises(aiohttp.ClientError):
                await reading

    asyncio.run(check())


def test_what_a_reload_cannot_change_is_named(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """Keys that need a restart are named, and only those that changed."""

    async def check() -> None:
        files = Files(tmp_path)
        files.write("")
        async with running(files.app()) as it:
            files.write("cache: {memory: 1MiB, max_ttl: 1h, client_refresh: never}")
            files.path.write_text(files.path.read_text().replace("grace: 1", "grace: 1.5"))
            await reloaded(it, "applied")

    asyncio.run(check())
    named = [record.getMessage() for record in caplog.records if "after a restart" in record.getMessage()]
    assert [line.split()[0] for line in named] == ["server.grace", "cache.memory", "cache.client_refresh"]


def test_an_upstream_that_is_gone_leaves_the_metrics(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Once the last request to it has ended, no series speaks of an upstream that is no longer configured."""
    monkeypatch.setattr("mcp_federator.stacks.LAST_WORDS", 0.05)

    async def check() -> None:
        files = Files(tmp_path)
        gate = asyncio.Event()
        async with Wire({**serving(), READ: result(contents("x://1"), after=gate)}) as wire:
            files.write(f"upstreams: {{a: {{url: {wire.url}}}, b: {{url: {wire.url}}}}}", grace=0.2)
            async with running(files.app()) as it:
                await it.page()
                reading = asyncio.create_task(it.read("a+x://1"))
                await until(lambda: len(wire.calls(READ)) == 1)
                files.write(f"upstreams: {{b: {{url: {wire.url}}}}}", grace=0.2)
                await reloaded(it, "applied")
                assert 'upstream="a"' in (await it.get("/metrics")).body.decode()
                assert (await reading).error["data"] == {"upstream": "a", "reason": "unreachable"}
                async with asyncio.timeout(PATIENCE):
                    while 'upstream="a"' in (await it.get("/metrics")).body.decode():
                        pass
                assert await it.samples("mcp_federator_upstream_up", upstream="b") == 1

    asyncio.run(check())

    asyncio.run(check())


def test_a_request_under_way_outlives_a_reload(tmp_path: Path) -> None:
    """What began with an upstream that a reload replaces is answered by it."""

    async def check() -> None:
        files = Files(tmp_path)
        gate = asyncio.Event()
        async with Wire({READ: result(contents("x://1", "old"), after=gate)}) as wire:
            files.write(f"upstreams: {{a: {{url: {wire.url}}}}}")
            async with running(files.app()) as it:
                reading = asyncio.create_task(it.read("a+x://1"))
                await until(lambda: len(wire.calls(READ)) == 1)
                files.write(f"upstreams: {{a: {{url: {wire.url}, timeout: 9s}}}}")
                await reloaded(it, "applied")
                gate.set()
                assert (await reading).result["contents"][0]["text"] == "old"

    asyncio.run(check())


def test_sighup_reloads(tmp_path: Path) -> None:
    """SIGHUP reads the configuration anew."""

    async def check() -> None:
        files = Files(tmp_path)
        async with Wire(serving()) as wire:
            files.write(f"upstreams: {{a: {{url: {wire.url}}}}}")
            async with running(App(files.read(), reload=files.read)) as it:
                files.write(f"upstreams: {{b: {{url: {wire.url}}}}}")
                os.kill(os.getpid(), signal.SIGHUP)
                async with asyncio.timeout(PATIENCE):
                    while (await it.page()).uris != ["b+x://1"]:
                        pass

    asyncio.run(check())


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_stops_the_app(number: signal.Signals) -> None:
    """SIGTERM and SIGINT end `run` without an error."""

    async def check() -> None:
        app = App(configured({}))
        told = asyncio.Event()
        running = asyncio.create_task(app.run(lambda *_: told.set()))
        await told.wait()
        os.kill(os.getpid(), number)
        async with asyncio.timeout(PATIENCE):
            await running

    asyncio.run(check())


@pytest.mark.parametrize("key", ["port", "admin_port"])
def test_a_taken_port_is_found_before_anything_is_started(key: str, tmp_path: Path) -> None:
    """`run` names the key in one sentence, and no upstream was begun."""
    started = tmp_path / "started"
    child = {"command": sys.executable, "args": ["-c", f"open({str(started)!r}, 'w')"]}

    async def check() -> None:
        async with Wire(serving()) as wire, house({}) as it:
            port = int((it.url if key == "port" else it.admin).split(":")[2].split("/")[0])
            given = configured({"a": wire.url, "b": child}, server={key: port})
            with pytest.raises(ConfigError) as raised:
                await App(given).run()
            said = f"{port} of 127.0.0.1 is in use by another program"
            assert (raised.value.path, raised.value.problem) == (f"server.{key}", said)
            assert wire.calls("server/discover") == []

    asyncio.run(check())
    assert not started.exists()


def test_a_host_that_is_nobodys_is_told() -> None:
    """A name without an address, or an address of another machine, is the host's fault."""

    async def check(host: str) -> ConfigError:
        with pytest.raises(ConfigError) as raised:
            await App(configured({}, server={"host": host})).run()
        return raised.value

    for host in ("nowhere.invalid", "192.0.2.1", "::zz"):
        told = asyncio.run(check(host))
        assert told.path == "server.host"
        assert told.problem.startswith(f"{host} cannot be listened on: ")


def test_an_address_that_this_machine_lacks_is_passed_over(monkeypatch: pytest.MonkeyPatch) -> None:
    """One of a name's addresses is enough."""
    stream = (socket.AF_INET, socket.SOCK_STREAM, 6, "")
    found = [(*stream, ("192.0.2.1", 0)), (*stream, ("127.0.0.1", 0))]

    async def check() -> None:
        with monkeypatch.context() as patched, ExitStack() as closing:
            patched.setattr(socket, "getaddrinfo", lambda *_, **__: found)
            address = _Address("", "here", 0)
            await address.take(closing)
            assert [one.getsockname()[0] for one in address._sockets] == ["127.0.0.1"]

    asyncio.run(check())


def test_a_name_that_is_none_is_told() -> None:
    """What no resolver can be asked for is the host's fault as well."""
    with pytest.raises(ConfigError) as raised:
        asyncio.run(App(configured({}, server={"admin_host": "a..b"})).run())
    assert raised.value.path == "server.admin_host"


def test_a_name_can_be_listened_on() -> None:
    """`localhost` and `::1` are, and the URL can be asked."""

    async def check(host: str) -> None:
        async with house({}, server={"host": host, "admin_host": host}) as it:
            assert (await it.get("/healthz")).status == 200
            assert (await it.post("server/discover")).status == 200

    for host in ("localhost", "::1"):
        asyncio.run(check(host))


def test_discover_is_kept_only_once_all_upstreams_are_known() -> None:
    """Clients may keep our discover result for a minute, but not before each upstream was reached."""

    async def check() -> None:
        gate = asyncio.Event()
        async with (
            Wire({"server/discover": reply(b"", status=503, after=gate)}) as sick,
            Wire(serving()) as well,
        ):
            async with house({"sick": sick.url, "well": well.url}, probed=False) as it:
                found = (await it.post("server/discover")).result
                assert (found["ttlMs"], found["cacheScope"]) == (0, "public")
                assert found["supportedVersions"] == ["2026-07-28"]
                gate.set()
            async with house({"well": well.url}) as it:
                assert (await it.post("server/discover")).result["ttlMs"] == 60_000

    asyncio.run(check())


@pytest.mark.parametrize(
    ("sections", "upstream", "says"),
    [
        pytest.param({"server": {"host": "0.0.0.0"}}, {}, "server.host is 0.0.0.0", id="beyond loopback"),
        pytest.param({}, {"forward": ["authorization"]}, "upstreams.a.forward", id="token"),
        pytest.param(
            {}, {"forward": ["x-me"], "credential_headers": ["x-me"]}, "caller's x-me", id="credential"
        ),
        pytest.param({}, {"forward": ["accept-language"]}, None, id="no credential"),
    ],
)
def test_what_should_be_meant_is_warned_of(
    sections: dict[str, object],
    upstream: dict[str, object],
    says: str | None,
    caplog: pytest.LogCaptureFixture,
) -> None:
    """An open door and forwarded credentials are allowed, and said aloud at start."""

    async def check() -> None:
        given = configured({"a": {"url": "http://127.0.0.1:9/", **upstream}}, **sections)
        app = App(given)
        app.stop()
        await app.run()

    asyncio.run(check())
    warnings = [record.getMessage() for record in caplog.records if record.name == "mcp_federator.app"]
    assert len(warnings) == (0 if says is None else 1)
    assert says is None or says in warnings[0]
