"""Remembered pages: used only while every part is the very copy they were made of."""

import msgspec
import pytest

from mcp_federator.federation.memo import MAX_BYTES, Copies, Key, Memo, Memos, Step, Still, cost
from mcp_federator.model import ANYONE, Answer, Caller, Hint, Method, Outcome, Query, Scope, Served, Tier
from tests.instruments.scripted import same

KEY: Key = (Method.LIST, None, None)
PAGE = Answer(
    b"a,b",
    Hint(9_000, Scope.PRIVATE),
    next_cursor="next",
    count=2,
    extra=b'"x":1',
    meta=b'"y":2',
    served=Served(hits=2, upstreams=("alpha", "beta")),
)


class Shelf:
    """What two upstreams keep; `looks` counts."""

    def __init__(self) -> None:
        self.copies: dict[str, Answer | None] = {"alpha": copy(b"aa", 9), "beta": copy(b"bb", 5)}
        self.looks = 0

    def step(self, name: str) -> Step:
        kept = self.copies[name]
        assert kept is not None
        return Step(name, self.still(name), Query(Method.LIST), kept)

    def still(self, name: str) -> Still:
        def look(query: Query, caller: Caller, copy: Answer) -> int | None:  # noqa: ARG001 - the verb's shape
            self.looks += 1
            kept = self.copies[name]
            return None if kept is None or not same(kept, copy) else kept.hint.ttl_ms

        return look


def copy(body: bytes, seconds: int, then: str | None = None) -> Answer:
    served = Served(Outcome.HIT, Tier.MEMORY, fresh_for=seconds)
    return Answer(body, Hint(1000 * seconds, Scope.PRIVATE), next_cursor=then, count=1, served=served)


@pytest.fixture
def shelf() -> Shelf:
    return Shelf()


@pytest.fixture
def memos(shelf: Shelf) -> Memos:
    memos = Memos()
    memos.keep(KEY, Memo((shelf.step("alpha"), shelf.step("beta")), PAGE, until=10.0, changes=1))
    return memos


def recall(
    memos: Memos, *, now: float = 0.0, changes: int = 1, copies: Copies | None = None
) -> Answer | None:
    return memos.answer(KEY, ANYONE, now, changes, {} if copies is None else copies)


def test_the_same_copies_make_the_same_page(memos: Memos) -> None:
    """All is as it was, but the life: the least that a part has left."""
    again = recall(memos)

    assert again == Answer(
        PAGE.body,
        Hint(5_000, Scope.PRIVATE),
        next_cursor="next",
        count=2,
        extra=PAGE.extra,
        meta=PAGE.meta,
        served=Served(Outcome.HIT, Tier.MEMORY, fresh_for=5, hits=2, upstreams=("alpha", "beta")),
    )
    assert again.body is PAGE.body


def test_a_page_of_one_part_is_served_as_that_part_is(shelf: Shelf) -> None:
    """One upstream's page is not a merged one."""
    memos = Memos()
    memos.keep(KEY, Memo((shelf.step("alpha"),), PAGE, until=10.0, changes=1))

    again = recall(memos)

    assert again is not None
    assert again.served == Served(Outcome.HIT, Tier.MEMORY, fresh_for=9, upstreams=PAGE.served.upstreams)


@pytest.mark.parametrize(
    "now_kept",
    [
        pytest.param(copy(b"".join([b"b", b"b"]), 5), id="equal-bytes-of-another-answer"),
        pytest.param(copy(b"cc", 5), id="another-body"),
        pytest.param(None, id="no-copy"),
    ],
)
def test_another_copy_is_another_page(memos: Memos, shelf: Shelf, now_kept: Answer | None) -> None:
    """What was found is handed over: each look counted a hit and must not be repeated."""
    shelf.copies["beta"] = now_kept
    copies: Copies = {}

    assert recall(memos, copies=copies) is None

    assert shelf.looks == 2
    served = Served(Outcome.HIT, Tier.MEMORY, fresh_for=9)
    assert copies == {("alpha", None): msgspec.structs.replace(copy(b"aa", 9), served=served)}


def test_nothing_is_looked_at_after_the_first_difference(memos: Memos, shelf: Shelf) -> None:
    """The plan looks for itself where it goes on."""
    shelf.copies["alpha"] = None

    assert recall(memos) is None

    assert shelf.looks == 1


@pytest.mark.parametrize(
    ("now", "changes"),
    [pytest.param(10.0, 1, id="too-old"), pytest.param(0.0, 2, id="a-list-turned-private")],
)
def test_a_memo_ends(memos: Memos, shelf: Shelf, now: float, changes: int) -> None:
    """It is not looked at again, nor are its parts."""
    assert recall(memos, now=now, changes=changes) is None
    assert recall(memos) is None
    assert shelf.looks == 0


def test_another_key_is_another_page(memos: Memos) -> None:
    """Lists, cursors and what the caller may see are told apart; `""` is no absent cursor."""
    others: list[Key] = [
        (Method.TEMPLATES, None, None),
        (Method.LIST, "", None),
        (Method.LIST, None, frozenset()),
    ]

    assert [memos.answer(key, ANYONE, 0.0, 1, {}) for key in others] == [None, None, None]


def test_the_budget_holds_and_the_oldest_go_first(shelf: Shelf) -> None:
    """Bodies of parts are counted as well: a memo keeps them alive."""
    half = Answer(b"x" * (MAX_BYTES // 2 - 2048), Hint(1, Scope.PUBLIC))
    memos = Memos()
    keys: list[Key] = [(Method.LIST, str(number), None) for number in range(3)]
    for key in keys:
        memos.keep(key, Memo((shelf.step("alpha"),), half, until=10.0, changes=1))

    assert [memos.answer(key, ANYONE, 0.0, 1, {}) is None for key in keys] == [True, False, False]


FULL = "\U0001f4c1" * 1024
"""The longest cursor of an upstream: 4 KiB on the wire, and in memory."""


@pytest.mark.parametrize(
    ("cursor", "then", "copies", "came"),
    [
        pytest.param(FULL * 64, None, 0, False, id="the-key"),
        pytest.param(None, FULL * 64, 0, False, id="the-page"),
        pytest.param(None, None, 64, False, id="what-was-asked"),
        pytest.param(None, None, 64, True, id="what-came"),
    ],
)
def test_cursors_are_counted(
    cursor: str | None, then: str | None, copies: int, *, came: bool, shelf: Shelf
) -> None:
    """A memo of a page without an item holds up to 64 cursors of 4 KiB, twice and sealed."""
    memos = Memos()
    kept = copy(b"", 9, then=FULL if came else None)
    steps = tuple(
        Step("beta", shelf.still("beta"), Query(Method.LIST, cursor=None if came else FULL), kept)
        for _ in range(copies)
    )
    page = Answer(b"", Hint(1, Scope.PUBLIC), next_cursor=then)
    for number in range(100):
        key: Key = (Method.LIST, f"{cursor or ''}{number}", None)
        memos.keep(key, Memo(steps, page, until=10.0, changes=1))

    assert 0 < len(memos._memos) * 4096 * 64 <= MAX_BYTES


def test_what_has_ended_is_not_kept(shelf: Shelf) -> None:
    """A page that nobody asks for again leaves when any other is asked for."""
    memos = Memos()
    for number in range(10):
        key: Key = (Method.LIST, str(number), None)
        memos.keep(key, Memo((shelf.step("alpha"),), PAGE, until=10.0 + number, changes=1))

    assert memos.answer(KEY, ANYONE, 15.0, 1, {}) is None

    assert [key[1] for key in memos._memos] == ["6", "7", "8", "9"]
    assert memos._bytes == sum(cost(*kept) for kept in memos._memos.items())


def test_what_is_larger_than_the_budget_is_not_kept(shelf: Shelf) -> None:
    """And does not stay in the way of others."""
    memos = Memos()
    large = Answer(b"x" * MAX_BYTES, Hint(1, Scope.PUBLIC))
    memos.keep(KEY, Memo((shelf.step("alpha"),), large, until=10.0, changes=1))
    assert recall(memos) is None

    memos.keep(KEY, Memo((shelf.step("alpha"),), PAGE, until=10.0, changes=1))
    assert recall(memos) is not None


def test_forgetting_all(memos: Memos) -> None:
    """Nothing is kept alive afterwards."""
    memos.clear()

    assert recall(memos) is None
