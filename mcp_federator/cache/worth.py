"""What an entry in Redis is worth, by what Redis itself says: its expiry, its generations, its clock.

Pure.  What may not come in: a clock of ours; lives are durations, and when an epoch ended is a time of Redis.
"""

from typing import Final

import msgspec

from mcp_federator.cache import freshness
from mcp_federator.cache.envelope import RANDOM_BYTES, UNTIED, Envelope, Stamp
from mcp_federator.model import Answer, Hint

_ENDED: Final = RANDOM_BYTES + 15


class Found(msgspec.Struct, frozen=True):
    """An answer from Redis: `left` is its life in seconds, none when stale; its hint says the same."""

    answer: Answer
    left: float


def worth(read: Envelope | None, pttl: int, stamp: Stamp, ended: bytes, now: int) -> Found | None:
    """What is left of an entry; None where a change came since its fetch, or nothing is.

    Args:
        read: the entry, if there is one.
        pttl: ms until it expires.
        stamp: the generations and the epoch as they are now.
        ended: the epochs that ended, each with its time, in ms of Redis' clock.
        now: the time on that clock; of no meaning where none ended.
    """
    if read is None:
        return None
    of = read.stamp
    tied = stamp.any_resource if read.uris else UNTIED
    if (of.generation, of.whole, of.any_resource) != (stamp.generation, stamp.whole, tied):
        return None
    left_ms = pttl - read.window_ms
    if of.epoch != stamp.epoch:
        at = _ended_at(ended, of.epoch)
        if at is None or at - now <= -read.window_ms:
            return None
        left_ms = min(left_ms, at - now, 0)
    left = left_ms / 1000
    hint = Hint(freshness.remaining_ms(left), read.scope)
    answer = Answer(read.body, hint, read.next_cursor, read.count, read.extra, read.meta, uris=read.uris)
    return Found(answer, left)


def better(one: Found | None, other: Found | None) -> Found | None:
    """The fresh one, or else the first there is."""
    if one is not None and (one.left > 0 or other is None):
        return one
    return other


def _ended_at(ended: bytes, epoch: bytes) -> int | None:
    """When an epoch ended, in ms of Redis' clock; None where that is not known any more."""
    for start in range(0, len(ended) - _ENDED + 1, _ENDED):
        if ended[start : start + RANDOM_BYTES] == epoch:
            return int(ended[start + RANDOM_BYTES : start + _ENDED])
    return None
