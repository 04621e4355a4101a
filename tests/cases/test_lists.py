"""Merged lists, cases H06 to H08: each item once, and in bounds.

Each row is one input, over the whole product; what it costs is counted at the upstreams.
"""

import json
from collections.abc import Mapping
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mcp_federator.federation.cursor import MAX_CHARS
from mcp_federator.upstream.resolution import REST
from tests.cases.paging import (
    INCOMPLETE,
    LIST,
    READ,
    TEMPLATES,
    cursors,
    lists,
    merged,
    paged,
    refused,
    shown,
)
from tests.instruments.fronted import Clock, choosing, fronted, run
from tests.instruments.house import house
from tests.instruments.processes import command
from tests.instruments.wire import (
    Answer,
    Received,
    Wire,
    by_cursor,
    by_uri,
    contents,
    discovered,
    error,
    page,
    result,
)

# H06: any string is a cursor.

CURSORS = {
    "empty": "",
    "blank": " ",
    "zero": "0",
    "null": "null",
    "beyond-ascii": "é\U0001f600",
    "control": "\x00\n",
    "quotes": '"\\',
    "like-ours": "AbCd" * 20,
    "longest": "a" * 4096,
    "longest-in-bytes": "é" * 2048,
}


@lists
@pytest.mark.parametrize("cursor", CURSORS.values(), ids=CURSORS)
def test_H06_any_string_is_a_cursor(cursor: str, method: str) -> None:
    """It goes back to its upstream as it came, is not "no cursor", and is kept apart from that."""

    async def check() -> None:
        alpha = paged(method, ["r1"], ["r2"], cursors=[cursor])
        async with merged({"alpha": alpha, "beta": paged(method, ["r3"])}) as (it, wires):
            for _ in range(2):
                pages = await it.walk(method)
                assert shown(pages, method) == ["alpha+r1", "beta+r3", "alpha+r2"]
            assert cursors(wires["alpha"], method) == [None, cursor]
            assert cursors(wires["beta"], method) == [None]

    run(check())


def test_H06_cursors_that_look_alike_are_pages_of_their_own() -> None:
    """Nothing is trimmed, folded or counted as missing, neither upstream nor in the cache."""
    order = ["", " ", "a", "A", "null", "0", "é", "e\u0301"]

    async def check() -> None:
        pages = [[f"r{number}"] for number in range(len(order) + 1)]
        async with fronted({LIST: paged(LIST, *pages, cursors=order)}) as (it, wire):
            for _ in range(2):
                assert shown(await it.walk()) == [f"alpha+{uri}" for [uri] in pages]
            assert cursors(wire) == [None, *order]

    run(check())


@lists
@pytest.mark.parametrize("cursor", ["", " ", "null", "0"])
def test_H06_an_empty_cursor_that_we_did_not_give_is_refused(cursor: str, method: str) -> None:
    """It is not page 1."""

    async def check() -> None:
        async with fronted({LIST: result(page("r1")), TEMPLATES: result(page())}) as (it, wire):
            refused(await it.page(cursor, method))
            assert not wire.calls(method)

    run(check())


@pytest.mark.parametrize(
    "cursor",
    ["a" * 4097, "é" * 2049, 5, True, [], {}],
    ids=["long", "long-in-bytes", "5", "true", "[]", "{}"],
)
def test_H06_what_is_no_cursor_costs_its_upstream_alone(cursor: Any) -> None:
    """The page that ends in it is no page; beta's stays."""

    async def check() -> None:
        alpha = result(page("r1") | {"nextCursor": cursor})
        async with merged({"alpha": alpha, "beta": paged(LIST, ["r2"])}) as (it, _):
            reply = await it.page()
            assert reply.uris == ["beta+r2"]
            assert reply.result["_meta"][INCOMPLETE] == [{"upstream": "alpha", "reason": "bad_reply"}]
            assert reply.result["ttlMs"] == 0
            assert "nextCursor" not in reply.result

    run(check())


# H07: a listing need not end.

LOOPS: dict[str, dict[str | None, tuple[list[str], str]]] = {
    "one": {None: (["r1"], "x"), "x": (["r1"], "x")},
    "empty-string": {None: (["r1"], ""), "": (["r1"], "")},
    "two": {None: (["r1"], "A"), "A": (["r1"], "B"), "B": (["r1"], "A")},
}
loops = pytest.mark.parametrize("loop", LOOPS.values(), ids=LOOPS)


def looping(loop: Mapping[str | None, tuple[list[str], str]], **how: Any) -> Answer:
    return by_cursor({at: page(*uris, cursor=cursor, **how) for at, (uris, cursor) in loop.items()})


@loops
@pytest.mark.parametrize("ttl", [0, 60_000], ids=["not-kept", "kept"])
def test_H07_a_client_may_walk_an_endless_list(
    loop: dict[str | None, tuple[list[str], str]], ttl: int
) -> None:
    """1,000 pages: each asks alpha once at most, nothing grows, and beta's items were on the first."""

    async def check() -> None:
        async with merged({"alpha": looping(loop, ttl=ttl), "beta": paged(LIST, ["b"])}) as (it, wires):
            first = await it.page()
            assert first.uris == ["alpha+r1", "beta+b"]
            cursor = first.result["nextCursor"]
            size = len(cursor)
            for _ in range(999):
                reply = await it.page(cursor)
                assert reply.uris == ["alpha+r1"]
                cursor = reply.result["nextCursor"]
                assert len(cursor) <= size
            assert len(wires["alpha"].calls(LIST)) == (len(loop) if ttl else 1000)
            assert len(wires["beta"].calls(LIST)) == 1
            assert (await it.status())["cache"]["memory"]["entries"] == (len(loop) + 1 if ttl else 1)

    run(check())


@pytest.mark.parametrize("own", ["x", ""])
def test_H07_an_endless_list_of_nothing_is_followed_in_bounds(own: str) -> None:
    """Eight rounds of one request; then the client is given the cursor, with what the others have."""

    async def check() -> None:
        alpha = by_cursor(dict.fromkeys([None, own], page(cursor=own, ttl=0)))
        async with merged({"alpha": alpha, "beta": paged(LIST, ["b"])}) as (it, wires):
            cursor = None
            for number in range(1, 4):
                reply = await it.page(cursor)
                assert reply.uris == (["beta+b"] if number == 1 else [])
                assert len(wires["alpha"].calls(LIST)) == 8 * number
                cursor = reply.result["nextCursor"]
            assert len(wires["beta"].calls(LIST)) == 1

    run(check())


def test_H07_empty_pages_on_the_way_cost_no_request_of_the_client() -> None:
    """They are followed until there is something to show."""

    async def check() -> None:
        async with fronted({LIST: paged(LIST, [], [], ["r1"], [], ["r2"])}) as (it, wire):
            assert [reply.uris for reply in await it.walk()] == [["alpha+r1"], ["alpha+r2"]]
            assert cursors(wire) == [None, "1", "2", "3", "4"]

    run(check())


def test_H07_a_page_ends_when_it_has_enough() -> None:
    """No further round begins behind the thousandth item, though the window has upstreams waiting."""

    async def check() -> None:
        many = [f"r{number}" for number in range(1000)]
        async with merged({"alpha": paged(LIST, many), "beta": paged(LIST, ["b"])}, lists={"window": 1}) as (
            it,
            wires,
        ):
            first = await it.page()
            assert len(first.uris) == 1000
            assert not wires["beta"].calls(LIST)
            assert (await it.page(first.result["nextCursor"])).uris == ["beta+b"]

    run(check())


@loops
def test_H07_our_own_walk_ends_where_it_has_been(loop: dict[str | None, tuple[list[str], str]]) -> None:
    """A walk to find what a client meant does not go round, and is not taken up again by the next read."""

    async def check() -> None:
        answers = {LIST: looping(loop), READ: by_uri({"r1": contents("r1")})}
        async with fronted(answers) as (it, wire):
            for number in range(3):
                assert (await it.read(f"alpha+no {number}")).error["code"] == -32602
            assert len(wire.calls(LIST)) == len(loop)

    run(check())


def endless() -> Answer:
    """A list of one new item on each page, and always a new cursor."""

    def answer(number: int) -> Answer:
        return result(page(f"x://h/a {number}", cursor=str(number + 1)))

    return choosing(lambda request: answer(int(request.params.get("cursor", 0))))


@pytest.mark.parametrize(
    ("bounds", "pages"), [({"max_pages": 5}, 5), ({"max_items": 7}, 7)], ids=["pages", "items"]
)
def test_H07_our_own_walk_ends_at_its_bounds(
    bounds: dict[str, int], pages: int, caplog: pytest.LogCaptureFixture
) -> None:
    """The configured ones; the log says so, and what lies within them is found."""

    async def check() -> None:
        answers = {LIST: endless(), READ: by_uri({"x://h/a 1": contents("x://h/a 1")})}
        async with fronted(answers, lists=bounds) as (it, wire):
            assert (await it.read("alpha+x://h/a%20900")).error["code"] == -32602
            assert len(wire.calls(LIST)) == pages
            assert (await it.read("alpha+x://h/a%201")).status == 200
            assert len(wire.calls(LIST)) == pages

    caplog.set_level("INFO")
    run(check())
    assert [line for line in caplog.messages if "walk" in line]


def test_H07_the_command_line_stops_and_says_so(tmp_path: Path) -> None:
    """`list` shows what lies within its bounds, and that the list goes on."""
    file = tmp_path / "federator.json"

    async def check() -> None:
        async with Wire({LIST: endless()}) as wire:
            file.write_text(json.dumps({"upstreams": {"a": {"url": wire.url}}, "lists": {"max_pages": 3}}))
            status, out, err = await command("list", "-c", str(file))
            assert (status, len(out.splitlines())) == (3, 3)
            assert "stopped after 3 items: the list goes on" in err
            assert len(wire.calls(LIST)) == 3

    run(check())


# H08: all pages of all upstreams.


@lists
@pytest.mark.parametrize("gamma", ["refuses", "declares-nothing"])
@pytest.mark.parametrize("window", [1, 2, 8])
def test_H08_every_page_of_every_upstream_is_listed_once(method: str, gamma: str, window: int) -> None:
    """12 items; no cursor strays; who has no such list does not fail it; the last page has no cursor."""
    alpha = [["a1", "a2"], ["a3", "a4"], ["a5", "a6"]]
    beta = [["b1", "b2", "b3"], ["b4", "b5", "b6"]]
    capabilities: dict[str, Any] = {"resources": {}} if gamma == "refuses" else {}

    async def check() -> None:
        upstreams: dict[str, Answer | dict[str, Answer]] = {
            "alpha": paged(method, *alpha, cursors=["one", "two"]),
            "gamma": {
                "server/discover": result(discovered(capabilities)),
                method: error(-32601, status=404),
            },
            "beta": paged(method, *beta, cursors=["eins"]),
        }
        async with merged(upstreams, lists={"window": window}) as (it, wires):
            pages = await it.walk(method)
            for name, own in (("alpha", alpha), ("beta", beta)):
                here = [uri for uri in shown(pages, method) if uri.startswith(name)]
                assert here == [f"{name}+{uri}" for uris in own for uri in uris]
            assert len(shown(pages, method)) == 12
            assert cursors(wires["alpha"], method) == [None, "one", "two"]
            assert cursors(wires["beta"], method) == [None, "eins"]
            assert len(wires["gamma"].calls(method)) == (1 if gamma == "refuses" else 0)
            assert all(INCOMPLETE not in reply.result["_meta"] for reply in pages)
            assert ["nextCursor" in reply.result for reply in pages] == [True] * (len(pages) - 1) + [False]

    run(check())


@settings(deadline=None, max_examples=50)
@given(
    st.lists(st.lists(st.integers(0, 3), min_size=1, max_size=5), min_size=1, max_size=4),
    st.integers(1, 4),
    st.booleans(),
)
def test_invariant_10_a_walk_keeps_every_order(shapes: list[list[int]], window: int, cached: bool) -> None:
    """Each item once, each upstream's in its order, each page's in the order of the configuration."""

    async def check() -> None:
        upstreams: dict[str, Answer | dict[str, Answer]] = {}
        wanted: dict[str, list[str]] = {}
        for number, sizes in enumerate(shapes):
            name = f"u{number}"
            pages = [[f"{at}.{item}" for item in range(size)] for at, size in enumerate(sizes)]
            upstreams[name] = paged(LIST, *pages, ttl=60_000 if cached else 0)
            wanted[name] = [f"{name}+{uri}" for uris in pages for uri in uris]
        async with merged(upstreams, lists={"window": window}) as (it, _):
            for _ in range(2):
                pages_shown = [reply.uris for reply in await it.walk()]
                everything = [uri for uris in pages_shown for uri in uris]
                assert sorted(everything) == sorted(uri for uris in wanted.values() for uri in uris)
                for name, uris in wanted.items():
                    assert [uri for uri in everything if uri.startswith(name + "+")] == uris
                for uris in pages_shown:
                    owners = [uri.partition("+")[0] for uri in uris]
                    assert owners == sorted(owners)

    run(check())


@pytest.mark.parametrize(
    "upstreams",
    [
        pytest.param({}, id="declares-nothing"),
        pytest.param({"tools": {}}, id="declares-tools"),
    ],
)
def test_H08_nobody_with_resources_is_an_empty_list(upstreams: dict[str, Any]) -> None:
    """Not an error: there is nothing, and nobody failed."""

    async def check() -> None:
        answers = {"server/discover": result(discovered(upstreams))}
        async with merged({"alpha": answers, "beta": answers}) as (it, wires):
            reply = await it.page()
            assert (reply.uris, reply.status) == ([], 200)
            assert "nextCursor" not in reply.result
            assert [wire.calls(LIST) for wire in wires.values()] == [[], []]

    run(check())


@lists
def test_H08_the_widest_window_holds(method: str) -> None:
    """70 upstreams of two pages each, 64 of them open at once, with the longest cursors there are."""
    names = [f"u{number}" for number in range(70)]
    cursor = "c" * 4096

    async def check() -> None:
        answer = paged(method, ["1"], ["2"], cursors=[cursor])
        async with Wire({method: answer}) as wire, AsyncExitStack() as open_:
            upstreams = {name: {"url": f"{wire.url}/{name}"} for name in names}
            it = await open_.enter_async_context(house(upstreams, lists={"window": 64}))
            pages = await it.walk(method)
            assert sorted(shown(pages, method)) == sorted(f"{name}+{n}" for name in names for n in "12")
            assert len(pages[0].result["nextCursor"]) < MAX_CHARS
            assert len(wire.calls(method)) == 140
            assert {call.params.get("cursor") for call in wire.calls(method)} == {None, cursor}

    run(check())


def test_H09_a_refused_cursor_voids_what_was_learnt_from_the_list() -> None:
    """The list is another now: a read that found nothing in the old one is looked for in the new one."""

    async def check() -> None:
        pages: dict[str | None, dict[str, Any]] = {None: page("x://1", cursor="old"), "old": page("x://2")}

        def read(request: Received) -> Answer:
            uri = request.params["uri"]
            return result(contents(uri)) if " " in uri else error(-32602, "unknown", {"uri": uri})

        answers = {LIST: choosing(lambda _: by_cursor(pages)), READ: choosing(read)}
        clock = Clock()
        async with fronted(answers, clock=clock) as (it, _):
            assert (await it.read("alpha+x://a%20b")).error["code"] == -32602
            cursor = (await it.page()).result["nextCursor"]
            pages.clear()
            pages[None] = page("x://a b")
            refused(await it.page(cursor))
            clock.now += REST
            assert (await it.read("alpha+x://a%20b")).result["contents"][0]["text"] == "text"

    run(check())
