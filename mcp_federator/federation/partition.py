"""What of a caller goes upstream, and whose answers may therefore be shared with whom.

By default nothing of the caller is forwarded: an upstream then has one authorization context, ours, and what
it answers is the same to all whom we let in.  Forwarded credentials say who asks: they separate private
entries.  Any other forwarded header may change any answer: it separates all entries (design, section 6;
server/utilities/caching, "Cache Scope Field").

Hazards:
    Only digests under the server's secret leave this file for keys: a token must not be found in a store, and
    nobody who reads a store may check a guessed one against it.
    Absent and empty are two values, and no value may be able to look like the end of itself and a next one.
"""

import hmac
from collections.abc import Iterable, Sequence

from mcp_federator.model import Caller

DEFAULT_CREDENTIAL_HEADERS = frozenset({"authorization", "cookie", "proxy-authorization", "x-api-key"})


class Credentials:
    """The rules of one upstream.

    Args:
        secret: the server's; the same on every replica.
        forward: names of the caller's headers that go upstream, in any case.
        credential_headers: names, beside the usual ones, of headers that say who asks.

    Attributes:
        forwards: whether anything of a caller goes upstream; if not, all callers are one.
    """

    __slots__ = ("_forward", "_others", "_secret", "_who", "forwards")

    def __init__(self, secret: bytes, forward: Sequence[str], credential_headers: Sequence[str]) -> None:
        self._secret = secret
        self._forward = tuple(dict.fromkeys(name.lower() for name in forward))
        self.forwards = bool(self._forward)
        says_who = DEFAULT_CREDENTIAL_HEADERS.union(name.lower() for name in credential_headers)
        self._who = tuple(sorted(name for name in self._forward if name in says_who))
        self._others = tuple(sorted(name for name in self._forward if name not in says_who))

    def forwarded(self, caller: Caller) -> tuple[tuple[str, str], ...]:
        """The headers to send upstream: (lower-case name, value), in configured order."""
        return tuple((name, caller.headers[name]) for name in self._forward if name in caller.headers)

    def partition(self, caller: Caller) -> bytes:
        """Who asks: 32 bytes, or `b""` where the configuration forwards nothing that says so."""
        return self._digest(b"partition", self._who, caller) if self._who else b""

    def variant(self, caller: Caller) -> bytes:
        """What else is forwarded: 32 bytes, or `b""` where the configuration forwards nothing else."""
        return self._digest(b"variant", self._others, caller) if self._others else b""

    def sent(self, caller: Caller) -> bytes:
        """Both: equal for callers whose requests look the same to the upstream."""
        return self.partition(caller) + self.variant(caller)

    def _digest(self, purpose: bytes, names: Iterable[str], caller: Caller) -> bytes:
        parts = [purpose]
        for name in names:
            value = caller.headers.get(name)
            # Header values are bytes; those beyond UTF-8 arrive as surrogate escapes.
            raw = None if value is None else value.encode("utf-8", "surrogateescape")
            parts.append(b"%s:%s" % (name.encode(), b"absent" if raw is None else b"%d:%s" % (len(raw), raw)))
        return hmac.digest(self._secret, b"\n".join(parts), "sha256")
