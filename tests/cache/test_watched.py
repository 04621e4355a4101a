import asyncio
from collections.abc import Callable
from math import inf

import pytest

from mcp_federator.cache import watched
from mcp_federator.cache.watched import LOOK_SECONDS, Watched
from mcp_federator.model import ANYONE
from tests.cache.stage import Stage, numbered, page, private, public, read
from tests.instruments.virtual_time import run


class Hall:
    """What the memory holds, and what was said to be watched."""

    def __init__(self) -> None:
        self.held: set[bytes] = set()
        self.offered = True
        self.told: list[set[str]] = []
        self.watched = Watched(
            self.held.__contains__, lambda: self.offered, lambda uris: self.told.append(set(uris))
        )

    def keep(self, *uris: str) -> None:
        for uri in uris:
            self.held.add(uri.encode())
            self.watched.kept(uri, uri.encode())


def in_hall(body: Callable[[Hall], object]) -> Hall:
    """The hall after it; by then nothing is looked at any more, for nothing is held."""

    async def check() -> Hall:
        hall = Hall()
        made = body(hall)
        if asyncio.iscoroutine(made):
            await made
        hall.held.clear()
        await asyncio.sleep(2 * LOOK_SECONDS)
        assert hall.watched._timer is None
        return hall

    return run(check())


async def looked(times: float = 1) -> None:
    await asyncio.sleep(times * LOOK_SECONDS + 0.01)


def test_what_is_kept_is_watched_until_it_left() -> None:
    """Told when it became another set, and not otherwise; in the end nothing."""

    async def body(hall: Hall) -> None:
        hall.keep("a", "b")
        await looked()
        assert hall.told == [{"a", "b"}]
        hall.keep("a")
        await looked(3)
        assert hall.told == [{"a", "b"}]
        hall.held.discard(b"a")
        hall.keep("c")
        await looked()
        assert hall.told == [{"a", "b"}, {"b", "c"}]

    assert in_hall(body).told[2:] == [set()]


def test_the_most_used_are_watched(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of late: what was used long ago counts less with each look."""
    monkeypatch.setattr(watched, "MAX_WATCHED", 2)

    async def body(hall: Hall) -> None:
        hall.keep("a", "b", "c")
        hall.watched.uses["b"] += 10
        hall.watched.uses["c"] += 5
        await looked()
        assert hall.told == [{"b", "c"}]
        await looked(4)
        hall.watched.uses["a"] += 3
        hall.watched.uses["c"] += 3
        await looked()
        assert hall.told == [{"b", "c"}, {"a", "c"}]

    in_hall(body)


def test_what_may_be_watched_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    """One too many is not considered before there is room."""
    monkeypatch.setattr(watched, "_MAX_SEEN", 2)

    async def body(hall: Hall) -> None:
        hall.keep("a", "b", "c", "a")
        await looked()
        hall.held.discard(b"a")
        await looked()
        hall.keep("c")
        await looked()
        assert hall.told == [{"a", "b"}, {"b"}, {"b", "c"}]

    in_hall(body)


def test_where_nothing_is_told_nothing_is_watched() -> None:
    """Nor looked at."""

    def body(hall: Hall) -> None:
        hall.offered = False
        hall.keep("a")
        assert hall.watched._timer is None

    assert in_hall(body).told == []


def test_the_cache_says_what_it_keeps() -> None:
    """Reads with a life, found by anybody; a hit is a use, lists are not resources."""

    async def check() -> None:
        stage = Stage(numbered(lambda text: private(text, 0) if text == "v2" else public(text)))
        told: list[frozenset[str]] = []
        stage.cache.watch(lambda: True, told.append)
        for query in (read("x://1"), read("x://2"), read("x://3"), page()):
            await stage.cache.fetch(query, ANYONE)
        for _ in range(3):
            assert stage.cache.peek(read("x://3"), ANYONE) is not None
            assert stage.cache.peek(page(), ANYONE) is not None
        await stage.cache.fetch(read("x://3"), ANYONE)
        assert stage.cache._uses == {"x://1": 1, "x://3": 5}
        await asyncio.sleep(LOOK_SECONDS)
        assert told == [{"x://1", "x://3"}]
        stage.clock.now = inf
        await asyncio.sleep(LOOK_SECONDS)
        assert told[1:] == [frozenset()]
        stage.clock.now = 0
        await stage.cache.fetch(read("x://4"), ANYONE)
        stage.cache.close()
        await asyncio.sleep(2 * LOOK_SECONDS)
        assert len(told) == 2

    run(check())
