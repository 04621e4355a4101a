"""Merged lists, cases H06 to H09 and design, section 4: each item once, in bounds, under one scope.

Each row is one input, over the whole product; what it costs is counted at the upstreams.
"""

import asyncio
import json
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mcp_federator.app import App
from mcp_federator.config import Config
from mcp_federator.federation.cursor import MAX_CHARS
from tests.instruments.fronted import Clock, choosing, fronted, run
from tests.instruments.house import House, Reply, configured, house, running
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

LIST = "resources/list"
READ = "resources/read"
TEMPLATES = "resources/templates/list"
INCOMPLETE = "dev.mcp-federator/incomplete"
ITEMS = {LIST: ("resources", "uri"), TEMPLATES: ("resourceTemplates", "uriTemplate")}
lists = pytest.mark.parametrize("method", [LIST, TEMPLATES], ids=["resources", "templates"])


def listed(method: str, *uris: str, **how: Any) -> dict[str, Any]:
    """A page of either list."""
    items, uri = ITEMS[method]
    members = page(*uris, **how)
    members[items] = [{uri: item["uri"], "name": item["name"]} for item in members.pop("resources")]
    return members


def paged(method: str, *pages: Sequence[str], cursors: Sequence[str] = "123456789", **how: Any) -> Answer:
    """A list on several pages, which knows the cursors that it gave, and no others."""
    at = [None, *cursors[: len(pages) - 1], None]
    return by_cursor(
        {at[number]: listed(method, *uris, cursor=at[number + 1], **how) for number, uris in enumerate(pages)}
    )


def shown(replies: Sequence[Reply], method: str = LIST) -> list[str]:
    """The URIs or templates on these pages."""
    items, uri = ITEMS[method]
    return [item[uri] for reply in replies for item in reply.result[items]]


def cursors(wire: Wire, method: str = LIST) -> list[Any]:
    """The cursors that an upstream was asked with; `None` where the member was missing."""
    assert all(call.params.get("cursor", "") is not None for call in wire.calls(method))
    return [call.params.get("cursor") for call in wire.calls(method)]


def refused(reply: Reply) -> None:
    """The reply says that the cursor is none."""
    assert (reply.status, reply.error["code"]) == (400, -32602)


@asynccontextmanager
async def merged(
    upstreams: Mapping[str, Answer | dict[str, Answer]],
    settings: Mapping[str, Mapping[str, Any]] | None = None,
    *,
    clock: Clock | None = None,
    **sections: Any,
) -> AsyncIterator[tuple[House, dict[str, Wire]]]:
    """A federator over upstreams that answer lists so, or all methods, at a time that stands still."""
    async with AsyncExitStack() as open_:
        wires = {}
        for name, answers in upstreams.items():
            given = answers if isinstance(answers, dict) else {LIST: answers, TEMPLATES: answers}
            wires[name] = await open_.enter_async_context(Wire(given))
        configuration = {
            name: {"url": wire.url, **(settings or {}).get(name, {})} for name, wire in wires.items()
        }
        it = await open_.enter_async_context(house(configuration, clock=clock or Clock(), **sections))
        yield it, wires


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


# H09: a cursor is ours and unharmed, or it is none.


def flipped(text: str) -> list[str]:
    """The text with one character another, at every place."""
    return [text[:at] + ("A" if it != "A" else "B") + text[at + 1 :] for at, it in enumerate(text)]


@asynccontextmanager
async def walking(**sections: Any) -> AsyncIterator[tuple[House, dict[str, Wire], str]]:
    """A federator over two upstreams of two pages, and the cursor of the second."""
    upstreams = {name: paged(LIST, ["1"], ["2"]) for name in ("alpha", "beta")}
    async with merged(upstreams, **sections) as (it, wires):
        cursor = (await it.page()).result["nextCursor"]
        for wire in wires.values():
            wire.received.clear()
        yield it, wires, cursor


BOGUS = {
    "bogus": "bogus",
    "like-a-number": "12",
    "an-upstreams": "1",
    "not-ascii": "é",
    "control": "\x00",
    "padding": "====",
    "base64-of-json": "eyJhIjoxfQ",
    "zeros": "A" * 400,
    "1-MB": "a" * 1_000_000,
    "longer-than-any": "A" * (MAX_CHARS + 1),
}


@pytest.mark.parametrize("cursor", BOGUS.values(), ids=BOGUS)
@lists
def test_H09_a_made_up_cursor_is_refused(cursor: str, method: str) -> None:
    """-32602; no upstream is asked, and page 1 is not shown instead."""

    async def check() -> None:
        async with walking() as (it, wires, _):
            refused(await it.page(cursor, method))
            assert [wire.received for wire in wires.values()] == [[], []]

    run(check())


def test_H09_a_damaged_cursor_is_refused() -> None:
    """Whichever character is another, missing, doubled or added."""

    async def check() -> None:
        async with walking() as (it, wires, cursor):
            damaged = flipped(cursor)
            damaged += [cursor[:-1], cursor[1:], cursor + cursor, cursor + "A", cursor + "=", " " + cursor]
            damaged += [cursor + "\n", cursor.swapcase(), cursor[: len(cursor) // 2]]
            for text in damaged:
                refused(await it.page(text))
            assert [wire.received for wire in wires.values()] == [[], []]
            assert (await it.page(cursor)).uris == ["alpha+2", "beta+2"]

    run(check())


@lists
def test_H09_a_cursor_is_of_one_list(method: str) -> None:
    """A cursor of resources is none of templates, nor the other way round."""
    (other,) = {LIST, TEMPLATES} - {method}

    async def check() -> None:
        async with fronted({it: paged(it, ["1"], ["2"]) for it in (LIST, TEMPLATES)}) as (it, wire):
            cursor = (await it.page(None, other)).result["nextCursor"]
            refused(await it.page(cursor, method))
            assert not wire.calls(method)

    run(check())


@pytest.mark.parametrize("cursor", [123, 1.5, True, [], {}, ["a"]], ids=str)
def test_H09_a_cursor_that_is_no_string_is_refused(cursor: Any) -> None:
    """It is not page 1 either."""

    async def check() -> None:
        async with walking() as (it, wires, _):
            refused(await it.post(LIST, {"cursor": cursor}))
            assert [wire.received for wire in wires.values()] == [[], []]

    run(check())


def test_H09_null_is_no_cursor() -> None:
    """Clients write it where they have none."""

    async def check() -> None:
        async with walking() as (it, _, _):
            assert (await it.post(LIST, {"cursor": None})).uris == ["alpha+1", "beta+1"]

    run(check())


SECRETS = {"secret": ["0123456789abcdef0123456789abcdef"]}


@asynccontextmanager
async def changed(before: Config, after: Config) -> AsyncIterator[tuple[str, House]]:
    """The cursor of page 2 under one configuration, and a federator with the other."""
    async with running(App(before, clock=Clock())) as it:
        cursor = (await it.page()).result["nextCursor"]
    async with running(App(after, clock=Clock())) as it:
        yield cursor, it


@asynccontextmanager
async def three() -> AsyncIterator[dict[str, Wire]]:
    """Three servers of two pages each."""
    async with AsyncExitStack() as open_:
        yield {
            name: await open_.enter_async_context(Wire({LIST: paged(LIST, [f"{name}1"], [f"{name}2"])}))
            for name in ("a", "b", "c")
        }


def of(**wires: Wire) -> Config:
    return configured({name: wire.url for name, wire in wires.items()}, server=SECRETS, lists={"window": 2})


def test_H09_a_walk_survives_a_restart() -> None:
    """Another process with the same secret goes on where the first one stopped."""

    async def check() -> None:
        async with (
            three() as w,
            changed(of(alpha=w["a"], beta=w["b"]), of(alpha=w["a"], beta=w["b"])) as (
                cursor,
                it,
            ),
        ):
            assert (await it.page(cursor)).uris == ["alpha+a2", "beta+b2"]

    run(check())


def test_H09_a_cursor_of_another_secret_is_refused() -> None:
    """Whoever does not know the secret cannot make one."""

    async def check() -> None:
        async with three() as w:
            other = configured({"alpha": w["a"].url}, server={"secret": ["f" * 32]})
            async with changed(of(alpha=w["a"]), other) as (cursor, it):
                refused(await it.page(cursor))
                assert len(w["a"].calls(LIST)) == 1

    run(check())


def test_H09_a_secret_can_be_rotated() -> None:
    """The first one seals, all of them open."""

    async def check() -> None:
        async with three() as w:
            rotated = configured({"alpha": w["a"].url}, server={"secret": ["f" * 32, *SECRETS["secret"]]})
            async with changed(of(alpha=w["a"]), rotated) as (cursor, it):
                assert (await it.page(cursor)).uris == ["alpha+a2"]

    run(check())


def test_H09_a_removed_upstream_is_skipped() -> None:
    """The walk goes on with those that remain."""

    async def check() -> None:
        async with three() as w, changed(of(alpha=w["a"], beta=w["b"]), of(alpha=w["a"])) as (cursor, it):
            reply = await it.page(cursor)
            assert reply.uris == ["alpha+a2"]
            assert "nextCursor" not in reply.result
            assert len(w["b"].calls(LIST)) == 1

    run(check())


def test_H09_a_walk_of_none_that_remains_ends() -> None:
    """Where all it had to go on with are gone, nothing is left to show; what was never in it is not."""

    async def check() -> None:
        async with three() as w, changed(of(alpha=w["a"]), of(beta=w["b"])) as (cursor, it):
            reply = await it.page(cursor)
            assert (reply.uris, reply.result["ttlMs"]) == ([], 0)
            assert "nextCursor" not in reply.result
            assert not w["b"].calls(LIST)

    run(check())


@pytest.mark.parametrize("change", ["another-server", "another-prefix"])
def test_H09_a_name_that_means_another_upstream_ends_the_walk(change: str) -> None:
    """Its cursor goes to nobody else: -32602."""

    async def check() -> None:
        async with three() as w:
            beta = {"url": w["c" if change == "another-server" else "b"].url}
            if change == "another-prefix":
                beta["prefix"] = "other:"
            after = configured({"alpha": w["a"].url, "beta": beta}, server=SECRETS)
            async with changed(of(alpha=w["a"], beta=w["b"]), after) as (cursor, it):
                refused(await it.page(cursor))
                assert not w["c"].calls(LIST)
                assert await it.samples("mcp_federator_listing_restarts_total", reason="identity") == 1

    run(check())


def test_H09_a_walk_in_another_order_loses_nothing() -> None:
    """The cursor names upstreams, so their places in the file do not matter."""

    async def check() -> None:
        async with three() as w:
            before = of(alpha=w["a"], beta=w["b"], gamma=w["c"])
            async with changed(before, of(gamma=w["c"], beta=w["b"], alpha=w["a"])) as (cursor, it):
                pages = [await it.page(cursor)]
                while (cursor := pages[-1].result.get("nextCursor", "")) != "":
                    pages.append(await it.page(cursor))
                assert sorted(shown(pages)) == ["alpha+a2", "beta+b2", "gamma+c1", "gamma+c2"]

    run(check())


def test_H09_an_upstream_that_refuses_its_own_cursor_ends_the_walk() -> None:
    """-32602, and what is kept of its list goes: the next walk asks it anew."""

    async def check() -> None:
        pages: dict[str | None, dict[str, Any]] = {
            None: page("1", cursor="old"),
            "old": page("2"),
        }
        async with merged({"alpha": choosing(lambda _: by_cursor(pages)), "beta": paged(LIST, ["b"])}) as (
            it,
            wires,
        ):
            cursor = (await it.page()).result["nextCursor"]
            pages.clear()
            pages[None] = page("new")
            refused(await it.page(cursor))
            assert (await it.page()).uris == ["alpha+new", "beta+b"]
            assert cursors(wires["alpha"]) == [None, "old", None]
            assert cursors(wires["beta"]) == [None]
            assert await it.samples("mcp_federator_listing_restarts_total", reason="cursor") == 1

    run(check())


def test_H09_a_refused_cursor_voids_what_was_learnt_from_the_list() -> None:
    """The list is another now: a read that found nothing in the old one is looked for in the new one."""

    async def check() -> None:
        pages: dict[str | None, dict[str, Any]] = {None: page("x://1", cursor="old"), "old": page("x://2")}

        def read(request: Received) -> Answer:
            uri = request.params["uri"]
            return result(contents(uri)) if " " in uri else error(-32602, "unknown", {"uri": uri})

        answers = {LIST: choosing(lambda _: by_cursor(pages)), READ: choosing(read)}
        async with fronted(answers) as (it, _):
            assert (await it.read("alpha+x://a%20b")).error["code"] == -32602
            cursor = (await it.page()).result["nextCursor"]
            pages.clear()
            pages[None] = page("x://a b")
            refused(await it.page(cursor))
            assert (await it.read("alpha+x://a%20b")).result["contents"][0]["text"] == "text"

    run(check())


# Design, section 4: one scope per listing, and the time that a page takes.


def scoped(*pages: str) -> Answer:
    """A list whose pages have these scopes."""
    at = [None, *"123456789"[: len(pages) - 1], None]
    return by_cursor(
        {
            at[number]: page(f"r{number}", cursor=at[number + 1], scope=scope)
            for number, scope in enumerate(pages)
        }
    )


def scopes(pages: Sequence[Reply]) -> list[str]:
    return [reply.result["cacheScope"] for reply in pages]


@pytest.mark.parametrize(
    ("alpha", "beta", "shown_as"),
    [
        pytest.param(["public"], ["public"], "public", id="all-public"),
        pytest.param(["public", "public", "public"], ["public"], "public", id="all-public-on-pages"),
        pytest.param(["public"], ["private"], "private", id="one-private"),
        pytest.param(["private"], ["private"], "private", id="all-private"),
        pytest.param(["public", "public"], ["private", "public"], "private", id="first-page-private"),
        pytest.param(["PUBLIC"], ["public"], "private", id="a-scope-nobody-knows"),
    ],
)
def test_a_listing_has_one_scope(alpha: list[str], beta: list[str], shown_as: str) -> None:
    """All pages of a walk have the same, and it is public only if every part is."""

    async def check() -> None:
        async with merged({"alpha": scoped(*alpha), "beta": scoped(*beta)}) as (it, _):
            for _ in range(2):
                assert set(scopes(await it.walk())) == {shown_as}

    run(check())


def test_a_listing_that_began_public_never_turns_private() -> None:
    """Its cursor is refused and that is counted; the next walk is private from its first page."""

    async def check() -> None:
        async with merged({"alpha": scoped("public", "private"), "beta": scoped("public")}) as (it, _):
            first = await it.page()
            assert scopes([first]) == ["public"]
            refused(await it.page(first.result["nextCursor"]))
            assert await it.samples("mcp_federator_listing_restarts_total", reason="scope") == 1
            pages = await it.walk()
            assert scopes(pages) == ["private", "private"]
            assert shown(pages) == ["alpha+r0", "beta+r0", "alpha+r1"]

    run(check())


def test_one_private_page_is_remembered_after_the_upstream_forgot_it() -> None:
    """What was shown as private may still be somebody's: for `max_ttl` the list stays private."""

    async def check() -> None:
        clock = Clock()
        answers = {"alpha": scoped("private")}
        async with merged(answers, clock=clock, cache={"max_ttl": "2h"}) as (it, wires):
            assert scopes(await it.walk()) == ["private"]
            wires["alpha"].answers[LIST] = scoped("public")
            clock.now += 61
            assert scopes(await it.walk()) == ["private"]
            clock.now += 2 * 3600
            assert scopes(await it.walk()) == ["public"]

    run(check())


def test_the_window_speaks_for_those_it_has_not_met() -> None:
    """A first page is public only if the lists still to be opened are known to be."""

    async def check() -> None:
        upstreams: dict[str, Answer | dict[str, Answer]] = {
            "alpha": scoped("public", "public"),
            "beta": scoped("public"),
        }
        async with merged(upstreams, lists={"window": 1}) as (it, _):
            assert set(scopes(await it.walk())) == {"private"}
            assert set(scopes(await it.walk())) == {"public"}

    run(check())


@pytest.mark.parametrize(
    ("configured_as", "said", "shown_as"),
    [
        ("public", ["private", "private"], "public"),
        ("public", ["public", "private"], "public"),
        ("private", ["public", "public"], "private"),
        ("auto", ["public", "public"], "public"),
    ],
)
def test_list_scope_overrules_what_the_pages_say(configured_as: str, said: list[str], shown_as: str) -> None:
    """`cache.list_scope` decides for its upstream's part, from the first page to the last."""

    async def check() -> None:
        settings = {"alpha": {"cache": {"list_scope": configured_as}}}
        async with merged({"alpha": scoped(*said), "beta": scoped("public")}, settings) as (it, _):
            for _ in range(2):
                assert set(scopes(await it.walk())) == {shown_as}

    run(check())


def test_an_upstream_whose_public_is_not_believed_makes_the_listing_private() -> None:
    """`trust_public: false` counts its lists as private."""

    async def check() -> None:
        settings = {"alpha": {"cache": {"trust_public": False}}}
        async with merged({"alpha": scoped("public"), "beta": scoped("public")}, settings) as (it, _):
            assert scopes(await it.walk()) == ["private"]

    run(check())


@pytest.mark.parametrize(
    ("alpha", "beta", "left"), [(60_000, 5_000, 5_000), (60_000, 0, 0), (5_000, 60_000, 5_000)]
)
def test_a_page_lives_as_long_as_its_shortest_part(alpha: int, beta: int, left: int) -> None:
    """`ttlMs` is the least remaining life, also when the parts were fetched at different times."""

    async def check() -> None:
        clock = Clock()
        upstreams: dict[str, Answer | dict[str, Answer]] = {
            "alpha": result(page("1", ttl=alpha)),
            "beta": result(page("1", ttl=beta)),
        }
        async with merged(upstreams, clock=clock) as (it, _):
            assert (await it.page()).result["ttlMs"] == left
            clock.now += 2
            assert (await it.page()).result["ttlMs"] == max(0, left - 2_000)

    run(check())


def late(go: asyncio.Event, answer: Answer) -> Answer:
    """An answer that waits for an event."""

    def steps(request: Any) -> Any:
        yield go
        yield from answer(request)

    return steps


@lists
def test_a_late_upstream_is_carried_to_the_next_page(method: str) -> None:
    """Who misses the soft deadline is left out once, and asked for no second time: its answer was kept."""

    async def check() -> None:
        go = asyncio.Event()
        upstreams: dict[str, Answer | dict[str, Answer]] = {
            "alpha": paged(method, ["1"]),
            "beta": late(go, paged(method, ["1"], ["2"])),
        }
        async with merged(upstreams, lists={"soft_deadline": "50ms"}) as (it, wires):
            first = await it.page(None, method)
            assert shown([first], method) == ["alpha+1"]
            assert first.result["ttlMs"] == 0
            assert INCOMPLETE not in first.result["_meta"]
            go.set()
            second = await it.page(first.result["nextCursor"], method)
            assert shown([second], method) == ["beta+1"]
            third = await it.page(second.result["nextCursor"], method)
            assert shown([third], method) == ["beta+2"]
            assert "nextCursor" not in third.result
            assert cursors(wires["alpha"], method) == [None]
            assert cursors(wires["beta"], method) == [None, "1"]

    run(check())


def test_an_upstream_that_is_late_twice_is_waited_for_and_named() -> None:
    """Carried once; then its own time-out decides, and the page says who is missing."""

    async def check() -> None:
        never = asyncio.Event()
        settings = {"beta": {"timeout": 0.3}}
        upstreams: dict[str, Answer | dict[str, Answer]] = {
            "alpha": paged(LIST, ["1"], ["2"]),
            "beta": late(never, paged(LIST, ["1"])),
        }
        async with merged(upstreams, settings, lists={"soft_deadline": "50ms"}) as (it, _):
            first = await it.page()
            assert first.uris == ["alpha+1"]
            second = await it.page(first.result["nextCursor"])
            assert second.uris == ["alpha+2"]
            assert second.result["_meta"][INCOMPLETE] == [{"upstream": "beta", "reason": "timeout"}]
            assert second.result["ttlMs"] == 0
            assert "nextCursor" not in second.result
            assert await it.samples("mcp_federator_incomplete_lists_total", upstream="beta") == 1

    run(check())


def test_nobody_is_late_while_nobody_has_answered() -> None:
    """The soft deadline is for those who make others wait: without others the time-out decides."""

    async def check() -> None:
        never = asyncio.Event()
        settings = {"alpha": {"timeout": 0.2}}
        async with merged(
            {"alpha": late(never, paged(LIST, ["1"]))}, settings, lists={"soft_deadline": "10ms"}
        ) as (it, _):
            reply = await it.page()
            assert reply.error["data"] == {"upstream": "alpha", "reason": "timeout"}

    run(check())


def test_other_members_of_a_page_are_kept_where_it_is_of_one_upstream() -> None:
    """Of several nobody could say whose they are."""

    async def check() -> None:
        said = page("1") | {"x-extra": True, "_meta": {"com.example/x": [None]}}
        async with merged({"alpha": result(said)}) as (it, _):
            for _ in range(2):
                told = (await it.page()).result
                assert (told["x-extra"], told["_meta"]["com.example/x"]) == (True, [None])
        async with merged({"alpha": result(said), "beta": result(said)}) as (it, _):
            told = (await it.page()).result
            assert "x-extra" not in told
            assert list(told["_meta"]) == ["io.modelcontextprotocol/serverInfo"]

    run(check())


def test_what_an_upstream_says_of_missing_ones_is_ours_to_say() -> None:
    """A federator behind a federator: its list of the missing is passed on until there is one of our own."""

    async def check() -> None:
        theirs = [{"upstream": "far", "reason": "timeout"}]
        said = page("1") | {"_meta": {INCOMPLETE: theirs, "a": 1}}
        upstreams: dict[str, Answer | dict[str, Answer]] = {
            "alpha": result(said),
            "beta": error(7001, status=200),
        }
        async with merged(upstreams) as (it, _):
            meta = (await it.page()).result["_meta"]
            assert meta[INCOMPLETE] == [{"upstream": "beta", "reason": "refused"}]
            assert meta["a"] == 1
        async with merged({"alpha": result(said)}) as (it, _):
            assert (await it.page()).result["_meta"][INCOMPLETE] == theirs

    run(check())
