"""Merged pages remembered: the same copies make the same page, but for the life that remains.

A merged page is never stored (design, section 4): nothing could invalidate it.  It may be remembered, because
before each use every part is looked up in its cache again, and must be the very object that the page was made
of.  So a remembered page is never older than its parts; what it saves is planning, joining and sealing.

What may not come in: anything that holds for longer than the copies do.

Hazards:
- An upstream's page is known by its body being the same object.  But all empty bodies are one, so `Still` has
  to compare everything else as well: another caller's empty page may say other things.
- What a list counts as can change while its copies do not.  So a memo ends when a list turns private, and in
  any case soon: merging is also what tells the memory of scopes that the pages are still public.
"""

from collections.abc import Callable
from sys import getsizeof
from typing import Final, NamedTuple, TypeAlias

from mcp_federator.model import Answer, Caller, Hint, Method, Outcome, Query, Served, Tier

MAX_BYTES: Final = 4 << 20
"""How many bytes all memos together may keep alive."""

SECONDS: Final = 10.0
"""How long a memo is used before its page is merged anew."""

_OVERHEAD: Final = 1024
"""Bytes that a memo takes beside its texts and its steps, roughly."""

_STEP: Final = 768
"""Bytes that a step takes beside its texts, roughly: itself, its query, its copy, and how that was served."""

Peek: TypeAlias = Callable[[Query, Caller], Answer | None]
"""The fresh copy that a source keeps in this process, counted as a hit; or None, and nothing is counted."""

Still: TypeAlias = Callable[[Query, Caller, Answer], int | None]
"""The milliseconds that are left of a copy, if a peek would give that very copy, its next cursor, scope and
all members included; that is counted as a hit.  Else None, and nothing is counted."""

Key: TypeAlias = tuple[Method, str | None, frozenset[str] | None]
"""A page: its list, its composite cursor, and the upstreams its caller may see."""

Copies: TypeAlias = dict[tuple[str, str | None], Answer]
"""Copies at hand, by upstream and its cursor."""


class Step(NamedTuple):
    """One copy that a page was made of, and how to see whether it is still kept."""

    upstream: str
    still: Still
    query: Query
    copy: Answer


class Memo(NamedTuple):
    """One page.

    Attributes:
        steps: its parts, in the order in which they were asked for.
        page: what they made.
        until: when it ends, in seconds of the caller's clock.
        changes: `ListScopes.changes` when it was made; another number ends it too.
    """

    steps: tuple[Step, ...]
    page: Answer
    until: float
    changes: int


class Memos:
    """The pages merged last, within a budget; the oldest go first.

    All live equally long, so those that have ended stand in front; each look removes them.
    """

    def __init__(self) -> None:
        self._memos: dict[Key, Memo] = {}
        self._bytes = 0

    def answer(self, key: Key, caller: Caller, now: float, changes: int, copies: Copies) -> Answer | None:
        """The page as of now, if every part is what it was.

        Otherwise None, and `copies` has the parts found: each was counted as a hit, and is to be used.
        """
        memos = self._memos
        while memos and memos[oldest := next(iter(memos))].until <= now:
            self._drop(oldest)
        memo = memos.get(key)
        if memo is None:
            return None
        if changes != memo.changes:
            self._drop(key)
            return None
        left: list[int] = []
        for step in memo.steps:
            ttl_ms = step.still(step.query, caller, step.copy)
            if ttl_ms is None:
                break
            left.append(ttl_ms)
        else:
            return _aged(memo.page, min(left), len(left))
        for step, ttl_ms in zip(memo.steps, left, strict=False):
            copies[step.upstream, step.query.cursor] = _aged(step.copy, ttl_ms)
        return None

    def keep(self, key: Key, memo: Memo) -> None:
        """Remember a page, in place of an earlier one of that key; it ends no earlier than any other."""
        self._drop(key)
        self._memos[key] = memo
        self._bytes += cost(key, memo)
        while self._bytes > MAX_BYTES:
            self._drop(next(iter(self._memos)))

    def clear(self) -> None:
        """Forget all."""
        self._memos.clear()
        self._bytes = 0

    def _drop(self, key: Key) -> None:
        memo = self._memos.pop(key, None)
        if memo is not None:
            self._bytes -= cost(key, memo)


def _aged(page: Answer, ttl_ms: int, hits: int = 1) -> Answer:
    """The page with this life, served out of so many copies."""
    hint = Hint(ttl_ms, page.hint.scope)
    served = Served(
        Outcome.HIT,
        Tier.MEMORY,
        ttl_ms // 1000,
        upstreams=page.served.upstreams,
        hits=hits if hits > 1 else 0,
    )
    return Answer(page.body, hint, page.next_cursor, page.count, page.extra, page.meta, served=served)


def cost(key: Key, memo: Memo) -> int:
    """How many bytes a memo keeps alive with its key, roughly: no text is left out, some count twice."""
    _, cursor, upstreams = key
    return (
        _OVERHEAD
        + _length(cursor)
        + sum(map(getsizeof, upstreams or ()))
        + _size(memo.page)
        + sum(_STEP + _length(step.query.cursor) + _size(step.copy) for step in memo.steps)
    )


def _size(answer: Answer) -> int:
    return len(answer.body) + len(answer.extra) + len(answer.meta) + _length(answer.next_cursor)


def _length(cursor: str | None) -> int:
    return 0 if cursor is None else getsizeof(cursor)
