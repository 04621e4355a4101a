"""URIs, case H01: what is shown can be read, and upstreams see their own.

Each row is one input, over the whole product.  The upstreams answer on exact match alone.
"""

import json
from collections.abc import Callable, Iterable
from typing import Any
from urllib.parse import urlsplit, urlunsplit

import pytest
import yarl
from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic import AnyUrl, ValidationError

from mcp_federator.upstream.resolution import REST
from tests.cases.naming import LIST, READ, only, read_uris, refused, shelves
from tests.instruments.fronted import DISCOVER, Clock, choosing, fronted, run
from tests.instruments.house import body_of, headers_of, house
from tests.instruments.wire import (
    Answer,
    Answers,
    Received,
    Step,
    accepted,
    by_cursor,
    by_uri,
    contents,
    error,
    event,
    initialized,
    page,
    result,
    stream,
)

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


def test_H01_what_a_list_said_is_void_once_its_upstream_says_that_it_changed() -> None:
    """A list that was walked in vain is walked again after `list_changed`."""
    pages = {None: page("x://0", cursor="c"), "c": page("x://1")}
    known = {uri: contents(uri) for uri in ("x://0", "x://1")}
    notice = b'data: {"jsonrpc":"2.0","method":"notifications/resources/list_changed"}\n\n'

    def reading(request: Received) -> Answer:
        if request.params["uri"] == "x://1":
            return stream(notice, event(contents("x://1")))
        return by_uri(known)

    answers = {
        DISCOVER: error(-32601),
        "initialize": initialized(),
        "notifications/initialized": accepted(),
        LIST: choosing(lambda _: by_cursor(pages)),
        READ: choosing(reading),
    }

    async def check() -> None:
        clock = Clock()
        async with fronted(answers, clock=clock) as (it, wire):
            for _ in range(2):
                assert (await it.read("alpha+x://a%20b")).error["code"] == -32602
                assert len(wire.calls(LIST)) == 2
                clock.now += REST
            pages["c"] = page("x://a b")
            known["x://a b"] = contents("x://a b")
            assert (await it.read("alpha+x://1")).uris == ["alpha+x://1"]
            assert (await it.read("alpha+x://a%20b")).uris == ["alpha+x://a b"]

    run(check())
