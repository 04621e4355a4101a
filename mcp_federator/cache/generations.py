"""Whether a change came between a fetch and now (server/utilities/caching, "Interaction with Notifications").

A generation is an opaque random value: read before the fetch, kept in the entry, replaced by a change.  An
entry of another generation is gone, so a fetch that was under way when the change came cannot bring the old
answer back.  Never a counter: one that is lost comes back with a value it had before.  An epoch is the same
for a gap, after which entries are stale, not gone.

A resource that never changed has the generation that all such resources of the upstream share; one that did
has a value of its own, in a slot.  Only so many slots are remembered; when they are too many, all resources
get a new common generation and none its own.  What is forgotten, and two URIs that fall on one slot, cost
misses and nothing else.

What may not come in: the entries.  A change is declared here, and met when an entry is looked at.
"""

from collections.abc import Iterable
from math import inf
from secrets import token_bytes
from typing import NamedTuple

from mcp_federator.cache.entry import Tie
from mcp_federator.federation.listen import reach
from mcp_federator.model import Method, Query

MAX_CHANGED = 10_000
"""Slots with a generation of their own, per upstream: about 1.5 MiB."""

MAX_EPOCHS = 64
"""Epochs whose end is remembered; entries of an older one are gone."""

MAX_TIES = 64
"""Resources one entry is tied to; with more it is tied to all."""

_READ = Method.READ
# A member costs more through its class than as a global, and this one is looked at on each hit.

_ANY = -1
# The slot of "any resource": no string's hash is -1.


class Stamp(NamedTuple):
    """What is read before a fetch."""

    generation: bytes
    epoch: bytes
    any_resource: bytes
    """Replaced by every change of any resource: what a fetch will be tied to is only known after it."""


class Generations:
    """The generations and the epoch of one upstream.

    Attributes:
        epoch: the present one.
        trust: seconds for which what is fetched now may count as fresh, as far as its changes are heard of.
    """

    def __init__(self) -> None:
        self._unchanged = _new()
        self._changed: dict[int, bytes] = {}
        self._lists = {Method.LIST: _new(), Method.TEMPLATES: _new()}
        self._ended: dict[bytes, float] = {}
        self.epoch = _new()
        self.trust = inf

    def of(self, query: Query) -> bytes:
        """The generation of what is asked for: a resource, or the list a page belongs to."""
        if query.method is _READ:
            changed = self._changed
            return changed.get(hash(query.uri), self._unchanged) if changed else self._unchanged
        return self._lists[query.method]

    def stamp(self, query: Query) -> Stamp:
        """What an answer to `query` that is fetched from now on will be worth."""
        return Stamp(self.of(query), self.epoch, self._of_slot(_ANY))

    def epoch_end(self, epoch: bytes) -> float:
        """When an epoch ended: infinity for the present one, minus infinity for one that is forgotten."""
        return inf if epoch == self.epoch else self._ended.get(epoch, -inf)

    def ties(self, uris: tuple[str, ...], stamp: Stamp) -> tuple[Tie, ...] | None:
        """Ties to `uris` for an answer fetched since `stamp`; None if one of them may have changed since."""
        if not uris:
            return ()
        if stamp.any_resource != self._of_slot(_ANY):
            return None
        slots = {hash(uri) for uri in uris} if len(uris) <= MAX_TIES else {_ANY}
        return tuple((slot, self._of_slot(slot)) for slot in slots)

    def hold(self, ties: tuple[Tie, ...]) -> bool:
        """Whether nothing an entry is tied to has changed."""
        return all(self._of_slot(slot) == generation for slot, generation in ties)

    def change_resource(self, uri: str) -> None:
        """`uri` changed, and so did whatever it is a part of."""
        reached = reach(uri)
        if reached is None or len(self._changed) + len(reached) >= MAX_CHANGED:
            self.change_all_resources()
        else:
            self._changed.update(dict.fromkeys({_ANY, *map(hash, reached)}, _new()))

    def change_all_resources(self) -> None:
        """Any resource may have changed."""
        self._unchanged = _new()
        self._changed.clear()

    def change_lists(self, methods: Iterable[Method]) -> None:
        """These lists changed, with all their pages."""
        for method in methods:
            self._lists[method] = _new()

    def gap(self, end: float) -> None:
        """Changes may have been missed: the epoch ends, and those before it end no later.

        `end` may be a time to come: until then what is kept is taken for fresh.
        """
        if len(self._ended) >= MAX_EPOCHS:
            del self._ended[next(iter(self._ended))]
        self._ended = {epoch: min(at, end) for epoch, at in self._ended.items()}
        self._ended[self.epoch] = end
        self.epoch = _new()

    def _of_slot(self, slot: int) -> bytes:
        return self._changed.get(slot, self._unchanged)


def _new() -> bytes:
    return token_bytes(8)
