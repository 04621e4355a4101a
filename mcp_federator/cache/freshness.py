"""How much life a copy has left (server/utilities/caching, "Freshness Calculation").

Pure: `now` is handed in, all times are seconds of one clock, lives are seconds.  Three states: fresh (life is
left), stale (none is, but it may stand in for a failure), gone (not to be served at all).

Hazard: what the wire is told is never more than what is left; a client would hold on to the difference.
"""

from math import floor, inf

from mcp_federator.cache.entry import Entry

GONE = -inf
"""The life of what may not be served."""

_ROUNDING_MS = 1e-3
# Sums of times are off by less than this; without it 60,000 ms just received would be told as 59,999.


def clamp(ttl_ms: int, max_ttl: float) -> int:
    """The life an upstream's `ttlMs` gives, in whole milliseconds from 0 to `max_ttl` seconds."""
    return max(0, min(ttl_ms, int(max_ttl * 1000)))


def life(entry: Entry, now: float, generation: bytes, epoch_end: float) -> float:
    """Seconds of life left: positive while fresh, zero or negative while stale, `GONE` after that.

    Args:
        entry: the copy.
        now: the time.
        generation: of its resource or list, now; another than the entry's own means a change.
        epoch_end: when its epoch ended, infinity while it lasts; from then on the copy is stale.
    """
    if entry.generation != generation:
        return GONE
    end = entry.fresh_until
    left = (end if end <= epoch_end else epoch_end) - now  # noqa: FURB136 - on a hit `min` is a third of this
    return left if left > 0 or left > end - entry.keep_until else GONE


def remaining_ms(left: float) -> int:
    """`ttlMs` as an asker is told it: what is left in whole milliseconds, 0 when stale or gone."""
    return int(left * 1000 + _ROUNDING_MS) if left > 0 else 0


def fresh_for(left: float) -> int:
    """Whole seconds for `Cache-Status` (RFC 9211, "ttl"): rounded down, negative when stale."""
    return int(left) if left > 0 else min(-1, floor(left))
