"""Legacy sessions: ids that any process with the same secret can check, and what is known of their end.

A session id says all that there is to a session: which revision was agreed on, and until when it holds.  It
is sealed under `server.secret`, so it needs no store, and survives restarts and a change of replica
(2025-11-25, basic/transports, "Session Management").  It proves nothing about who asks.

Hazards:
- An end is known only to the process that was told of it, until ends are shared through Redis: elsewhere the
  session goes on until it expires.
- The clock is the wall's: other machines compare the expiry with theirs.
- What a client sends as an id can be anything, of any length.
"""

import secrets
import time
from collections.abc import Callable, Sequence
from typing import Final

import msgspec

from mcp_federator.federation.sealing import Sealing
from mcp_federator.protocol.vocabulary import LEGACY

LIFE_SECONDS: Final = 7 * 24 * 3600
"""How long a session holds.  Several clients give up at a session's end instead of beginning anew, so this is
longer than any of them runs without being restarted."""

MAX_ENDED: Final = 1 << 16
"""How many ended sessions are remembered; beyond it the longest ended are forgotten."""

_MAX_CHARS: Final = 256
_RANDOM_BYTES: Final = 16
_VERSION: Final = b"\x01"
_PURPOSE: Final = b"mcp-federator session 1"


class Session(msgspec.Struct, frozen=True, array_like=True):
    """One session.

    Attributes:
        token: random; tells it from all others.
        version: the revision agreed on, one of `LEGACY`.
        expires: second of the Unix epoch.
    """

    token: bytes
    version: str
    expires: int


_encoder = msgspec.msgpack.Encoder()
_decoder = msgspec.msgpack.Decoder(Session)


class Sessions:
    """Makes session ids and knows them again.

    Args:
        keys: secrets, at least one, none empty; the first seals, all open.
        clock: seconds of the Unix epoch.

    Raises:
        ValueError: there is no secret, or an empty one.
    """

    def __init__(self, keys: Sequence[bytes], clock: Callable[[], float] = time.time) -> None:
        self._sealing = Sealing(keys, _PURPOSE, _VERSION)
        self._clock = clock
        self._ended: dict[bytes, int] = {}

    def begin(self, version: str) -> str:
        """The id of a new session; visible ASCII."""
        session = Session(secrets.token_bytes(_RANDOM_BYTES), version, int(self._clock()) + LIFE_SECONDS)
        return self._sealing.seal(_encoder.encode(session))

    def find(self, text: str) -> Session | None:
        """The session with this id; None of any text that is none, or whose session is over."""
        if len(text) > _MAX_CHARS:
            return None
        try:
            session = _decoder.decode(self._sealing.open(text))
        except (ValueError, msgspec.MsgspecError):
            return None
        over = session.expires <= self._clock() or session.token in self._ended
        return None if over or session.version not in LEGACY else session

    def end(self, session: Session) -> None:
        """Let the session be over, for this process."""
        ended, now = self._ended, self._clock()
        # In the order of their ends, which is nearly that of their expiry: what lingers does so bounded.
        while ended and (len(ended) >= MAX_ENDED or ended[next(iter(ended))] <= now):
            del ended[next(iter(ended))]
        ended[session.token] = session.expires
