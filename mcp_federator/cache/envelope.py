"""How one kept answer is written where other processes, of other versions too, will read it.

A head of fixed length, then the payload, then whatever closes both (`Closure`): a tag, or a cipher.  The head
says whose the answer is and by what it is judged; nothing in it is believed before the closure has been
checked, and nothing after it is read before the head names what was asked for.  Lives are durations: what
remains is what Redis' own expiry says, so no two machines' clocks are ever compared.

Pure.  What may not come in: Redis, a clock, a cipher.

Hazards:
- The scripts (`scripts`) compare bytes of the head at fixed places.  Whoever moves a member raises `MARK`,
  and then entries of the other version are misses on both sides of a rolling update, as they should be.
- Reading never raises, whatever the bytes are: what is odd is told as a `Flaw`.  That rests on the closure:
  whatever it opens was written here.
"""

import struct
from enum import StrEnum
from typing import Final, Protocol

import msgspec

from mcp_federator.cache.key import Key
from mcp_federator.model import Scope

MARK: Final = b"mcpf\x01"
"""What each envelope begins with; the last byte is the version of all that is decided here."""

RANDOM_BYTES: Final = 8
"""Length of a generation, an epoch, and whatever else is only ever compared."""

UNTIED: Final = bytes(RANDOM_BYTES)
"""The `any_resource` of an answer that names no resource besides the one asked for."""

_HEAD: Final = struct.Struct(">5sB8s8s8s8sQQ32s32sIIIIIQ")
_PUBLIC: Final = 0x01
_HAS_CURSOR: Final = 0x02
_MAX_MS: Final = 1 << 52


class Flaw(StrEnum):
    """Why what was found is no answer to what was asked."""

    VERSION = "version"
    """Written by an older or a newer version."""
    ODD = "odd"
    """No envelope, or not the whole of one."""
    FOREIGN = "foreign"
    """An envelope of another key, or of another partition."""
    BROKEN = "broken"
    """Changed by somebody, or closed under a secret that is not ours."""


class Stamp(msgspec.Struct, frozen=True):
    """What Redis judges an answer by, as it was before the fetch; each is `RANDOM_BYTES` long.

    Attributes:
        generation: of the resource, or of the list.
        whole: of all resources of the upstream, or of all its lists.
        any_resource: replaced by every change of any resource.
        epoch: of the upstream.
    """

    generation: bytes
    whole: bytes
    any_resource: bytes
    epoch: bytes


class Envelope(msgspec.Struct, frozen=True):
    """A kept answer.

    Attributes:
        key: where it is kept: the public key, or the partition's own.
        partition: whose it is when private; `b""` where all share one.
        stamp: see `Stamp`; `any_resource` is `UNTIED` where `uris` is empty.
        ttl_ms: its life when it was written.
        window_ms: how long after that it may stand in for a failure.
        scope, body, next_cursor, count, extra, meta, uris: as of `Answer`.
    """

    key: Key
    partition: bytes
    scope: Scope
    stamp: Stamp
    ttl_ms: int
    window_ms: int
    body: bytes
    next_cursor: str | None = None
    count: int = 0
    extra: bytes = b""
    meta: bytes = b""
    uris: tuple[str, ...] = ()


class Closure(Protocol):
    """What makes an envelope one that only we can have written."""

    def close(self, head: bytes, payload: bytes, scope: Scope, partition: bytes) -> bytes:
        """What is written after `head`."""
        ...

    def open(self, head: bytes, closed: bytes, scope: Scope, partition: bytes) -> bytes | None:
        """The payload, or None where head and payload are not as we closed them."""
        ...


def write(envelope: Envelope, closure: Closure) -> bytes:
    """The envelope as it is kept."""
    cursor = b"" if envelope.next_cursor is None else envelope.next_cursor.encode("utf-8", "surrogatepass")
    uris = b"".join(_sized(uri.encode("utf-8", "surrogatepass")) for uri in envelope.uris)
    stamp = envelope.stamp
    public = _PUBLIC if envelope.scope is Scope.PUBLIC else 0
    head = _HEAD.pack(
        MARK,
        public | (0 if envelope.next_cursor is None else _HAS_CURSOR),
        stamp.generation,
        stamp.whole,
        stamp.any_resource if envelope.uris else UNTIED,
        stamp.epoch,
        min(envelope.window_ms, _MAX_MS),
        min(envelope.ttl_ms, _MAX_MS),
        envelope.key,
        envelope.partition or bytes(32),
        envelope.count,
        len(cursor),
        len(uris),
        len(envelope.extra),
        len(envelope.meta),
        len(envelope.body),
    )
    payload = b"".join((cursor, uris, envelope.extra, envelope.meta, envelope.body))
    return head + closure.close(head, payload, envelope.scope, envelope.partition)


def read(kept: bytes, key: Key, partition: bytes, closure: Closure) -> Envelope | Flaw:
    """What was kept under `key` for `partition`, or what is wrong with it; never raises."""
    if kept[: len(MARK)] != MARK:
        return Flaw.VERSION if kept[:4] == MARK[:4] and len(kept) > len(MARK) else Flaw.ODD
    head = kept[: _HEAD.size]
    if len(head) < _HEAD.size:
        return Flaw.ODD
    flags, *randoms, window_ms, ttl_ms, named, whose, count, n1, n2, n3, n4, n5 = _HEAD.unpack(head)[1:]
    if named != key or whose != (partition or bytes(32)):
        return Flaw.FOREIGN
    scope = Scope.PUBLIC if flags & _PUBLIC else Scope.PRIVATE
    payload = closure.open(head, kept[_HEAD.size :], scope, partition)
    if payload is None:
        return Flaw.BROKEN
    # From here on all is as one of us wrote it.
    parts = []
    start = 0
    for size in (n1, n2, n3, n4, n5):
        parts.append(payload[start : start + size])
        start += size
    cursor, uris, extra, meta, body = parts
    return Envelope(
        key=key,
        partition=partition,
        scope=scope,
        stamp=Stamp(*randoms),
        ttl_ms=ttl_ms,
        window_ms=window_ms,
        body=body,
        next_cursor=cursor.decode("utf-8", "surrogatepass") if flags & _HAS_CURSOR else None,
        count=count,
        extra=extra,
        meta=meta,
        uris=_texts(uris),
    )


def _sized(text: bytes) -> bytes:
    return len(text).to_bytes(4, "big") + text


def _texts(joined: bytes) -> tuple[str, ...]:
    texts = []
    start = 0
    while start < len(joined):
        end = start + 4 + int.from_bytes(joined[start : start + 4], "big")
        texts.append(joined[start + 4 : end].decode("utf-8", "surrogatepass"))
        start = end
    return tuple(texts)
