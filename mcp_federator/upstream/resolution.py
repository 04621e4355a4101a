"""Which listed URI a client meant that sent it back normalised (design, section 3, rule 10).

Asked only after the upstream said "not found" to the exact string.  The pages of lists that pass by are
remembered, per partition; where they know nothing, the upstream's list is walked once.  URIs are compared in
the form that clients saw, the public one; the upstream gets its original.

What may not come in: HTTP, errors of upstreams.  Whoever asks brings the way to turn a page.

Hazards:
- Two originals with one form: either could be meant, so neither is.
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
from mcp_federator.model import Answer

MAX_CHARACTERS: Final = 8 << 20
"""What is remembered of one upstream's lists: the length of all URIs, and some more for each."""

WALK_AGAIN: Final = 60.0
"""Seconds before a walk that failed or was cut short is tried again."""

_COST_OF_ONE: Final = 64
_MAX_WALKS: Final = 10_000

Turn = Callable[[str | None], Awaitable[Answer]]
"""Fetches the page at a cursor, which passes `observe` on its way."""

_log = logging.getLogger(__name__)


class _Page:
    """The URIs of one page, and, once asked for, the original of each form; None for a form of several."""

    def __init__(self, uris: tuple[str, ...]) -> None:
        self.uris = uris
        self.cost = sum(map(len, uris)) + _COST_OF_ONE * (len(uris) + 1)
        self.originals: dict[str, str | None] | None = None

    def prepare(self, form: Callable[[str], str]) -> dict[str, str | None]:
        originals: dict[str, str | None] = {}
        for uri in self.uris:
            shown = form(uri)
            originals[shown] = uri if originals.get(shown, uri) == uri else None
        self.originals = originals
        return originals


class _Walk:
    """One partition's walk: at most one at a time, and when the next may begin."""

    def __init__(self) -> None:
        self.turn = asyncio.Lock()
        self.not_before = -inf


class Resolver:
    """What the lists of one upstream said.

    Args:
        mapping: its names.
        lists: how many pages and items a walk takes at most; may be set anew.
        clock: seconds, never going back.
    """

    def __init__(self, mapping: Mapping, lists: Lists, clock: Callable[[], float]) -> None:
        self._mapping = mapping
        self.lists = lists
        self._clock = clock
        self._pages: OrderedDict[tuple[bytes, str | None], _Page] = OrderedDict()
        self._cost = 0
        self._walks: OrderedDict[bytes, _Walk] = OrderedDict()

    def observe(self, partition: bytes, cursor: str | None, uris: tuple[str, ...]) -> None:
        """A page of `resources/list` passed by, with these native URIs."""
        key = (partition, cursor)
        known = self._pages.get(key)
        if known is not None:
            if known.uris == uris:
                self._pages.move_to_end(key)
                return
            self._cost -= known.cost
            del self._pages[key]
        page = _Page(uris)
        if page.cost > MAX_CHARACTERS:
            return
        self._pages[key] = page
        self._cost += page.cost
        while self._cost > MAX_CHARACTERS:
            _, oldest = self._pages.popitem(last=False)
            self._cost -= oldest.cost

    def forget(self) -> None:
        """The upstream's list is another now."""
        self._pages.clear()
        self._cost = 0
        self._walks.clear()

    async def resolve(self, uri: str, partition: bytes, turn: Turn, deadline: float) -> str | None:
        """The one listed URI that has the same form as `uri` and is another; None where there is none.

        Walks the list if need be, until `deadline` on the event loop's clock, and never fails.
        """
        shown = self._form(uri)
        found = await self._find(shown, partition)
        if not found:
            await self._walk(partition, turn, deadline)
            found = await self._find(shown, partition)
        originals = found - {uri}
        return originals.pop() if originals and len(found) == 1 else None

    def _form(self, uri: str) -> str:
        return normal_form(self._mapping.public(uri) or uri)

    async def _find(self, shown: str, partition: bytes) -> set[str | None]:
        """All originals of a form; None among them stands for several."""
        found: set[str | None] = set()
        for owner, page in [(key[0], page) for key, page in self._pages.items()]:
            if owner == partition:
                originals = page.originals
                if originals is None:
                    originals = page.prepare(self._form)
                    await asyncio.sleep(0)
                if shown in originals:
                    found.add(originals[shown])
        return found

    async def _walk(self, partition: bytes, turn: Turn, deadline: float) -> None:
        walk = self._walks.setdefault(partition, _Walk())
        if len(self._walks) > _MAX_WALKS:
            self._walks.popitem(last=False)
        try:
            async with asyncio.timeout_at(deadline), walk.turn:
                if self._clock() < walk.not_before:
                    return
                await self._turn_all(turn)
                walk.not_before = inf
        except (FederatorError, TimeoutError) as problem:
            walk.not_before = self._clock() + WALK_AGAIN
            _log.info("%s: a walk of its list was cut short: %s", self._mapping.name, type(problem).__name__)

    async def _turn_all(self, turn: Turn) -> None:
        """Turn pages until the end, a bound, or a cursor that was there before."""
        seen: set[str | None] = {None}
        cursor: str | None = None
        items = 0
        while len(seen) <= self.lists.max_pages and items < self.lists.max_items:
            page = await turn(cursor)
            items += page.count
            cursor = page.next_cursor
            if cursor in seen:
                return
            seen.add(cursor)
        _log.info("%s: a walk of its list ended after %d items", self._mapping.name, items)
