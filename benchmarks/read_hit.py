"""A read of 1 KB that is in memory, against the bare handler that answers with the same bytes."""

from collections.abc import Iterator

from benchmarks import load
from benchmarks.messages import message
from benchmarks.rig import Rig, Row, post

READ = message("resources/read", uri="up0+file:///articles/1.md")


def rows(rig: Rig) -> Iterator[Row]:
    """The promise, and beside it what a line in the log for each request costs."""
    upstreams = rig.upstreams()
    quiet = rig.federator(upstreams)
    bare = rig.bare(post(quiet.url, READ))
    yield rig.ratio("read_hit", bare, quiet, load.same(READ), limit=0.65)
    loud = rig.federator(upstreams, log_level="info")
    yield rig.ratio("read_hit_logged", bare, loud, load.same(READ), limit=None)
    # One call for each federator: everything else was a hit.
    assert upstreams.calls("resources/read") == 2
