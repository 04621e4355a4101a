"""H02, H04 and H05 at the whole product: any URI gets a prefix, and is taken apart in one way only."""

import asyncio

import pytest
from pydantic import AnyUrl

from mcp_federator.app import App
from mcp_federator.errors import ConfigError
from tests.cases.naming import LIST, READ, named, only, read_uris, refused, shelves
from tests.instruments.fronted import run
from tests.instruments.house import configured, house
from tests.instruments.wire import Wire, by_uri, contents, page, result

# H02: any URI gets a prefix; not any name can be one.

OPAQUE = {
    "memo": "memo:insights",
    "urn": "urn:isbn:0451450523",
    "data": "data:text/plain,hi",
    "mailto": "mailto:a@b",
    "tag": "tag:a.example,2026:x",
    "nothing-behind-the-scheme": "memo:",
    "no-scheme": "insights",
    "javascript": "javascript:alert(1)//",
}


@pytest.mark.parametrize("uri", OPAQUE.values(), ids=OPAQUE)
def test_H02_opaque_uris_are_listed_and_read(uri: str) -> None:
    """A URI without `://` is prefixed like any other."""

    async def check() -> None:
        async with shelves([uri]) as (it, [wire]):
            (shown,) = (await it.page()).uris
            assert shown == "alpha+" + uri
            assert only(await it.read(shown)) == (shown, "alpha " + uri)
            assert read_uris(wire) == [uri]

    run(check())


@pytest.mark.parametrize(
    "name",
    [
        "my_files",
        "Ünï",
        "",
        "Alpha",
        "1a",
        "-a",
        "a.b",
        "a+b",
        "a:b",
        "a/b",
        "a b",
        "a%20b",
        "a" * 32,
        "\u212a",
    ],
)
def test_H02_a_name_that_no_scheme_can_carry_is_refused_at_start(name: str) -> None:
    """The message says where it stands and what a name may be."""
    with pytest.raises(ConfigError, match=r"upstreams.*: .*1 to 31 lower-case letters, digits and hyphens"):
        configured({name: "http://127.0.0.1:9/mcp"})


@pytest.mark.parametrize("prefix", ["my_files:", "ü:", "1:", "a b:", "{a}:", "a:%20", ":", "/a", "a:{b}"])
def test_H02_a_prefix_that_cannot_begin_a_uri_is_refused_at_start(prefix: str) -> None:
    """The same of a prefix."""

    async def check() -> None:
        with pytest.raises(ConfigError, match=r"upstreams\.alpha\.prefix: "):
            async with house({"alpha": {"url": "http://127.0.0.1:9/mcp", "prefix": prefix}}):
                pass

    run(check())


@pytest.mark.parametrize("name", ["a", "z9", "a-", "a--b", "a" * 31])
def test_H02_a_name_that_is_accepted_can_be_read(name: str) -> None:
    """Whatever name passes, its URIs come back."""

    async def check() -> None:
        reads = by_uri({"memo:x": contents("memo:x")})
        async with (
            Wire({LIST: result(page("memo:x")), READ: reads}) as wire,
            house({name: wire.url}) as it,
        ):
            (shown,) = (await it.page()).uris
            assert str(AnyUrl(shown)) == shown
            assert only(await it.read(shown)) == (f"{name}+memo:x", "text")

    run(check())


# H04: the same URI on two upstreams is two resources.


@pytest.mark.parametrize("uri", ["timezone://info", "users/me", "a b", ""])
def test_H04_each_upstream_has_its_own(uri: str) -> None:
    """Listed as often as they list it, read from whom it is read from, kept apart."""

    async def check() -> None:
        async with shelves([uri, uri], [uri]) as (it, wires):
            assert (await it.page()).uris == ["alpha+" + uri, "alpha+" + uri, "beta+" + uri]
            for _ in range(2):
                for name in ("alpha", "beta"):
                    assert only(await it.read(f"{name}+{uri}")) == (f"{name}+{uri}", f"{name} {uri}")
            assert [read_uris(wire) for wire in wires] == [[uri], [uri]]

    run(check())


def test_H04_apps_of_two_upstreams_are_told_apart() -> None:
    """Also where the scheme stays in front."""

    async def check() -> None:
        async with shelves(["ui://a"], ["ui://a"]) as (it, _):
            assert (await it.page()).uris == ["ui://alpha/a", "ui://beta/a"]
            assert only(await it.read("ui://beta/a")) == ("ui://beta/a", "beta ui://a")

    run(check())


def test_H04_one_server_under_two_names_is_two_upstreams() -> None:
    """What is kept of one is not given for the other."""

    async def check() -> None:
        async with (
            Wire({READ: result(contents("x://1"))}) as wire,
            house({"alpha": wire.url, "beta": wire.url}) as it,
        ):
            assert only(await it.read("alpha+x://1"))[0] == "alpha+x://1"
            assert only(await it.read("beta+x://1"))[0] == "beta+x://1"
            assert read_uris(wire) == ["x://1", "x://1"]

    run(check())


# H05: a public URI can be taken apart in one way only.


@pytest.mark.parametrize(
    "upstreams",
    [
        pytest.param({"app": ["admin-x://y"], "app-admin": ["x://y"]}, id="as-the-case-has-it"),
        pytest.param({"app": ["-admin+x://y"], "app-admin": ["x://y"]}, id="rest-of-the-name"),
        pytest.param({"a": ["a+x://y", "+x://y"], "aa": ["x://y"]}, id="name-in-the-uri"),
        pytest.param({"a": ["b+x://y"], "b": ["a+x://y"]}, id="each-other"),
        pytest.param({"a": ["ui://b/x"], "b": ["ui://a/x"]}, id="apps"),
        pytest.param({"ui": ["ui://x", "x://y"], "a": ["ui://ui/x"]}, id="named-like-the-scheme"),
    ],
)
def test_H05_names_that_begin_alike_are_told_apart(upstreams: dict[str, list[str]]) -> None:
    """Each listed URI is read from the one that listed it."""

    async def check() -> None:
        async with named(upstreams) as (it, wires):
            shown = (await it.page()).uris
            natives = [(name, uri) for name, uris in upstreams.items() for uri in uris]
            assert len(set(shown)) == len(natives)
            for uri, (owner, native) in zip(shown, natives, strict=True):
                assert only(await it.read(uri)) == (uri, f"{owner} {native}")
            assert {name: read_uris(wire) for name, wire in wires.items()} == upstreams

    run(check())


@pytest.mark.parametrize(
    ("one", "other"),
    [
        pytest.param("app:", "app:admin:", id="begins"),
        pytest.param("app", "app+", id="begins-without-a-colon"),
        pytest.param("app:", "app:", id="repeats"),
        pytest.param("app:", "APP:", id="repeats-in-another-case"),
        pytest.param("app://", "App://x/", id="begins-in-another-case"),
        pytest.param("ui://", "x:", id="takes-the-apps"),
        pytest.param("ui://other/", "x:", id="takes-anothers-apps"),
        pytest.param("", "x:", id="takes-all"),
    ],
)
@pytest.mark.parametrize("order", [1, -1])
def test_H05_prefixes_that_could_be_mistaken_are_refused_at_start(one: str, other: str, order: int) -> None:
    """In either order, with the place where it is written."""
    upstreams = {
        name: {"url": "http://127.0.0.1:9/mcp", "prefix": prefix}
        for name, prefix in list({"one": one, "other": other}.items())[::order]
    }

    async def check() -> None:
        with pytest.raises(ConfigError, match=r"upstreams\.(one|other)\.prefix: "):
            await App(configured(upstreams)).run()

    asyncio.run(check())


@pytest.mark.parametrize(
    "uri",
    [
        "nope+x://1",
        "x://1",
        "alpha",
        "alph+x://1",
        "alpha-x://1",
        "alpha x://1",
        " alpha+x://1",
        "alpha%2Bx://1",
        "\u212aappa+x://1",
        "ui://x",
        "ui://nope/x",
        "ui://alpha",
        "",
        "+",
        "\x00",
        "é" * 100,
    ],
)
def test_H05_an_unknown_prefix_is_not_found(uri: str) -> None:
    """-32602 with the URI as it was asked, and nobody is bothered."""

    async def check() -> None:
        async with shelves(["x://1"], ["x://1"]) as (it, wires):
            refused(await it.read(uri), uri)
            assert [wire.calls(READ) + wire.calls(LIST) for wire in wires] == [[], []]

    run(check())


@pytest.mark.parametrize("prefix", ["ALPHA+", "Alpha+", "aLPHA+"])
def test_H05_the_scheme_of_a_public_uri_has_no_case(prefix: str) -> None:
    """URL classes write it in lower case, whoever wrote it; behind it each letter counts."""

    async def check() -> None:
        async with shelves(["x://h/a"]) as (it, [wire]):
            assert only(await it.read(prefix + "x://h/a")) == ("alpha+x://h/a", "alpha x://h/a")
            refused(await it.read(prefix + "x://h/A"), prefix + "x://h/A")
            assert read_uris(wire) == ["x://h/a", "x://h/A"]

    run(check())
