"""URIs, prefixes and templates, cases H01 to H05: what is shown can be read, and upstreams see their own.

Each row is one input, over the whole product.  The upstreams answer on exact match alone.
"""

import asyncio
import json
from collections.abc import AsyncIterator, Callable, Iterable, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from typing import Any
from urllib.parse import urlsplit, urlunsplit

import pytest
import yarl
from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic import AnyUrl, ValidationError

from mcp_federator.app import App
from mcp_federator.errors import ConfigError
from mcp_federator.federation.template import expand
from mcp_federator.protocol.headers import decode_name
from tests.instruments.fronted import Clock, fronted, run
from tests.instruments.house import House, Reply, body_of, configured, headers_of, house
from tests.instruments.wire import Answers, Received, Step, Wire, by_uri, contents, page, result

READ = "resources/read"
LIST = "resources/list"
TEMPLATES = "resources/templates/list"


@asynccontextmanager
async def named(
    upstreams: Mapping[str, list[str]], settings: Mapping[str, Any] | None = None
) -> AsyncIterator[tuple[House, dict[str, Wire]]]:
    """A federator over upstreams of these names, each with its URIs; a text is name and URI."""
    async with AsyncExitStack() as open_:
        wires = {}
        for name, uris in upstreams.items():
            reads = by_uri({uri: contents(uri, f"{name} {uri}") for uri in uris})
            wires[name] = await open_.enter_async_context(Wire({LIST: result(page(*uris)), READ: reads}))
        configuration = {name: {"url": wire.url, **(settings or {})} for name, wire in wires.items()}
        yield await open_.enter_async_context(house(configuration)), wires


@asynccontextmanager
async def shelves(
    *lists: list[str], settings: Mapping[str, Any] | None = None
) -> AsyncIterator[tuple[House, list[Wire]]]:
    """The same over `alpha` and `beta`."""
    async with named(dict(zip(("alpha", "beta"), lists, strict=False)), settings) as (it, wires):
        yield it, list(wires.values())


def read_uris(wire: Wire) -> list[str]:
    """The URIs that reached an upstream, which stand alike in its body and in its header."""
    calls = wire.calls(READ)
    assert [decode_name(call.header("mcp-name") or "") for call in calls] == [
        call.params["uri"] for call in calls
    ]
    return [call.params["uri"] for call in calls]


def only(reply: Reply) -> tuple[str, str]:
    """URI and text of what was read."""
    (content,) = reply.result["contents"]
    return content["uri"], content["text"]


def refused(reply: Reply, uri: str) -> None:
    """The reply says that there is no such resource, and names it as it was asked for."""
    assert (reply.status, reply.error["code"]) == (200, -32602)
    assert reply.error["data"] == {"uri": uri}


# H01: a URI is a text, and nothing else.

URIS = {
    "space": "file:///a b.txt",
    "beyond-ascii": "file:///café/x",
    "dot-segments": "file:///a/../b",
    "upper-case-host": "http://Ex.com",
    "underscore-in-host": "mem://A_b/c",
    "lower-case-escape": "x://h/A%2fb",
    "needless-escape": "x://h/%7Ea",
    "empty-query": "x://h?",
    "empty-fragment": "x://h#",
    "no-host": "foo:///a",
    "relative": "users/me",
    # The rest of the kind.
    "upper-case-scheme": "FILE:///A",
    "default-port": "http://ex.com:80/",
    "no-path": "https://ex.com",
    "empty-segments": "x://h//a///b",
    "dot-at-the-end": "x://h/a/.",
    "broken-escape": "x://h/100%/%zz",
    "escaped-nothing": "x://h/%00",
    "plus": "x://h/a+b?c+d",
    "decomposed": "x://h/cafe\u0301",
    "punycode": "http://xn--caf-dma.example/",
    "international-host": "http://café.example/",
    "beyond-16-bits": "x://h/\U0001f600",
    "right-to-left": "x://h/\u202eabc",
    "space-before": " x://h",
    "space-behind": "x://h ",
    "line-break": "x://h/a\r\nInjected: yes",
    "tab-and-nothing": "x://h/\t\x00",
    "backslash": "x://h\\a\\b",
    "quotes": "x://h/\"'<>",
    "braces": "x://h/{a}",
    "address": "x://[::1]:1/a",
    "user": "x://u:p@h/a",
    "sentinel": "=?base64?eA==?=",
    "long": "x://h/" + "a" * 8_000,
    "long-beyond-ascii": "x://h/" + "é" * 6_000,
    "empty": "",
    "colon": ":",
    "hash": "#",
    "looks-public": "alpha+x://h",
    "looks-public-twice": "beta+alpha+x://h",
}
uris = pytest.mark.parametrize("uri", URIS.values(), ids=URIS)


@uris
def test_H01_what_is_listed_is_read_unchanged(uri: str) -> None:
    """The string that alpha lists is the string that alpha is asked for; once, then it is kept under it."""

    async def check() -> None:
        async with shelves([uri]) as (it, [wire]):
            assert (await it.page()).uris == ["alpha+" + uri]
            first, second = await it.read("alpha+" + uri), await it.read("alpha+" + uri)
            assert only(first) == only(second) == ("alpha+" + uri, "alpha " + uri)
            assert ("miss" in first.cache_status, "hit" in second.cache_status) == (True, True)
            assert read_uris(wire) == [uri]

    run(check())


@settings(deadline=None, max_examples=50)
@given(st.lists(st.text(), min_size=1, max_size=8), st.sampled_from(["alpha+", "gw://docs/", ""]))
def test_invariant_11_everything_listed_can_be_read_back(natives: list[str], prefix: str) -> None:
    """Whatever texts an upstream calls its resources."""

    async def check() -> None:
        async with shelves(natives, settings={"prefix": prefix}) as (it, [wire]):
            shown = (await it.page()).uris
            for native, uri in zip(natives, shown, strict=True):
                assert only(await it.read(uri)) == (uri, "alpha " + native)
            assert read_uris(wire) == list(dict.fromkeys(natives))

    run(check())


@pytest.mark.parametrize("spelt", ["é/😀", "\\u00e9/\\ud83d\\ude00", "\\u00E9\\/\\uD83D\\uDE00"])
def test_H01_how_json_spells_a_uri_is_no_part_of_it(spelt: str) -> None:
    """Escaped or not, a client asks for one resource, and the upstream is asked once."""
    uri = "x://h/é/😀"

    async def check() -> None:
        async with shelves([uri]) as (it, [wire]):
            await it.read("alpha+" + uri)
            body = json.dumps(body_of(READ, {"uri": "alpha+x://h/$"})).replace("$", spelt)
            reply = await it.send(body.encode(), headers_of(READ, {"uri": "alpha+" + uri}))
            assert only(reply) == ("alpha+" + uri, "alpha " + uri)
            assert read_uris(wire) == [uri]

    run(check())


@uris
def test_H01_what_is_not_found_is_named_as_it_was_asked(uri: str) -> None:
    """The upstream is asked for the exact string, and `data.uri` of its error is the asked one."""

    async def check() -> None:
        async with shelves(["x://other"]) as (it, [wire]):
            refused(await it.read("alpha+" + uri), "alpha+" + uri)
            assert read_uris(wire) == [uri]

    run(check())


MAPPINGS: dict[str, tuple[dict[str, Any], str, str]] = {
    "scheme": ({"prefix": "docs://"}, "docs://", ""),
    "path": ({"prefix": "gw://docs/"}, "gw://docs/", ""),
    "opaque": ({"prefix": "urn:docs:"}, "urn:docs:", ""),
    "upper-case": ({"prefix": "Docs+"}, "Docs+", ""),
    "none": ({"prefix": ""}, "", ""),
    "replaced": ({"prefix": "docs://", "native_prefix": "file:///srv/"}, "docs://", "file:///srv/"),
    "cut-off": ({"prefix": "docs+", "native_prefix": "x:"}, "docs+", "x:"),
}


@pytest.mark.parametrize("mapping", MAPPINGS.values(), ids=MAPPINGS)
@pytest.mark.parametrize("rest", ["a b", "é/../x?#", "A%2fb", "docs://x", ""])
def test_H01_it_is_so_behind_any_prefix(mapping: tuple[dict[str, Any], str, str], rest: str) -> None:
    """A configured prefix stands before the URI, or in place of `native_prefix`, and changes nothing else."""
    settings, prefix, native_prefix = mapping

    async def check() -> None:
        async with shelves([native_prefix + rest], settings=settings) as (it, [wire]):
            (shown,) = (await it.page()).uris
            assert shown == prefix + rest
            assert only(await it.read(shown))[0] == shown
            assert read_uris(wire) == [native_prefix + rest]

    run(check())


@pytest.mark.parametrize(
    ("one", "other"),
    [
        pytest.param("x://h/A%2fb", "x://h/A%2Fb", id="case-of-an-escape"),
        pytest.param("x://h/%7Ea", "x://h/~a", id="needless-escape"),
        pytest.param("x://h", "x://h?", id="empty-query"),
        pytest.param("x://h", "x://h/", id="empty-path"),
        pytest.param("x://H", "x://h", id="case-of-a-host"),
        pytest.param("X://h", "x://h", id="case-of-a-scheme"),
        pytest.param("x://h/caf\u00e9", "x://h/cafe\u0301", id="composed"),
        pytest.param("x://h/a b", "x://h/a%20b", id="space"),
        pytest.param("x://h/a", "x://h/a ", id="space-behind"),
        pytest.param("a", "alpha+a", id="prefix"),
    ],
)
def test_H01_what_is_almost_the_same_is_another_resource(one: str, other: str) -> None:
    """Each is read as itself and kept apart."""

    async def check() -> None:
        async with shelves([one, other]) as (it, [wire]):
            for _ in range(2):
                for uri in (one, other):
                    assert only(await it.read("alpha+" + uri)) == ("alpha+" + uri, "alpha " + uri)
            assert read_uris(wire) == [one, other]

    run(check())


def urllib(uri: str) -> str:
    return urlunsplit(urlsplit(uri))


REWRITERS: dict[str, Callable[[str], str]] = {
    "pydantic": lambda uri: str(AnyUrl(uri)),
    "yarl": lambda uri: str(yarl.URL(uri)),
    "urllib": urllib,
}


def rewritten() -> list[Any]:
    """All (original, what a URL class sends back) that differ."""
    rows = []
    for name, uri in URIS.items():
        for kind, rewrite in REWRITERS.items():
            try:
                sent = rewrite("alpha+" + uri)
            except (ValueError, ValidationError):
                continue
            if sent != "alpha+" + uri and sent.startswith("alpha+"):
                rows.append(pytest.param(uri, sent, id=f"{kind}-{name}"))
    return rows


@pytest.mark.parametrize("listed", [True, False], ids=["listed", "not-listed"])
@pytest.mark.parametrize(("uri", "sent"), rewritten())
def test_H01_what_a_url_class_made_of_it_is_found(uri: str, sent: str, *, listed: bool) -> None:
    """The upstream is asked for what was sent, then for its original; for its list only if nobody was."""

    async def check() -> None:
        async with shelves([uri, "x://other"]) as (it, [wire]):
            if listed:
                await it.page()
            assert only(await it.read(sent)) == ("alpha+" + uri, "alpha " + uri)
            assert read_uris(wire) == [sent.removeprefix("alpha+"), uri]
            assert len(wire.calls(LIST)) == 1
            assert "hit" in (await it.read(sent)).cache_status

    run(check())


def test_H01_two_originals_of_one_form_stay_not_found() -> None:
    """Which one was meant nobody knows."""

    async def check() -> None:
        async with shelves(["x://h/a b", "x://h/c/../a b"]) as (it, [wire]):
            refused(await it.read("alpha+x://h/a%20b"), "alpha+x://h/a%20b")
            assert read_uris(wire) == ["x://h/a%20b"]

    run(check())


def test_H01_nobody_is_given_the_original_of_anothers_list() -> None:
    """What was learnt from the list of one caller is for him alone: others find what is in their own."""
    lists = {"a": result(page("x://h/a b", scope="private")), "b": result(page(scope="private"))}
    settings = {"forward": ["authorization"]}

    def listing(request: Received) -> Iterable[Step]:
        return lists[request.header("authorization") or ""](request)

    async def check() -> None:
        answers = {LIST: listing, READ: by_uri({"x://h/a b": contents("x://h/a b", scope="private")})}
        async with fronted(answers, settings) as (it, wire):
            assert (await it.page(headers={"Authorization": "a"})).uris == ["alpha+x://h/a b"]
            asked = "alpha+x://h/a%20b"
            assert only(await it.read(asked, headers={"Authorization": "a"}))[0] == "alpha+x://h/a b"
            wire.received.clear()
            refused(await it.read(asked, headers={"Authorization": "b"}), asked)
            assert read_uris(wire) == ["x://h/a%20b"]
            assert [call.header("authorization") for call in wire.received] == ["b", "b"]

    run(check())


def test_H01_a_resource_that_appears_later_is_found_when_its_page_passed_by() -> None:
    """Nobody walks the list a second time for it."""

    async def check() -> None:
        clock = Clock()
        answers: dict[str, Answers] = {
            LIST: [result(page()), result(page("x://h/a b"))],
            READ: by_uri({"x://h/a b": contents("")}),
        }
        async with fronted(answers, clock=clock) as (it, wire):
            for _ in range(2):
                refused(await it.read("alpha+x://h/a%20b"), "alpha+x://h/a%20b")
            assert len(wire.calls(LIST)) == 1
            await it.page()
            assert (await it.read("alpha+x://h/a%20b")).status == 200
            assert len(wire.calls(LIST)) == 2

    run(check())


@pytest.mark.parametrize("asked", ["ui://alpha/a b", "alpha+ui://a b", "UI://alpha/a b", "Alpha+ui://a b"])
def test_H01_an_app_keeps_its_scheme(asked: str) -> None:
    """`ui://x` is listed as `ui://alpha/x`, and read under that name or behind the prefix."""

    async def check() -> None:
        async with shelves(["ui://a b"]) as (it, [wire]):
            assert (await it.page()).uris == ["ui://alpha/a b"]
            assert only(await it.read(asked)) == ("ui://alpha/a b", "alpha ui://a b")
            assert read_uris(wire) == ["ui://a b"]

    run(check())


@pytest.mark.parametrize("uri", ["file:///a b", "inner+x://1", "ui://app", "users/me"])
def test_H01_a_federator_behind_a_federator_adds_one_layer(uri: str) -> None:
    """What is listed through two of them is read through two of them."""

    async def check() -> None:
        async with shelves([uri]) as (inner, [wire]), house({"outer": inner.url}) as outer:
            (shown,) = (await outer.page()).uris
            assert only(await outer.read(shown)) == (shown, "alpha " + uri)
            assert read_uris(wire) == [uri]

    run(check())


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


# H03: a template is text, and expanding it commutes with prefixing it.

VALUES: dict[str, Any] = {
    "owner": "o w",
    "path": "a/b c.md",
    "ref": "main",
    "q": {"x": "1", "y": "2"},
    "id": "123",
    "format": "json",
    "list": ["a", "b/c"],
}
EXPANDED = {
    "repo": ("repo://{owner}/{+path}{?ref,q*}", "repo://o%20w/a/b%20c.md?ref=main&x=1&y=2"),
    "file": ("file:///{path}", "file:///a%2Fb%20c.md"),
    "data": ("data://{id}{?format}", "data://123?format=json"),
    "segments": ("x://h{/list*}{/id}", "x://h/a/b%2Fc/123"),
    "labels": ("x://h/a{.list*}", "x://h/a.a.b%2Fc"),
    "parameters": ("x://h{;q*,id}", "x://h;x=1;y=2;id=123"),
    "fragment": ("x://h{#path}", "x://h#a/b%20c.md"),
    "continuation": ("x://h?a=1{&format,none}", "x://h?a=1&format=json"),
    "cut": ("x://h/{path:3}", "x://h/a%2Fb"),
    "exploded": ("x://h/{list*}", "x://h/a,b%2Fc"),
    "nothing-given": ("x://h/{none}{?none}", "x://h/"),
    "no-variables": ("x://h/a b".replace(" ", "%20"), "x://h/a%20b"),
    "literals": ("x://h/é/{id}", "x://h/%C3%A9/123"),
    "scheme-is-a-variable": ("{id}", "123"),
    "all-is-a-variable": ("{+path}", "a/b%20c.md"),
}


@asynccontextmanager
async def templated(*templates: str, settings: Mapping[str, Any] | None = None) -> AsyncIterator[Any]:
    """A federator over an upstream with these templates, which has whatever it is asked for."""

    def echo(request: Received) -> list[Step]:
        uri = request.params["uri"]
        return list(result(contents(uri, uri))(request))

    items = [{"uriTemplate": text, "name": text} for text in templates]
    listed = result({"resourceTemplates": items, "ttlMs": 60_000, "cacheScope": "public"})
    async with (
        Wire({TEMPLATES: listed, READ: echo}) as wire,
        house({"alpha": {"url": wire.url, **(settings or {})}}) as it,
    ):
        shown = (await it.page(None, TEMPLATES)).result["resourceTemplates"]
        yield it, wire, [item["uriTemplate"] for item in shown]


@pytest.mark.parametrize("prefix", ["alpha+", "gw://docs/", ""])
@pytest.mark.parametrize(("template", "expansion"), EXPANDED.values(), ids=EXPANDED)
def test_H03_the_public_template_expands_to_the_public_uri(
    template: str, expansion: str, prefix: str
) -> None:
    """`expand(public(T), v) == public(expand(T, v))`, and alpha sees exactly `expand(T, v)`."""

    async def check() -> None:
        async with templated(template, settings={"prefix": prefix}) as (it, wire, [shown]):
            assert shown == prefix + template
            asked = expand(shown, VALUES)
            assert asked == prefix + expansion
            assert only(await it.read(asked)) == (asked, expansion)
            assert read_uris(wire) == [expansion]
            assert not wire.calls(LIST)

    run(check())


@pytest.mark.parametrize("uri", ["data://123", "data://123?format=a b", "data://", "data://{id}{?format}"])
def test_H03_a_read_needs_no_match(uri: str) -> None:
    """What no template would give is read all the same, routed by its prefix."""

    async def check() -> None:
        async with templated("data://{id}{?format}") as (it, wire, _):
            assert only(await it.read("alpha+" + uri)) == ("alpha+" + uri, uri)
            assert read_uris(wire) == [uri]

    run(check())


def test_H03_a_template_of_apps_keeps_its_scheme() -> None:
    """`ui://` stays in front where it is literal, and is found behind the prefix where it is a value."""

    async def check() -> None:
        async with templated("ui://{id}", "{+path}") as (it, wire, shown):
            assert shown == ["ui://alpha/{id}", "alpha+{+path}"]
            assert only(await it.read(expand(shown[0], {"id": "1"}))) == ("ui://alpha/1", "ui://1")
            assert only(await it.read(expand(shown[1], {"path": "ui://1"}))) == ("ui://alpha/1", "ui://1")
            assert read_uris(wire) == ["ui://1"]

    run(check())


@pytest.mark.parametrize(
    "bad", ["x://{", "x://}", "x://{}", "x://{a b}", "x://{a", "x://{!a}", "x://{a:0}", "x y"]
)
def test_H03_what_is_no_template_is_left_out_alone(bad: str) -> None:
    """Nobody could expand it; its neighbours stay."""

    async def check() -> None:
        async with templated("x://{a}", bad, "y://{a}") as (_, _, shown):
            assert shown == ["alpha+x://{a}", "alpha+y://{a}"]

    run(check())


def test_H03_a_template_that_may_leave_the_native_prefix_is_withheld() -> None:
    """Only what is certain of all it can give counts."""

    async def check() -> None:
        settings = {"prefix": "docs://", "native_prefix": "file:///srv/"}
        async with templated("file:///srv/{p}", "file:///{p}", "{p}", settings=settings) as (_, _, shown):
            assert shown == ["docs://{p}"]

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
