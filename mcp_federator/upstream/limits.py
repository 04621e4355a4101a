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
    """At most `limit` of something at once; a `with` block holds one, or raises `FullError`.

    `whole` is what these are a share of: one of these is one of those, too.
    """

    def __init__(self, limit: int, whole: "Slots | None" = None) -> None:
        self.limit = limit
        self.taken = 0
        self._whole = whole

    def share(self, limit: int) -> "Slots":
        """At most `limit` of these for one who shares them with others."""
        return Slots(limit, self)

    def __enter__(self) -> None:
        if self.taken >= self.limit:
            raise FullError(f"{self.limit} requests are under way")
        if self._whole is not None:
            self._whole.__enter__()
        self.taken += 1

    def __exit__(self, *_: object) -> None:
        self.taken -= 1
        if self._whole is not None:
            self._whole.__exit__()


class Budget:
    """Bytes that all answers being received may hold together; `whole` is what this is a share of."""

    def __init__(self, limit: int, whole: "Budget | None" = None) -> None:
        self.limit = limit
        self.taken = 0
        self._whole = whole

    def share(self, least: int) -> "Budget":
        """What an upstream may hold of it: half, so that others have room, or `least` where that is more."""
        return Budget(max(self.limit // 2, least), self)

    def lease(self, limit: int) -> "Lease":
        """A lease of at most `limit` bytes for one answer, given back at the end of its `with` block."""
        return Lease(self, limit)

    def add(self, size: int) -> None:
        """Account for so many more bytes, or fewer."""
        self.taken += size
        if self._whole is not None:
            self._whole.add(size)

    def check(self) -> None:
        """Raise `FullError` where more is taken than there is."""
        if self.taken > self.limit:
            raise FullError(f"{self.limit} bytes of answers are under way")
        if self._whole is not None:
            self._whole.check()


class Lease:
    """One answer's share of a budget; `taken` grows with the answer, after decompression."""

    def __init__(self, budget: Budget, limit: int) -> None:
        self.limit = limit
        self._budget = budget
        self.taken = 0

    def take(self, size: int) -> None:
        """Account for `size` more bytes; raises `TooLargeError` or `FullError`."""
        self.taken += size
        self._budget.add(size)
        if self.taken > self.limit:
            raise TooLargeError(f"more than {self.limit} bytes")
        self._budget.check()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._budget.add(-self.taken)
