"""What a copy is found under: digests of all that distinguishes one answer from another, and of nothing else.

SHA-256 over unambiguous text: each part is either of fixed length, or the last, or preceded by its length.
Pure.  What may not come in: `_meta`, trace context, ids, the caller's capabilities (server/utilities/caching,
"Cache Key").

Hazard: "no cursor" and the cursor `""` are two questions.
"""

from hashlib import sha256
from typing import TypeAlias

from mcp_federator.model import Method, Query

Key: TypeAlias = bytes
"""32 bytes that name one copy."""


class Keys:
    """The public keys of one upstream.

    `identity` is a digest of the upstream's name, of where it is, and of how its URIs are shown: entries made
    under another configuration are never met again.
    """

    __slots__ = ("_bare", "_heads")

    def __init__(self, identity: bytes) -> None:
        lead = len(identity).to_bytes(4, "big") + identity
        self._heads = {method: lead + method.encode() + b"\x01" for method in Method}
        # A first page has no parameter, so its digest is known beforehand.
        self._bare = {method: sha256(lead + method.encode() + b"\x00").digest() for method in Method}

    def public(self, query: Query, variant: bytes = b"") -> Key:
        """The key under which everyone finds the answer.

        `variant` is a digest of forwarded header fields that are no credentials, `b""` where there are none:
        it splits public entries too.
        """
        parameter = query.cursor if query.uri is None else query.uri
        if parameter is None:
            key = self._bare[query.method]
        else:
            # A lone surrogate is no text, but a key must not fail for it.
            text = parameter.encode("utf-8", "surrogatepass")
            key = sha256(self._heads[query.method] + text).digest()
        return sha256(key + b"variant" + variant).digest() if variant else key


def private(public: Key, partition: bytes) -> Key:
    """The key under which one partition finds its own answer; the public key itself for partition `b""`.

    An upstream to which no credential goes along has one authorization context: all share what it holds
    private, and one key serves for both scopes.
    """
    return sha256(public + b"partition" + partition).digest() if partition else public
