"""How long an upstream asked us to wait, and for whom (RFC 9110, 10.2.3; RFC 6585, 4).

Pure: time comes in as `now`.

Hazard: partitions are as many as there are tokens.  What is remembered is bounded, and a hold that falls out
is only asked for again.
"""

from datetime import UTC, datetime
from email.utils import parsedate_to_datetime

MAX_HOLD = 60.0
"""Seconds; an upstream can ask for more, but not get it."""

DEFAULT_HOLD = 1.0
"""Seconds to hold after a 429 that does not say how long."""

_MAX_HOLDS = 10_000


def retry_after(value: str | None, date: str | None, now: datetime) -> float | None:
    """Seconds that a `Retry-After` field asks for, at most `MAX_HOLD`; None where there is no sound one.

    It holds seconds or a date.  A date counts from the reply's own `Date`, so that two clocks that differ do
    not matter, or from `now` where there is none.
    """
    if value is None:
        return None
    text = value.strip()
    if text.isascii() and text.isdigit():
        return min(float(text), MAX_HOLD)
    until = _date(text)
    if until is None:
        return None
    since = (_date(date) if date is not None else None) or now
    return min(max((until - since).total_seconds(), 0.0), MAX_HOLD)


def _date(text: str) -> datetime | None:
    try:
        parsed = parsedate_to_datetime(text)
    except (ValueError, OverflowError):
        return None
    # The oldest of the three forms names no zone, and means UTC (RFC 9110, 5.6.7).
    return parsed if parsed.tzinfo is not None else parsed.replace(tzinfo=UTC)


class Holds:
    """Until when each partition is to wait.  The empty partition is one like any other."""

    def __init__(self) -> None:
        self._until: dict[bytes, float] = {}

    def hold(self, partition: bytes, seconds: float, now: float) -> None:
        """Let this partition wait so many seconds from `now`."""
        if len(self._until) >= _MAX_HOLDS and partition not in self._until:
            self._until = {held: until for held, until in self._until.items() if until > now}
            if len(self._until) >= _MAX_HOLDS:
                del self._until[next(iter(self._until))]
        self._until[partition] = now + seconds

    def remaining(self, partition: bytes, now: float) -> float:
        """Seconds this partition is still to wait, 0 where it is not."""
        until = self._until.get(partition)
        if until is None:
            return 0.0
        if until <= now:
            del self._until[partition]
            return 0.0
        return until - now
