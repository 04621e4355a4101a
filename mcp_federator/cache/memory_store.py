"""The tier in this process: entries under a byte budget, each with an end of its own.

The least recently used goes first when room is needed.  The only room that knows `cachetools`.  What may not
come in: what an entry means; whether it may be served is `freshness`' affair.

Hazard: the store is shared by all upstreams and by nothing but the event loop's thread.
"""

from collections.abc import Callable

from cachetools import TLRUCache

from mcp_federator.cache.entry import Entry
from mcp_federator.cache.key import Key


class _Shelf(TLRUCache[Key, Entry | None, float]):
    """A `TLRUCache` that answers None for what it has not, and counts what it gives up for room."""

    def __init__(self, max_bytes: int, clock: Callable[[], float]) -> None:
        super().__init__(max_bytes, _keep_until, clock, _cost)
        self.evictions = 0

    def __missing__(self, key: Key) -> None:
        # A miss is half of all look-ups with partitions: it raises nothing.
        return None

    def popitem(self) -> tuple[Key, Entry | None]:
        """Make room; what has expired leaves another way."""
        item = super().popitem()
        self.evictions += 1
        return item


class MemoryStore:
    """Entries by key.

    `max_bytes` bounds their true cost in memory; `clock` gives seconds and never runs backwards.
    """

    def __init__(self, max_bytes: int, clock: Callable[[], float]) -> None:
        self._shelf = _Shelf(max_bytes, clock)
        # Where nothing is kept nothing is looked for, which would be a good part of a hit in Redis.
        self._keeps = max_bytes > 0

    def get(self, key: Key) -> Entry | None:
        """The entry kept under a key, whatever its generation, or None."""
        return self._shelf[key] if self._keeps else None

    def put(self, key: Key, entry: Entry) -> bool:
        """Keep an entry until its `keep_until`; false when it is larger than the whole budget.

        Whatever was kept under the key is gone in either case.
        """
        if entry.cost() > self._shelf.maxsize:
            self.drop(key)
            return False
        self._shelf[key] = entry
        return True

    def drop(self, key: Key) -> None:
        """Remove the entry kept under a key, if any."""
        if self._keeps:
            self._shelf.pop(key, None)

    def holds(self, key: Key) -> bool:
        """Whether something is kept under a key; to ask is no use of it."""
        return key in self._shelf

    @property
    def bytes(self) -> int:
        """What the entries cost together, in bytes."""
        return int(self._shelf.currsize)

    @property
    def entries(self) -> int:
        """How many are kept."""
        return len(self._shelf)

    @property
    def evictions(self) -> int:
        """How many were removed before their end because room was needed."""
        return self._shelf.evictions


def _keep_until(_key: Key, entry: Entry | None, _now: float) -> float:
    return entry.keep_until if entry else 0.0


def _cost(entry: Entry | None) -> int:
    return entry.cost() if entry else 0
