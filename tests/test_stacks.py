import asyncio
from pathlib import Path
from time import monotonic
from typing import Any

import pytest
from msgspec.structs import replace

from mcp_federator.cache.redis_tier import RedisTier
from mcp_federator.config import (
    Cache,
    Config,
    Duration,
    Lists,
    Log,
    Redis,
    Server,
    Tls,
    Upstream,
    UpstreamCache,
)
from mcp_federator.errors import ConfigError
from mcp_federator.metrics import Metrics
from mcp_federator.model import ANYONE, Answer, Method, Query, Scope, Wanted
from mcp_federator.stacks import Federation, _identity, _making, load, needs_restart
from mcp_federator.upstream.client import Client
from tests.instruments.house import configured
from tests.instruments.stdio import ONE, PATIENCE, Stage
from tests.instruments.wire import Answers, Received, Wire, contents, page, result
from tests.upstream.asking import run

READ = "resources/read"
LIST = "resources/list"


def serving(text: str = "text") -> dict[str, Answers]:
    return {READ: result(contents("x://1", text)), LIST: result(page("x://1"))}


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


def reads(federation: Federation, uri: str) -> asyncio.Task[Answer]:
    return asyncio.create_task(federation.federator.fetch(Query(Method.READ, uri), ANYONE))


@pytest.mark.parametrize("kept", [False, True], ids=["taken-out", "changed"])
def test_what_is_replaced_ends_when_nothing_is_under_way(kept: bool) -> None:
    """A process is ended at once where nobody waits for it, else when its answer has come."""

    async def check() -> None:
        slow = [["wait", "go"], *ONE]
        async with Stage(answers={READ: [ONE, slow]}) as stage, Wire(serving()) as wire:
            first = configured({"a": stage.command, "b": wire.url}, server={"grace": 600})
            other = {"a": {**stage.command, "env": {"X": "1"}}} if kept else {}
            second = configured({"b": wire.url, **other}, server={"grace": 600})
            federation = Federation(first, Metrics("0"))
            try:
                await federation.apply(first)
                await reads(federation, "a+x://1")
                waiting = reads(federation, "a+x://1")
                await stage.got(READ, 2)
                await federation.apply(second)
                await reads(federation, "b+x://1")
                assert not waiting.done()
                stage.order("go")
                assert b"one" in (await waiting).body
                await stage.ends(1)
            finally:
                await federation.close()

    run(check())


def test_a_walk_comes_to_what_was_replaced_meanwhile() -> None:
    """A list goes on with the upstreams it began with, whatever was put in force since."""

    async def check() -> None:
        gate, asked = asyncio.Event(), asyncio.Event()

        def slow(request: Received) -> Any:
            asked.set()
            return result(page("x://1"), after=gate)(request)

        async with Wire({LIST: slow}) as a, Wire(serving()) as b, Wire(serving()) as c, Wire(serving()) as d:
            lists = {"window": 1, "soft_deadline": 60}
            in_turn = [{"a": a.url, "b": b.url, "c": url} for url in (c.url, d.url)]
            in_turn.append({"a": d.url, "b": d.url, "c": d.url})
            first, *more = (configured(urls, lists=lists, server={"grace": 600}) for urls in in_turn)
            federation = Federation(first, Metrics("0"))
            try:
                await federation.apply(first)
                listing = asyncio.create_task(federation.federator.fetch(Query(Method.LIST), ANYONE))
                async with asyncio.timeout(PATIENCE):
                    await asked.wait()
                for config in more:
                    await federation.apply(config)
                gate.set()
                answer = await listing
                assert (answer.count, answer.incomplete) == (3, ())
                assert not d.calls(LIST)
            finally:
                await federation.close()

    run(check())


def test_what_was_replaced_a_moment_ago_is_closed_too() -> None:
    """An end that follows on a reload leaves nothing behind."""

    async def check() -> None:
        async with Stage() as stage, Wire(serving()) as wire:
            first, second = configured({"a": stage.command}), configured({"b": wire.url})
            federation = Federation(first, Metrics("0"))
            await federation.apply(first)
            await reads(federation, "a+x://1")
            await federation.apply(second)
            await federation.close()
            await stage.all_gone()

    run(check())


def changed(value: object) -> object:
    """Another value of the same kind."""
    match value:
        case bool():
            return not value
        case int() | float():
            return type(value)(value + 1)
        case str():
            return value + "x"
        case tuple():
            return ("http://another-one-of-it",)
        case Log():
            return Log(level="debug")
    return Redis(url="redis://127.0.0.1:9")


KEYS = [
    (name, key)
    for name, section in (("server", Server), ("lists", Lists), ("cache", Cache))
    for key in section.__struct_fields__
]


@pytest.mark.parametrize(("section", "key"), KEYS, ids=map(".".join, KEYS))
def test_a_key_is_in_force_or_needs_a_restart(section: str, key: str) -> None:
    """After a reload each key either has its new value or is named, and then has its old one."""
    first = configured({"a": {"url": "http://127.0.0.1:9/"}})
    old = getattr(first, section)
    new = replace(first, **{section: replace(old, **{key: changed(getattr(old, key))})})

    async def check() -> tuple[list[str], Config]:
        federation = Federation(first, Metrics("0"))
        await federation.apply(first)
        await federation.apply(new)
        await federation.close()
        return needs_restart(first, new), federation.config

    named, in_force = asyncio.run(check())
    fixed = section == "server" or key in {"memory", "redis", "client_refresh"}
    assert named == ([f"{section}.{key}"] if fixed else [])
    assert in_force == (first if fixed else new)


TIER = RedisTier(Redis(url="redis://127.0.0.1:9"), [b"secret"], Metrics("0"), monotonic)
"""It is never started."""


def test_what_is_not_put_in_force_takes_no_part() -> None:
    """An upstream that was made beside one that cannot be leaves the others of its tier alone."""
    first = configured({"a": {"url": "http://127.0.0.1:9/"}})
    bad = configured({"b": {"url": "http://127.0.0.1:9/"}, "c": {"repository": "nowhere:C"}})

    async def check() -> None:
        federation = Federation(first, Metrics("0"), redis=TIER)
        await federation.apply(first)
        with pytest.raises(ConfigError):
            await federation.apply(bad)
        assert [tag.partition(".")[0] for tag in TIER._replicas._members] == ["a"]
        await federation.close()
        assert not TIER._replicas._members

    asyncio.run(check())


@pytest.mark.parametrize("settings", [{}, {"directory": "tests"}], ids=["client", "repository"])
def test_settings_for_all_reach_every_part(settings: dict[str, str]) -> None:
    """What a reload puts in force is what each part goes by, in an upstream that is kept as it is."""
    first = configured({"a": settings or {"url": "http://127.0.0.1:9/"}})
    lists = Lists(window=2, soft_deadline=Duration(1), max_pages=3, max_items=4)
    cache = replace(first.cache, max_ttl=Duration(7200), stale_if_error=Duration(6))

    async def check() -> None:
        federation = Federation(first, Metrics("0"), redis=TIER)
        await federation.apply(first)
        kept = federation.clients["a"]
        await federation.apply(replace(first, lists=lists, cache=cache))
        assert federation.clients["a"] is kept
        copies = federation._stacks["a"].cached._copies
        assert (copies._max_ttl, copies._stale_window) == (cache.max_ttl, cache.stale_if_error)
        assert federation._stacks["a"].cached._max_ttl == cache.max_ttl
        shared = federation._stacks["a"].cached._shared
        assert shared is not None
        assert (shared._max_ttl, shared._window_ms) == (cache.max_ttl, 6000)
        assert kept._door._max_ttl_ms == 7_200_000
        assert kept._resolver.lists == federation.federator._lists == lists
        if isinstance(kept, Client):
            assert kept._discovery.max_life == 7200
        assert federation._scopes._private_for == 7200
        await federation.close()

    asyncio.run(check())


def test_a_request_keeps_the_time_limit_of_the_start() -> None:
    """`server.request_timeout` is named as needing a restart, so it does not hold before one."""
    first = configured({"a": {"url": "http://127.0.0.1:9/"}})
    new = replace(first, server=replace(first.server, request_timeout=Duration(1)))

    async def check() -> None:
        federation = Federation(first, Metrics("0"))
        await federation.apply(first)
        await federation.apply(new)
        assert federation.federator._request_timeout == 30
        await federation.close()

    asyncio.run(check())


def test_all_that_is_wrong_with_a_file_is_one_message(tmp_path: Path) -> None:
    """Names that collide are told beside all else, with the file and the place."""
    file = tmp_path / "federator.yaml"
    file.write_text(
        "lists: {window: 0}\n"
        "upstreams: {a: {url: 'http://h/', prefix: 'x:'}, b: {urk: 'http://h/', prefix: 'x:y'}, c_d: {}}"
    )
    with pytest.raises(ConfigError) as caught:
        load(file, {})
    lines = str(caught.value).splitlines()
    assert all(line.startswith(f"{file}: ") for line in lines)
    paths = {line.removeprefix(f"{file}: ").partition(":")[0] for line in lines}
    assert paths == {"lists.window", "upstreams.b.urk", "upstreams.b", "upstreams.c_d", "upstreams.a.prefix"}


def test_a_url_of_redis_that_cannot_be_used_is_found_when_the_file_is_read(tmp_path: Path) -> None:
    """So a reload refuses it as well, which would be in force only after a restart."""
    file = tmp_path / "federator.yaml"
    file.write_text(
        "server: {secret: 0123456789abcdef}\ncache: {redis: {url: 'redis://h/name'}}\n"
        "upstreams: {a: {url: 'http://h/'}}"
    )
    with pytest.raises(ConfigError) as caught:
        load(file, {})
    assert str(caught.value) == f"{file}: cache.redis.url: expected redis://HOST:PORT/DATABASE"


def test_upstreams_that_cannot_be_made_are_told_together(tmp_path: Path) -> None:
    """Classes that are not there are found only by importing them; they are named with the file as well."""
    file = tmp_path / "federator.yaml"
    file.write_text("upstreams: {a: {repository: 'nowhere:A'}, b: {repository: 'nowhere:B'}}")
    given = load(file, {})

    async def check() -> None:
        federation = Federation(given, Metrics("0"))
        with pytest.raises(ConfigError) as caught:
            await federation.apply(given)
        assert [line.split(": ")[:2] for line in str(caught.value).splitlines()] == [
            [str(file), f"upstreams.{name}.repository"] for name in "ab"
        ]
        await federation.close()

    asyncio.run(check())


SECRET = "hunter2-hunter2-hunter2"
RUN = Upstream(command="run", args=("--key", SECRET), env={"KEY": SECRET})
PEOPLE = Upstream(repository="company:People", options={"password": SECRET, "table": "staff"})


@pytest.mark.parametrize(
    ("one", "other", "same"),
    [
        (Upstream(url="https://x"), Upstream(url="https://x", headers={"X": "y"}), True),
        (Upstream(url="https://x"), Upstream(url="https://x/"), False),
        (Upstream(url="https://x"), Upstream(command="https://x"), False),
        (RUN, replace(RUN, timeout=Duration(5)), True),
        (RUN, replace(RUN, args=("--key",)), False),
        (RUN, replace(RUN, env={"KEY": "another"}), False),
        (RUN, replace(RUN, cwd="/srv"), False),
        (PEOPLE, replace(PEOPLE, options=dict(reversed(PEOPLE.options.items()))), True),
        (PEOPLE, replace(PEOPLE, options={"table": 1 << 80}), False),
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


HOME = Upstream(url="https://x")
TENANT = replace(HOME, headers={"X-Tenant": "one"})
TOKEN = replace(HOME, headers={"Authorization": "Bearer one"})
WHOLE, PRIVATE, NOTHING = (True, False), (False, True), (False, False)


@pytest.mark.parametrize(
    ("one", "other", "differ"),
    [
        (HOME, replace(HOME, timeout=Duration(5), max_connections=1), NOTHING),
        (HOME, replace(HOME, cache=UpstreamCache(list_scope="public")), NOTHING),
        (TOKEN, replace(HOME, headers={"authorization": "Bearer one"}), NOTHING),
        (TOKEN, replace(HOME, headers={"Authorization": "Bearer two"}), PRIVATE),
        (TENANT, replace(HOME, headers={"X-Tenant": "two"}), WHOLE),
        (TENANT, replace(HOME, headers={"X-Other": "one"}), WHOLE),
        (HOME, replace(HOME, forward=("authorization",)), WHOLE),
        (HOME, replace(HOME, client_capabilities={"elicitation": {}}), WHOLE),
        (HOME, replace(HOME, baggage=True), WHOLE),
        (HOME, replace(HOME, tls=Tls(cert_file="/c.pem")), WHOLE),
        (HOME, replace(HOME, cache=UpstreamCache(default_ttl=Duration(5))), WHOLE),
        (HOME, replace(HOME, cache=UpstreamCache(default_scope=Scope.PUBLIC)), WHOLE),
        (HOME, replace(HOME, cache=UpstreamCache(trust_public=False)), WHOLE),
    ],
)
def test_what_federators_share_was_made_alike(
    one: Upstream, other: Upstream, differ: tuple[bool, bool]
) -> None:
    """Another way to ask, or to judge, tells all answers apart; another token of ours the private ones."""
    first, second = (_making(b"identity", settings, b"key") for settings in (one, other))
    assert (first[0] != second[0], first[1] != second[1]) == differ


def test_a_secret_tells_nothing_apart_but_what_is_made_of_header_fields() -> None:
    """So a new one leaves copies in Redis where they were, as far as it may."""
    assert _making(b"identity", HOME, b"old") == _making(b"identity", HOME, b"new")
    (whole, private), (other, its) = (_making(b"identity", TOKEN, key) for key in (b"old", b"new"))
    assert whole == other
    assert private != its


@pytest.mark.parametrize(
    ("subscribes", "settings", "kept"),
    [
        (True, {}, Wanted(lists=True)),
        (True, {"cache": {"subscribe": False}}, None),
        (True, {"forward": ["authorization"]}, None),
        (False, {}, None),
    ],
    ids=["yes", "configured not to", "credentials of callers", "not for a moment"],
)
def test_the_cache_listens_on_behalf_of_nobody(
    subscribes: bool, settings: dict[str, object], kept: Wanted | None
) -> None:
    """To each upstream, unless it is told who asks; what a command makes for the moment listens to nobody."""
    first = configured({"a": {"url": "http://127.0.0.1:9/", **settings}})

    async def check() -> None:
        federation = Federation(first, Metrics("0"), subscribes=subscribes)
        await federation.apply(first)
        contexts = federation.hub._channels["a"].contexts
        assert [context.wanted for context in contexts.values()] == ([] if kept is None else [kept])
        await federation.close()

    asyncio.run(check())
