import asyncio
import os
import signal
from collections.abc import Callable
from pathlib import Path

import aiohttp
import msgspec
import pytest

from mcp_federator import config
from mcp_federator.app import App, Federation, _identity
from mcp_federator.config import Config, Duration, Upstream
from mcp_federator.errors import ConfigError
from mcp_federator.metrics import Metrics
from mcp_federator.model import ANYONE, Method, Query
from tests.instruments.house import PATIENCE, House, configured, house, running
from tests.instruments.wire import Answers, Wire, contents, page, reply, result

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

    def write(self, text: str) -> None:
        self.path.write_text(f"server: {{port: 0, admin_port: 0, grace: 1}}\n{text}")

    def read(self) -> Config:
        return config.load(self.path, {})

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


def test_the_status_says_whether_requests_are_welcome(monkeypatch: pytest.MonkeyPatch) -> None:
    """They are once both listeners stand, not before."""

    async def check() -> None:
        async with Wire({}) as wire:
            app = App(configured({"a": wire.url}))
            said: list[bool] = []
            # Looked at when the upstreams are there, while the app still starts.
            apply = app._federation.apply

            async def applied(settings: config.Config) -> None:
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


def test_an_upstream_that_is_gone_leaves_the_metrics(tmp_path: Path) -> None:
    """After a reload no gauge speaks of an upstream that is no longer configured."""

    async def check() -> None:
        files = Files(tmp_path)
        async with Wire(serving()) as wire:
            files.write(f"upstreams: {{a: {{url: {wire.url}}}, b: {{url: {wire.url}}}}}")
            async with running(files.app()) as it:
                await it.page()
                files.write(f"upstreams: {{b: {{url: {wire.url}}}}}")
                await reloaded(it, "applied")
                metrics = (await it.get("/metrics")).body.decode()
                assert 'mcp_federator_upstream_up{upstream="b"} 1.0' in metrics
                assert 'mcp_federator_upstream_up{upstream="a"}' not in metrics

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


def test_a_taken_port_is_an_error() -> None:
    """`run` raises when an address cannot be bound, and leaves nothing behind."""

    async def check() -> None:
        async with house({}) as it:
            port = int(it.url.split(":")[2].split("/")[0])
            with pytest.raises(OSError, match="in use"):
                await App(configured({}, server={"port": port})).run()

    asyncio.run(check())


@pytest.mark.parametrize(
    ("upstreams", "path"),
    [
        pytest.param(
            {"a": {"url": "http://h/", "prefix": ""}, "b": "http://h/"}, "upstreams.a.prefix", id="no prefix"
        ),
        pytest.param(
            {"a": "http://h/", "b": {"url": "http://h/", "prefix": "a+b:"}}, "upstreams", id="collision"
        ),
    ],
)
def test_prefixes_that_collide_are_refused(upstreams: dict[str, object], path: str) -> None:
    """What no single key shows wrong is refused at start as well, with its place."""

    async def check() -> None:
        given = configured(upstreams)
        federation = Federation(given, Metrics("0"))
        with pytest.raises(ConfigError) as raised:
            await federation.apply(given)
        assert raised.value.path.startswith(path)
        await federation.close()

    asyncio.run(check())


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


def test_another_url_is_another_cache() -> None:
    """What one server answered is not served in the name of another that the same name means later."""

    async def check() -> None:
        async with Wire(serving("one")) as one, Wire(serving("two")) as two:
            first, second = configured({"a": one.url}), configured({"a": two.url})
            federation = Federation(first, Metrics("0"))
            await federation.apply(first)
            query = Query(Method.READ, "a+x://1")
            assert b"one" in (await federation.federator.fetch(query, ANYONE)).body
            await federation.apply(second)
            assert b"two" in (await federation.federator.fetch(query, ANYONE)).body
            await federation.close()

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


SECRET = "hunter2-hunter2-hunter2"
RUN = Upstream(command="run", args=("--key", SECRET), env={"KEY": SECRET})
PEOPLE = Upstream(repository="company:People", options={"password": SECRET, "table": "staff"})


@pytest.mark.parametrize(
    ("one", "other", "same"),
    [
        (Upstream(url="https://x"), Upstream(url="https://x", headers={"X": "y"}), True),
        (Upstream(url="https://x"), Upstream(url="https://x/"), False),
        (Upstream(url="https://x"), Upstream(command="https://x"), False),
        (RUN, msgspec.structs.replace(RUN, timeout=Duration(5)), True),
        (RUN, msgspec.structs.replace(RUN, args=("--key",)), False),
        (RUN, msgspec.structs.replace(RUN, env={"KEY": "another"}), False),
        (RUN, msgspec.structs.replace(RUN, cwd="/srv"), False),
        (PEOPLE, msgspec.structs.replace(PEOPLE, options=dict(reversed(PEOPLE.options.items()))), True),
        (PEOPLE, msgspec.structs.replace(PEOPLE, options={"table": 1 << 80}), False),
        (Upstream(directory="/srv/a"), Upstream(directory="/srv/b"), False),
    ],
)
def test_an_upstream_is_another_when_it_is_elsewhere(one: Upstream, other: Upstream, same: bool) -> None:
    """Cursors and cache entries of one server are not taken for those of another."""
    first, second = (_identity("a", settings, b"mapping", b"key") for settings in (one, other))
    assert (first == second) is same


@pytest.mark.parametrize("settings", [RUN, PEOPLE], ids=["stdio", "repository"])
def test_an_identity_does_not_give_a_secret_away(settings: Upstream) -> None:
    """Where a secret may be a part of it, nobody can try secrets on it who has not our key."""
    assert _identity("a", settings, b"mapping", b"key") != _identity("a", settings, b"mapping", b"other")
