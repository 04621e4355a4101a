"""Any walk of any caller through lists that change: nothing of another's, nothing old, nothing missing.

One to three upstreams with pages of chance, empty ones among them; some are forwarded the caller's token, and
are private at times.  Each item says for whom it was made and of which version of its list it is.
"""

import json
from contextlib import AsyncExitStack
from random import Random
from typing import Any, NamedTuple

import pytest

from mcp_federator.model import Change, Event
from tests.instruments.fronted import FORWARD, LIST, Clock, bearer, choosing, run
from tests.instruments.house import House, Reply, house
from tests.instruments.wire import Answer, Received, Wire, error, page, result

ALL = "all"
"""For whom a public item is made."""


class Item(NamedTuple):
    """What the name of an item says."""

    upstream: str
    maker: str
    version: int
    page: int
    place: int

    def __str__(self) -> str:
        return "|".join(map(str, self))


class Shelf:
    """An upstream's list."""

    def __init__(self, name: str, chance: Random) -> None:
        self.name = name
        self.chance = chance
        self.forwards = chance.random() < 0.8
        self.version = 0
        self.change()

    def change(self) -> None:
        """Make the list another."""
        chance = self.chance
        self.version += 1
        self.private = self.forwards and chance.random() < 0.7
        self.ttl = chance.choice([0, 1000, 5000, 60_000])
        self.says_more = chance.random() < 0.5
        self.pages = {
            maker: [chance.choice([0, 0, 1, 2]) for _ in range(chance.choice([1, 1, 1, 2, 3]))]
            for maker in (ALL, "None", "Bearer A", "Bearer B")
        }

    def maker(self, token: str | None) -> str:
        return str(token) if self.private else ALL

    def items(self, token: str | None) -> list[list[str]]:
        """All pages, as they are for a caller."""
        maker = self.maker(token)
        return [
            [str(Item(self.name, maker, self.version, number, place)) for place in range(count)]
            for number, count in enumerate(self.pages[maker])
        ]

    def answer(self, request: Received) -> Answer:
        version, number = json.loads(request.params.get("cursor", json.dumps([self.version, 0])))
        if version != self.version:
            return error(-32602, "no such cursor")
        token = request.header("authorization")
        pages = self.items(token)
        more = {"cursor": json.dumps([version, number + 1])} if number + 1 < len(pages) else {}
        members = page(*pages[number], ttl=self.ttl, scope="private" if self.private else "public", **more)
        if self.says_more:
            members |= {"maker": self.maker(token), "_meta": {"com.example/maker": self.maker(token)}}
        return result(members)


async def walk(it: House, headers: dict[str, str]) -> list[Reply]:
    """All pages; a walk that is refused is begun anew."""
    pages: list[Reply] = []
    for _ in range(100):
        cursor = pages[-1].result.get("nextCursor") if pages else None
        if pages and cursor is None:
            return pages
        told = await it.page(cursor, headers=headers)
        if "error" in told.message:
            assert (told.status, told.error["code"], cursor is None) == (400, -32602, False)
            pages = []
        else:
            pages.append(told)
    raise AssertionError("the walk does not end")


def check(pages: list[Reply], token: str | None, shelves: list[Shelf]) -> None:
    """All pages together are what each upstream has for this caller, and say so truly."""
    mine = {ALL, str(token)}
    scopes = {told.result["cacheScope"] for told in pages}
    assert len(scopes) == 1
    items: list[str] = []
    for told in pages:
        makers: set[Any] = {told.result.get("maker", ALL), told.result["_meta"].get("com.example/maker", ALL)}
        makers |= {name.split("|")[1] for name in (item["name"] for item in told.result["resources"])}
        assert makers <= ({ALL} if scopes == {"public"} else mine)
        items += [item["name"] for item in told.result["resources"]]
    for shelf in shelves:
        own = [name for name in items if name.startswith(shelf.name)]
        assert own == [name for one in shelf.items(token) for name in one]


@pytest.mark.parametrize("seed", range(30))
def test_H24_H28_any_walk(seed: int) -> None:
    """Over changes that are announced, time that passes, and callers that take turns."""
    chance = Random(seed)

    async def body() -> None:
        clock, names = Clock(), ["one", "two", "three"][: chance.choice([1, 1, 2, 3])]
        shelves = [Shelf(name, chance) for name in names]
        async with AsyncExitStack() as stack:
            upstreams: dict[str, Any] = {}
            for shelf in shelves:
                wire = await stack.enter_async_context(Wire({LIST: choosing(shelf.answer)}))
                upstreams[shelf.name] = {"url": wire.url, **(FORWARD if shelf.forwards else {})}
            lists = {"window": chance.choice([1, 2, 8])}
            it = await stack.enter_async_context(house(upstreams, clock=clock, lists=lists))
            for _ in range(50):
                match chance.choices(["change", "wait", "walk"], [1, 1, 4]):
                    case ["change"]:
                        shelf = chance.choice(shelves)
                        shelf.change()
                        event = Event(shelf.name, Change.LIST)
                        it.app._federation._stacks[shelf.name].cached.invalidate(event)
                    case ["wait"]:
                        clock.now += chance.choice([0.5, 2, 7, 61])
                    case _:
                        name = chance.choice(["A", "B", None])
                        headers = {} if name is None else bearer(name)
                        check(await walk(it, headers), headers.get("Authorization"), shelves)

    run(body())
