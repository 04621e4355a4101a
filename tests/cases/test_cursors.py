"""H09 at the whole product: a cursor is ours and unharmed, or it is none."""

from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from typing import Any

import pytest

from mcp_federator.app import App
from mcp_federator.config import Config
from mcp_federator.federation.cursor import MAX_CHARS
from tests.cases.paging import LIST, TEMPLATES, cursors, lists, merged, paged, refused, shown
from tests.instruments.fronted import Clock, choosing, fronted, run
from tests.instruments.house import House, configured, running
from tests.instruments.wire import (
    Wire,
    by_cursor,
    page,
)

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
