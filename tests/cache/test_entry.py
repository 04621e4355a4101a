from typing import Any

import msgspec
import pytest

from mcp_federator.cache.entry import Entry
from mcp_federator.model import Answer, Hint, Outcome, Scope, Served, Tier

FULL = Entry(
    Scope.PUBLIC,
    b"body",
    fresh_until=60.0,
    keep_until=360.0,
    generation=b"g",
    epoch=b"e",
    next_cursor="",
    count=3,
    extra=b'"x":1',
    meta=b'"m":2',
)


def test_an_answer_out_of_an_entry_has_all_that_was_kept() -> None:
    """Only the life and the way it came about are told anew."""
    served = Served(Outcome.HIT, Tier.MEMORY, 29)
    assert FULL.answer(29_000, served) == Answer(
        b"body",
        Hint(29_000, Scope.PUBLIC),
        next_cursor="",
        count=3,
        extra=b'"x":1',
        meta=b'"m":2',
        served=served,
    )


def test_the_body_is_handed_out_not_copied() -> None:
    """Who keeps a memo of joined bodies can tell by identity that a part is the same."""
    assert FULL.answer(1, Served()).body is FULL.body


@pytest.mark.parametrize(
    "other",
    [
        pytest.param({"next_cursor": "y"}, id="cursor"),
        pytest.param({"extra": b'"owner":"B"'}, id="members"),
        pytest.param({"meta": b'"owner":"B"'}, id="meta"),
        pytest.param({"hint": Hint(9_000, Scope.PRIVATE)}, id="scope"),
        pytest.param({"body": b"".join([b"bo", b"dy"])}, id="equal-bytes-of-another-answer"),
    ],
)
def test_a_copy_knows_what_it_gave(other: dict[str, Any]) -> None:
    """All empty bodies are one object; what stands beside them may be another caller's."""
    gave = FULL.answer(29_000, Served())
    assert FULL.gave(msgspec.structs.replace(gave, hint=Hint(1, Scope.PUBLIC), served=Served(Outcome.HIT)))
    assert not FULL.gave(msgspec.structs.replace(gave, **other))


def test_every_text_of_an_entry_costs_what_it_is_long() -> None:
    """A longer body, cursor, extra or meta, and each tie, raises the cost by at least its length."""
    bare = Entry(Scope.PUBLIC, b"", 0.0, 0.0, b"g", b"e")
    long = b"x" * 1000
    assert Entry(Scope.PUBLIC, long, 0.0, 0.0, b"g", b"e").cost() - bare.cost() >= 1000
    assert Entry(Scope.PUBLIC, b"", 0.0, 0.0, b"g", b"e", next_cursor="x" * 1000).cost() - bare.cost() >= 1000
    assert Entry(Scope.PUBLIC, b"", 0.0, 0.0, b"g", b"e", extra=long).cost() - bare.cost() >= 1000
    assert Entry(Scope.PUBLIC, b"", 0.0, 0.0, b"g", b"e", meta=long).cost() - bare.cost() >= 1000
    assert Entry(Scope.PUBLIC, b"", 0.0, 0.0, b"g", b"e", ties=((1, b"g"),) * 10).cost() - bare.cost() >= 1000
