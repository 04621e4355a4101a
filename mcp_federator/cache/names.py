"""Under which names an upstream's things stand in Redis.

Every key of an upstream is `{prefix}{{upstream.identity:bucket}}:kind:digest`.  What is in the braces decides
the slot on a Cluster: all that one look-up needs is in one bucket, and all of an upstream is in `BUCKETS` of
them, so that it can be declared changed at a bounded cost.  A resource's bucket follows from its URI alone,
whatever forwarded headers split its entries; a list is one thing with all its pages.

Pure.  What may not come in: Redis; a URI or a cursor in a name.
"""

from collections.abc import Iterator
from typing import Final

import msgspec

from mcp_federator.cache.key import Key, Keys, private
from mcp_federator.model import Method, Query

BUCKETS: Final = 64

RESOURCES: Final = b"resources"
LISTS: Final = b"lists"
"""Names of the common values that stand for all resources, and for all lists."""


class Site(msgspec.Struct, frozen=True):
    """The names that belong to one caller's query.

    Attributes:
        common: the bucket's common values, a hash.
        whole: which of them stands for all of the query's kind.
        generation: of the resource or the list.
        public, own: the entries; the same where all share one partition.
        shared_lane, own_lane: leases of flights; likewise.
    """

    common: bytes
    whole: bytes
    generation: bytes
    public: bytes
    own: bytes
    shared_lane: bytes
    own_lane: bytes


class Names:
    """The names of one upstream's things.

    Args:
        prefix: what all our keys in this Redis begin with; without braces.
        upstream: the upstream's name.
        identity: a digest of its name, place and mapping.

    Raises:
        ValueError: a brace in the prefix: it would decide the slot.
    """

    def __init__(self, prefix: str, upstream: str, identity: bytes) -> None:
        if "{" in prefix or "}" in prefix:
            raise ValueError("a key prefix has no braces")
        self.tag = f"{upstream}.{identity[:8].hex()}"
        self._keys = Keys(identity)
        self._buckets = tuple(f"{prefix}{{{self.tag}:{number}}}:".encode() for number in range(BUCKETS))
        self._lists = {method: self._keys.public(Query(method)) for method in (Method.LIST, Method.TEMPLATES)}

    def site(self, query: Query, public: Key, partition: bytes) -> Site:
        """The names for a query whose public key is `public`, asked by `partition`."""
        if query.method is Method.READ:
            thing, whole = self._keys.public(Query(Method.READ, uri=query.uri)), RESOURCES
        else:
            thing, whole = self._lists[query.method], LISTS
        bucket = self._bucket(thing)
        entry, own = public.hex().encode(), private(public, partition).hex().encode()
        return Site(
            common=bucket + b"m",
            whole=whole,
            generation=_generation(bucket, thing),
            public=bucket + b"e:" + entry,
            own=bucket + b"e:" + own,
            shared_lane=bucket + b"f:" + entry,
            own_lane=bucket + b"f:" + own,
        )

    def generation_of_list(self, method: Method) -> bytes:
        """The key of a list's generation."""
        thing = self._lists[method]
        return _generation(self._bucket(thing), thing)

    def private_mark(self, method: Method) -> bytes:
        """The key that is there while a list is known to be private."""
        thing = self._lists[method]
        return self._bucket(thing) + b"s:" + thing.hex().encode()

    def generation_of(self, uri: str) -> bytes:
        """The key of a resource's generation."""
        thing = self._keys.public(Query(Method.READ, uri=uri))
        return _generation(self._bucket(thing), thing)

    def commons(self) -> Iterator[bytes]:
        """The key of each bucket's common values."""
        return (bucket + b"m" for bucket in self._buckets)

    def _bucket(self, thing: Key) -> bytes:
        return self._buckets[thing[0] % BUCKETS]


def _generation(bucket: bytes, thing: Key) -> bytes:
    return bucket + b"g:" + thing.hex().encode()
