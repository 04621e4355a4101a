from typing import Any

import pytest
from msgspec.structs import replace

from mcp_federator.cache.envelope import UNTIED, Envelope, Stamp
from mcp_federator.cache.worth import Found, better, worth
from mcp_federator.model import Answer, Hint, Scope

NOW = Stamp(b"generatn", b"wholekin", b"anyresrc", b"newepoch")
KEPT = Envelope(
    key=b"k" * 32,
    partition=b"",
    scope=Scope.PUBLIC,
    stamp=replace(NOW, any_resource=UNTIED),
    ttl_ms=60_000,
    window_ms=10_000,
    body=b"body",
    next_cursor="c",
    count=2,
    extra=b"e",
    meta=b"m",
)
TIED = replace(KEPT, stamp=NOW, uris=("x://2",))
OLD = replace(KEPT, stamp=replace(KEPT.stamp, epoch=b"oldepoch"))
CHANGED = replace(KEPT, stamp=replace(KEPT.stamp, generation=b"another!"))
ALL_CHANGED = replace(KEPT, stamp=replace(KEPT.stamp, whole=b"another!"))
FORGOTTEN = replace(KEPT, stamp=replace(KEPT.stamp, epoch=b"forgottn"))
ENDED = b"oldepoch" + b"%015d" % 1_000_000 + b"eldepoch" + b"%015d" % 500_000


@pytest.mark.parametrize(
    ("read", "pttl", "now", "left"),
    [
        pytest.param(None, 70_000, 0, None, id="nothing"),
        pytest.param(KEPT, 70_000, 0, 60, id="whole"),
        pytest.param(KEPT, 10_001, 0, 0.001, id="nearly-over"),
        pytest.param(KEPT, 10_000, 0, 0, id="stale"),
        pytest.param(KEPT, 4_000, 0, -6, id="long-stale"),
        pytest.param(
            replace(KEPT, stamp=replace(KEPT.stamp, generation=b"another!")), 70_000, 0, None, id="g"
        ),
        pytest.param(
            replace(KEPT, stamp=replace(KEPT.stamp, whole=b"another!")), 70_000, 0, None, id="whole"
        ),
        pytest.param(TIED, 70_000, 0, 60, id="tied"),
        pytest.param(replace(TIED, stamp=KEPT.stamp), 70_000, 0, None, id="tied-to-none"),
        pytest.param(replace(KEPT, stamp=NOW), 70_000, 0, None, id="untied-to-some"),
        pytest.param(OLD, 70_000, 1_000_000, 0, id="a-gap-just-now"),
        pytest.param(OLD, 70_000, 1_009_999, -9.999, id="a-gap-within-the-window"),
        pytest.param(OLD, 70_000, 1_010_000, None, id="a-gap-before-the-window"),
        pytest.param(OLD, 4_000, 1_000_000, -6, id="stale-before-the-gap"),
        pytest.param(
            replace(KEPT, stamp=replace(KEPT.stamp, epoch=b"forgottn")),
            70_000,
            1_000_000,
            None,
            id="forgotten",
        ),
    ],
)
def test_what_an_entry_is_worth(read: Any, pttl: int, now: int, left: float | None) -> None:
    """Its expiry less its window, none after a gap, nothing after a change."""
    found = worth(read, pttl, NOW, ENDED, now)
    assert (None if found is None else found.left) == left
    if found is not None:
        ttl_ms = int(max(found.left, 0) * 1000)
        assert replace(found.answer, uris=()) == Answer(
            b"body", Hint(ttl_ms, Scope.PUBLIC), "c", 2, b"e", b"m"
        )


FRESH, STALE = (Found(Answer(b"", Hint(0, Scope.PUBLIC)), left) for left in (1.0, -1.0))


@pytest.mark.parametrize(
    ("one", "other", "best"),
    [
        (None, None, None),
        (FRESH, None, FRESH),
        (None, STALE, STALE),
        (STALE, None, STALE),
        (FRESH, STALE, FRESH),
        (STALE, replace(STALE, left=-2.0), replace(STALE, left=-2.0)),
    ],
)
def test_the_fresh_one_is_better(one: Any, other: Any, best: Any) -> None:
    """Of two stale ones it is the other, which was looked at first."""
    assert better(one, other) == best
