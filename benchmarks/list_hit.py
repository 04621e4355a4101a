"""The merged list of 8 upstreams x 50 items, all in memory, against the bare handler with the same bytes."""

import json
from collections.abc import Iterator

from benchmarks import load
from benchmarks.messages import message
from benchmarks.rig import Rig, Row, post

LIST = message("resources/list")
UPSTREAMS, ITEMS = 8, 50


def rows(rig: Rig) -> Iterator[Row]:
    """The promise."""
    upstreams = rig.upstreams(count=UPSTREAMS, items=ITEMS)
    federator = rig.federator(upstreams)
    page = post(federator.url, LIST)
    assert len(json.loads(page)["result"]["resources"]) == UPSTREAMS * ITEMS
    bare = rig.bare(page)
    yield rig.ratio("list_hit", bare, federator, load.same(LIST), limit=0.5, bytes=len(page))
    assert upstreams.calls("resources/list") == UPSTREAMS
