"""The first list of a federator before 8 upstreams that each take 100 ms, as a client measures it.

Every trial is a new federator process whose upstreams were probed and never listed; the second list of each
trial is cold as well, since the upstreams' ttl is 0, but finds connections open.
"""

import json
from collections.abc import Iterator
from statistics import median
from time import perf_counter

from benchmarks.messages import message
from benchmarks.rig import Federator, Rig, Row, post

LIST = message("resources/list")
UPSTREAMS, ITEMS = 8, 50


def rows(rig: Rig) -> Iterator[Row]:
    """The slowest of all first lists is what is promised."""
    upstreams = rig.upstreams(count=UPSTREAMS, items=ITEMS, ttl=0, delay=0.1)
    first: list[float] = []
    again: list[float] = []
    for _ in range(rig.effort.trials):
        with rig.another() as fresh:
            federator = fresh.federator(upstreams)
            first.append(_milliseconds(federator))
            again.append(_milliseconds(federator))
    assert upstreams.calls("resources/list") == 2 * UPSTREAMS * rig.effort.trials
    detail = {"median": median(first), "again_worst": max(again), "again_median": median(again), "all": first}
    yield Row("cold_list", max(first), "ms", 130, detail=detail)


def _milliseconds(federator: Federator) -> float:
    start = perf_counter()
    page = post(federator.url, LIST)
    spent = perf_counter() - start
    assert len(json.loads(page)["result"]["resources"]) == UPSTREAMS * ITEMS
    return round(spent * 1000, 1)
