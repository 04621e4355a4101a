"""Which copies of one upstream's answers there are for whom, and what each is still worth.

Here a private copy is kept from all but its own partition: every path to a kept answer goes through `find`.
Synchronous from end to end: nobody can come between a look and what follows from it.

What may not come in: waiting, the upstream, metrics.
"""

from collections.abc import Callable
from math import inf

import msgspec

from mcp_federator.cache import freshness
from mcp_federator.cache.entry import Entry
from mcp_federator.cache.generations import Generations, Stamp
from mcp_federator.cache.key import Key, Keys, private
from mcp_federator.cache.memory_store import MemoryStore
from mcp_federator.config import Cache
from mcp_federator.federation.partition import Credentials
from mcp_federator.model import Answer, Caller, Query, Scope

_PUBLIC = Scope.PUBLIC
# A member costs more through its class than as a global, and this one is looked at on each hit.


class Place(msgspec.Struct, frozen=True, gc=False):
    """Where an answer to one caller's query may be found.

    `public` is the key of the copy for all; `partition` says whose private copies may be given besides.
    """

    query: Query
    public: Key
    partition: bytes

    @property
    def private(self) -> Key:
        """The key of the partition's own copy."""
        return private(self.public, self.partition)


class Found(msgspec.Struct, frozen=True, gc=False):
    """A copy this caller may be given, and how many seconds of life it has left; none when stale."""

    entry: Entry
    left: float


class Copies:
    """The copies of one upstream in a store that all share.  `identity` is a digest of the upstream's."""

    def __init__(
        self,
        *,
        identity: bytes,
        credentials: Credentials,
        cache: Cache,
        memory: MemoryStore,
        clock: Callable[[], float],
    ) -> None:
        self._keys = Keys(identity)
        self._credentials = credentials
        self.adopt(cache)
        self._memory = memory
        self._clock = clock
        self.generations = Generations()
        self.kept: Callable[[str, Key], None] | None = None
        """Is told of each resource of which a copy is kept, and of its public key."""

    def adopt(self, cache: Cache) -> None:
        """Keep answers that come from now on by these settings."""
        self._max_ttl = cache.max_ttl
        self._stale_window = cache.stale_if_error

    def place(self, query: Query, caller: Caller) -> Place:
        """Where to look for `caller`."""
        credentials = self._credentials
        if not credentials.forwards:
            return Place(query, self._keys.public(query), b"")
        public = self._keys.public(query, credentials.variant(caller))
        return Place(query, public, credentials.partition(caller))

    def find(self, place: Place, *, stale: bool = False) -> Found | None:
        """The first copy that is fresh, the public one or else the own; if need be one that is `stale`."""
        found = None
        entry = self._memory.get(place.public)
        # Where no credential goes along all share one partition, and the public key holds either scope.
        if entry is not None and (entry.scope is _PUBLIC or not place.partition):
            left = self.life(entry, place.query)
            if left > 0:
                return Found(entry, left)
            if stale and left > freshness.GONE:
                found = Found(entry, left)
        if place.partition:
            entry = self._memory.get(place.private)
            if entry is not None:
                left = self.life(entry, place.query)
                if left > 0 or (found is None and stale and left > freshness.GONE):
                    return Found(entry, left)
        return found

    def is_public(self, place: Place) -> bool:
        """Whether the answer is known to be public.  A copy tells, even one that is stale or gone."""
        entry = self._memory.get(place.public)
        return entry is not None and entry.scope is _PUBLIC

    def life(self, entry: Entry, query: Query) -> float:
        """Seconds of life an answer to `query` has left, by what has changed since its fetch began."""
        generations = self.generations
        if entry.ties and not generations.hold(entry.ties):
            return freshness.GONE
        epoch = entry.epoch
        epoch_end = inf if epoch is generations.epoch else generations.epoch_end(epoch)
        return freshness.life(entry, self._clock(), generations.of(query), epoch_end)

    def entry(self, answer: Answer, stamp: Stamp, *, left: float | None = None) -> Entry:
        """A complete answer that has just come, as an entry; `stamp` was read before its fetch.

        `left` is its life in seconds where it comes out of another tier; none when stale.
        """
        if left is None:
            left = freshness.clamp(answer.hint.ttl_ms, self._max_ttl) / 1000
        fresh_until = self._clock() + min(left, self._max_ttl, self.generations.trust)
        ties = self.generations.ties(answer.uris, stamp)
        return Entry(
            scope=answer.hint.scope,
            body=answer.body,
            fresh_until=fresh_until,
            keep_until=fresh_until + self._stale_window,
            # Something it is tied to changed during the fetch: of no generation, it is gone from the start.
            generation=stamp.generation if ties is not None else b"",
            epoch=stamp.epoch,
            next_cursor=answer.next_cursor,
            count=answer.count,
            extra=answer.extra,
            meta=answer.meta,
            ties=ties or (),
        )

    def admit(self, place: Place, entry: Entry) -> bool:
        """Keep an answer in place of what its asker could have been given till now.

        Returns:
            False where it was not kept: it has no life, is larger than the store, or was overtaken by a
            change or a gap while it was fetched.  When overtaken, what is kept by now is newer, and stays.
        """
        generations = self.generations
        if entry.generation != generations.of(place.query):
            return False
        if entry.epoch != generations.epoch and self.find(place) is not None:
            return False
        self.drop(place)
        if entry.fresh_until <= self._clock():
            return False
        kept = self._memory.put(place.public if entry.scope is _PUBLIC else place.private, entry)
        if kept and self.kept is not None and place.query.uri is not None:
            self.kept(place.query.uri, place.public)
        return kept

    def drop(self, place: Place, *, public: bool = True) -> None:
        """Remove what this caller could have been given: the upstream says something else now.

        Not `public`: it says so to this partition alone, and what all may be given stays.  Where all share
        one partition there is one copy, and it goes.
        """
        if public:
            self._memory.drop(place.public)
        if place.partition or not public:
            self._memory.drop(place.private)
