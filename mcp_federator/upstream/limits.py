"""What the process spends on upstreams at most: requests under way, and bytes of answers being received.

What may not come in: waiting.  A limit that is reached is told at once; who waits for room holds what others
wait for.
"""

from typing import Self


class FullError(Exception):
    """A limit of the process, not of this one answer: others have taken what there is."""


class TooLargeError(Exception):
    """This answer is larger than an answer may be."""


class Slots:
    """At most `limit` of something at once; a `with` block holds one, or raises `FullError`."""

    def __init__(self, limit: int) -> None:
        self.limit = limit
        self.taken = 0

    def __enter__(self) -> None:
        if self.taken >= self.limit:
            raise FullError(f"{self.limit} requests are under way")
        self.taken += 1

    def __exit__(self, *_: object) -> None:
        self.taken -= 1


class Budget:
    """Bytes that all answers being received may hold together."""

    def __init__(self, limit: int) -> None:
        self.limit = limit
        self.taken = 0

    def lease(self, limit: int) -> "Lease":
        """A lease of at most `limit` bytes for one answer, given back at the end of its `with` block."""
        return Lease(self, limit)


class Lease:
    """One answer's share of a budget; `taken` grows with the answer, after decompression."""

    def __init__(self, budget: Budget, limit: int) -> None:
        self.limit = limit
        self._budget = budget
        self.taken = 0

    def take(self, size: int) -> None:
        """Account for `size` more bytes; raises `TooLargeError` or `FullError`."""
        budget = self._budget
        self.taken += size
        budget.taken += size
        if self.taken > self.limit:
            raise TooLargeError(f"more than {self.limit} bytes")
        if budget.taken > budget.limit:
            raise FullError(f"{budget.limit} bytes of answers are under way")

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._budget.taken -= self.taken
