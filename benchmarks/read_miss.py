"""A read that nobody may keep, against a bare reverse proxy before the same upstream.

Every request has another URI: equal ones would share a flight and be cheaper than a miss is.
"""

from collections.abc import Iterator

from benchmarks import load
from benchmarks.messages import message
from benchmarks.rig import Rig, Row

READ = message("resources/read", uri="up0+file:///articles/NUMBER.md")


def rows(rig: Rig) -> Iterator[Row]:
    """The promise."""
    upstreams = rig.upstreams(ttl=0)
    federator = rig.federator(upstreams)
    proxy = rig.proxy(upstreams.urls[0])
    yield rig.ratio("read_miss", proxy, federator, load.numbered(READ), limit=0.5)
