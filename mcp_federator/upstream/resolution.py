"""Which listed URI a client meant that sent it back normalised (design, section 3, rule 10).

Asked only after the upstream said "not found" to the exact string.  The pages of lists that pass by are
remembered, per partition; where they know nothing, the upstream's list is walked once.  URIs are compared in
the form that clients saw, the public one; the upstream gets its original.

What may not come in: HTTP, errors of upstreams.  Whoever asks brings the way to turn a page.

Hazards:
- Two originals with one form: either could be meant, so neither is.
- Anybody can ask for what is not there.  So one walk goes on at a time, whoever asks; a partition's list is
  walked to its end once until the list changes; and after each walk there is a rest.
- A list can be endless, its cursors can go round, and partitions are as many as tokens: everything is
  bounded, and what falls out of the memory only costs a resource that stays not found.
- A form costs ten microseconds.  Forms are made when first asked for, page by page, with the loop's turn
  between.
"""

import asyncio
import logging
from collections import OrderedDict
from collections.abc import Awaitable, Callable
from math import inf
from typing import Final

from mcp_federator.config import Lists
from mcp_federator.errors import FederatorError
from mcp_federator.federation.normal import normal_form
from mcp_federator.federation.prefix import Mapping
from mcp_federator.metrics import Metrics
from mcp_federator.model import Answer

MAX_CHARACTERS: Final = 8 << 20
"""What is remembered of one upstream's lists: the length of all URIs, and some more for each."""

WALK_AGAIN: Final = 60.0
"""Seconds before a walk that failed or took too long is tried again."""

REST: Final = 1.0
"""Seconds between two walks, at the least."""

REST_FACTOR: Final = 4
"""How many times as long as a walk took is the rest after it, at the least."""

_COST_OF_ONE: Final = 64
_COST_OF_SHELF: Final = 1024

Turn = Callable[[str | None], Awaitable[Answer]]
"""Fetches the page at a cursor, which passes `observe` on its way."""

_log = logging.getLogger(__name__)


class _Page:
    """The URIs of one page, and, once asked for, the original of each form; None for a form of several.

    Forms can be many times longer than the URIs: only their hashes are kept.
    """

    def __init__(self, uris: tuple[str, ...], cursor: str | None) -> None:
        self.uris = uris
        self.cost = sum(map(len, uris)) + len(cursor or "") + _COST_OF_ONE * (len(uris) + 1)
        self.originals: dict[int, str | None] | None = None

    def prepare(self, form: Callable[[str], str]) -> dict[int, str | None]:
        originals: dict[int, str | None] = {}
        for uri in self.uris:
            shown = hash(form(uri))
            originals[shown] = uri if originals.get(shown, uri) == uri else None
        self.originals = originals
        return originals


class _Shelf:
    """What one partition's list said: its pages by cursor, the one seen last at the end."""

    def __init__(self) -> None:
        self.pages: OrderedDict[str | None, _Page] = OrderedDict()
        self.cost = _COST_OF_SHELF
        self.walk_after = -inf

    def put(self, cursor: str | None, uris: tuple[str, ...]) -> None:
        known = self.pages.get(cursor)
        if known is not None:
            if known.uris == uris:
                self.pages.move_to_end(cursor)
                return
            self.cost -= self.pages.pop(cursor).cost
        page = _Page(uris, cursor)
        if page.cost <= MAX_CHARACTERS - _COST_OF_SHELF:
            self.pages[cursor] = page
            self.cost += page.cost

    def drop_oldest(self) -> None:
        self.cost -= self.pages.popitem(last=False)[1].cost


class _Walk:
    """The walk that goes on, and how far it has come; whoever has `turning` turns its pages."""

    def __init__(self, partition: bytes, shelf: _Shelf, begun: float) -> None:
        self.partition = partition
        self.shelf = shelf
        self.begun = begun
        self.turning = asyncio.Lock()
        self.waiting = 0
        self.over = False
        self.items = 0
        self.cursor: str | None = None
        self.seen: set[str | None] = {None}


class Resolver:
    """What the lists of one upstream said.

    Args:
        mapping: its names.
        lists: how many pages and items a walk takes at most, and may be set anew; with no page none is made.
        clock: seconds, never going back.
        metrics: counts walks that end at a bound.
    """

    def __init__(self, mapping: Mapping, lists: Lists, clock: Callable[[], float], metrics: Metrics) -> None:
        self._mapping = mapping
        self.lists = lists
        self._clock = clock
        self._metrics = metrics
        self._shelves: OrderedDict[bytes, _Shelf] = OrderedDict()
        self._cost = 0
        self._walk: _Walk | None = None
        self._rest_until = -inf

    def observe(self, partition: bytes, cursor: str | None, uris: tuple[str, ...]) -> None:
        """A page of `resources/list` passed by, with these native URIs."""
        shelf = self._shelf(partition)
        self._cost -= shelf.cost
        shelf.put(cursor, uris)
        self._cost += shelf.cost
        self._make_room(shelf)

    def forget(self) -> None:
        """The upstream's list is another now; the rest after a walk stays."""
        self._shelves.clear()
        self._cost = 0

    async def resolve(self, uri: str, partition: bytes, turn: Turn, deadline: float) -> str | None:
        """The one listed URI that has the same form as `uri` and is another; None where there is none.

        Walks the list if need be, until `deadline` on the event loop's clock, and never fails.
        """
        shown = hash(self._form(uri))
        found = await self._find(shown, partition)
        if not found and self.lists.max_pages:
            await self._join_walk(partition, turn, deadline)
            found = await self._find(shown, partition)
        originals = found - {uri}
        return originals.pop() if originals and len(found) == 1 else None

    def _form(self, uri: str) -> str:
        return normal_form(self._mapping.public(uri) or uri)

    def _shelf(self, partition: bytes) -> _Shelf:
        """The partition's shelf, now the last to fall out."""
        shelf = self._shelves.get(partition)
        if shelf is None:
            shelf = self._shelves[partition] = _Shelf()
            self._cost += shelf.cost
        self._shelves.move_to_end(partition)
        return shelf

    def _make_room(self, shelf: _Shelf) -> None:
        """Drop what was seen longest ago: all of other partitions first, then pages of this one."""
        while self._cost > MAX_CHARACTERS and len(self._shelves) > 1:
            self._cost -= self._shelves.popitem(last=False)[1].cost
        while self._cost > MAX_CHARACTERS:
            self._cost -= shelf.cost
            shelf.drop_oldest()
            self._cost += shelf.cost

    async def _find(self, shown: int, partition: bytes) -> set[str | None]:
        """All originals of a form; None among them stands for several."""
        found: set[str | None] = set()
        shelf = self._shelves.get(partition)
        for page in () if shelf is None else tuple(shelf.pages.values()):
            originals = page.originals
            if originals is None:
                originals = page.prepare(self._form)
                await asyncio.sleep(0)
            if shown in originals:
                found.add(originals[shown])
        return found

    async def _join_walk(self, partition: bytes, turn: Turn, deadline: float) -> None:
        """Walk the list, or wait for the one who does, if it is this partition's turn.

        When the one who walks leaves, another who waits goes on from where he was.
        """
        walk = self._walk
        if walk is None:
            known = self._shelves.get(partition)
            now = self._clock()
            if now < self._rest_until or (known is not None and now < known.walk_after):
                return
            walk = self._walk = _Walk(partition, self._shelf(partition), now)
        elif walk.partition != partition:
            return
        walk.waiting += 1
        try:
            async with asyncio.timeout_at(deadline), walk.turning:
                if not walk.over:
                    await self._turn_all(walk, turn)
                    walk.shelf.walk_after = inf
                    walk.over = True
        except (FederatorError, TimeoutError) as problem:
            walk.over = walk.over or isinstance(problem, FederatorError)
            if walk.over or walk.waiting == 1:
                walk.shelf.walk_after = self._clock() + WALK_AGAIN
                _log.info("%s: a walk of its list failed: %s", self._mapping.name, type(problem).__name__)
        finally:
            walk.waiting -= 1
            if self._walk is walk and (walk.over or not walk.waiting):
                self._walk = None
                now = self._clock()
                self._rest_until = now + max(REST, REST_FACTOR * (now - walk.begun))

    async def _turn_all(self, walk: _Walk, turn: Turn) -> None:
        """Turn pages until the end, or to a bound or a cursor that was there before, which is reported."""
        while len(walk.seen) <= self.lists.max_pages and walk.items < self.lists.max_items:
            page = await turn(walk.cursor)
            walk.items += page.count
            walk.cursor = page.next_cursor
            if walk.cursor is None:
                return
            if walk.cursor in walk.seen:
                break
            walk.seen.add(walk.cursor)
        self._metrics.incomplete_list(self._mapping.name, "truncated")
        _log.warning(
            "%s: a walk of its list was cut off after %d items: it is longer than lists.max_pages or"
            " lists.max_items, or its cursors go in a circle",
            self._mapping.name,
            walk.items,
        )
