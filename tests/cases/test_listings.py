"""Merged pages at the whole product: one scope per listing, and the time that a page takes."""

import asyncio
from collections.abc import Sequence
from typing import Any

import pytest

from tests.cases.paging import (
    INCOMPLETE,
    LIST,
    cursors,
    lists,
    merged,
    paged,
    refused,
    shown,
)
from tests.instruments.fronted import Clock, run
from tests.instruments.house import Reply
from tests.instruments.wire import (
    Answer,
    by_cursor,
    error,
    page,
    result,
)

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
