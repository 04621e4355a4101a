from datetime import UTC, datetime

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mcp_federator.upstream import hold
from mcp_federator.upstream.hold import MAX_HOLD, Holds, retry_after

NOW = datetime(2026, 11, 30, 12, 0, 0, tzinfo=UTC)


@pytest.mark.parametrize(
    ("value", "date", "seconds"),
    [
        pytest.param(None, None, None, id="missing"),
        pytest.param("0", None, 0.0, id="zero"),
        pytest.param(" 7 ", None, 7.0, id="seconds"),
        pytest.param("3600", None, MAX_HOLD, id="capped"),
        pytest.param("9" * 5000, None, MAX_HOLD, id="huge"),
        pytest.param("-5", None, None, id="negative"),
        pytest.param("1.5", None, None, id="fractional"),
        pytest.param("\N{ARABIC-INDIC DIGIT ONE}", None, None, id="no-ascii-digit"),
        pytest.param("soon", None, None, id="word"),
        pytest.param("Mon, 30 Nov 2026 12:00:09 GMT", None, 9.0, id="date"),
        pytest.param("Monday, 30-Nov-26 12:00:09 GMT", None, 9.0, id="date-of-rfc-850"),
        pytest.param("Mon Nov 30 12:00:09 2026", None, 9.0, id="date-of-asctime"),
        pytest.param("Mon, 30 Nov 2026 11:00:00 GMT", None, 0.0, id="date-that-passed"),
        pytest.param("Tue, 01 Dec 2026 12:00:00 GMT", None, MAX_HOLD, id="date-capped"),
        pytest.param(
            "Mon, 30 Nov 2026 15:00:09 GMT", "Mon, 30 Nov 2026 15:00:00 GMT", 9.0, id="its-own-clock-counts"
        ),
        pytest.param("Mon, 30 Nov 2026 12:00:09 GMT", "yesterday", 9.0, id="its-own-clock-unreadable"),
        pytest.param("Mon, 99 Nov 2026 12:00:09 GMT", None, None, id="no-date"),
    ],
)
def test_retry_after(value: str | None, date: str | None, seconds: float | None) -> None:
    """Seconds or a date, capped; what is neither says nothing."""
    assert seconds == retry_after(value, date, NOW)


@given(st.text(), st.none() | st.text())
def test_retry_after_takes_any_text(value: str, date: str | None) -> None:
    """No text makes it fail, or hold longer than the cap."""
    seconds = retry_after(value, date, NOW)
    assert seconds is None or 0 <= seconds <= MAX_HOLD


def test_holds_one_partition() -> None:
    """A hold is for one partition and ends by itself."""
    holds = Holds()
    holds.hold(b"a", 5.0, 100.0)
    assert holds.remaining(b"a", 102.0) == 3.0
    assert holds.remaining(b"", 102.0) == 0.0
    assert holds.remaining(b"a", 105.0) == 0.0


def test_holds_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    """Among many partitions those that are over go first, then the oldest."""
    monkeypatch.setattr(hold, "_MAX_HOLDS", 3)
    holds = Holds()
    for partition, seconds in ((b"over", 1.0), (b"a", 50.0), (b"b", 50.0)):
        holds.hold(partition, seconds, 0.0)
    holds.hold(b"c", 50.0, 10.0)
    assert [holds.remaining(p, 10.0) for p in (b"a", b"b", b"c")] == [40.0, 40.0, 50.0]
    holds.hold(b"d", 50.0, 10.0)
    assert [holds.remaining(p, 10.0) for p in (b"a", b"b", b"c", b"d")] == [0.0, 40.0, 50.0, 50.0]
