"""One kept copy: an answer's bytes, and what decides how long and for whom it may be served.

Pure.  What may not come in: anything that refers back to an upstream, a request or a task.  Entries are many
and live long, so the collector does not track them; that is sound only while they hold nothing but immutable
leaves.

Hazard: `cost` must tell the truth, for the byte budget is what keeps the process within its memory.
"""

from sys import getsizeof
from typing import TypeAlias

import msgspec

from mcp_federator.model import Answer, Hint, Scope, Served

Tie: TypeAlias = tuple[int, bytes]
"""A resource an entry depends on besides the one asked for: its slot, and its generation when it was read."""

_HOUSING = 704
"""Bytes of one entry beside its texts: the struct and its two times, the key, and the store's records of it
(measured; tests/cache/test_memory_store.py compares with what the allocator says)."""

_TIE = 144
"""Bytes of one tie: a tuple, a slot number, and its place; the generation is shared."""


class Entry(msgspec.Struct, frozen=True, gc=False):
    """A kept answer.

    Attributes:
        scope: who may be given it.
        body, next_cursor, count, extra, meta: as of `Answer`.
        fresh_until: when its life ends, in seconds of the store's clock.
        keep_until: when it may not even be served instead of a failure.
        generation: of the resource or the list, read before the fetch.
        epoch: of the upstream, read before the fetch.
        ties: other resources whose change makes it gone.
    """

    scope: Scope
    body: bytes
    fresh_until: float
    keep_until: float
    generation: bytes
    epoch: bytes
    next_cursor: str | None = None
    count: int = 0
    extra: bytes = b""
    meta: bytes = b""
    ties: tuple[Tie, ...] = ()

    def answer(self, ttl_ms: int, served: Served) -> Answer:
        """The copy as one asker gets it; `ttl_ms` is the life that remains."""
        # Positional: on a hit this is half the work, and names would double it.
        return Answer(
            self.body,
            Hint(ttl_ms, self.scope),
            self.next_cursor,
            self.count,
            self.extra,
            self.meta,
            False,  # noqa: FBT003 - only complete answers are kept
            (),
            served,
        )

    def gave(self, answer: Answer) -> bool:
        """Whether an answer was made of this copy, or of one that says the same.

        All empty bodies are one object, so everything else is compared as well.
        """
        return (
            self.body is answer.body
            and self.next_cursor == answer.next_cursor
            and self.extra == answer.extra
            and self.meta == answer.meta
            and self.scope is answer.hint.scope
        )

    def cost(self) -> int:
        """Bytes of memory the entry takes while it is kept, all told."""
        return (
            _HOUSING
            + getsizeof(self.body)
            + (getsizeof(self.extra) if self.extra else 0)
            + (getsizeof(self.meta) if self.meta else 0)
            + (getsizeof(self.next_cursor) if self.next_cursor else 0)
            + _TIE * len(self.ties)
        )
