"""Merged pages remembered: the same copies make the same page, but for the life that remains.

A merged page is never stored (design, section 4): nothing could invalidate it.  It may be remembered, because
before each use every part is taken from its cache again, and must be the very object that the page was made
of.  So a remembered page is never older than its parts; what it saves is planning, joining and sealing.

What may not come in: anything that holds for longer than the copies do.

Hazards:
- An upstream's page is known by its body being the same object.  But all empty bodies are one, so everything
  else that a merged page takes from it is compared as well: another caller's empty page may say other things.
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

Key: TypeAlias = tuple[Method, str | None, frozenset[str] | None]
"""A page: its list, its composite cursor, and the upstreams its caller may see."""

Copies: TypeAlias = dict[tuple[str, str | None], Answer]
"""Copies at hand, by upstream and its cursor."""


class Step(NamedTuple):
    """One copy that a page was made of, and how to see whether it is still kept."""

    upstream: str
    peek: Peek
    query: Query
    copy: Answer

    def still(self, copy: Answer) -> bool:
        """Whether a copy found now is the one that the page was made of, but for its life."""
        was = self.copy
        return (
            copy.body is was.body
            and copy.next_cursor == was.next_cursor
            and copy.extra == was.extra
            and copy.meta == was.meta
            and copy.hint.scope is was.hint.scope
        )


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
        found = []
        for step in memo.steps:
            copy = step.peek(step.query, caller)
            if copy is None:
                break
            found.append(copy)
            if not step.still(copy):
                break
        else:
            return _aged(memo.page, found)
        for step, copy in zip(memo.steps, found, strict=False):
            copies[step.upstream, step.query.cursor] = copy
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


def _aged(page: Answer, copies: list[Answer]) -> Answer:
    """The page with the least life that its copies have left."""
    least = min(copies, key=_life)
    served = least.served
    if len(copies) > 1:
        served = Served(
            Outcome.HIT,
            Tier.MEMORY,
            served.fresh_for,
            hits=len(copies),
            upstreams=page.served.upstreams,
        )
    hint = Hint(least.hint.ttl_ms, page.hint.scope)
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


def _life(copy: Answer) -> int:
    return copy.hint.ttl_ms
