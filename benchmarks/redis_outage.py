"""What a Redis that swallows everything adds to a read that nobody may keep, once the breaker is open.

The same upstream stands behind a federator with that Redis and one without any; both are loaded in turn.  The
value is by how much the slowest hundredth is slower with it: the worst of the rounds.
"""

import json
import socket
from collections.abc import Iterator
from time import monotonic, sleep

from benchmarks import load
from benchmarks.messages import message
from benchmarks.rig import Federator, Rig, Row, get, post

READ = message("resources/read", uri="up0+file:///articles/NUMBER.md")


def rows(rig: Rig) -> Iterator[Row]:
    """The promise."""
    upstreams = rig.upstreams(ttl=0)
    without = rig.federator(upstreams)
    with socket.create_server(("127.0.0.1", 0), backlog=512) as hole:
        url = f"redis://127.0.0.1:{hole.getsockname()[1]}"
        behind = rig.federator(upstreams, cache={"redis": {"url": url}})
        _wait_until_it_is_left_alone(behind)
        script = load.numbered(READ)
        pairs = [
            tuple(
                load.run(each.url, script, rig.folder, seconds=rig.effort.seconds)
                for each in (without, behind)
            )
            for _ in range(rig.effort.rounds)
        ]
    added = [round(ours.p99_ms - base.p99_ms, 3) for base, ours in pairs]
    detail = {
        "all": added,
        "added_p50": [round(ours.p50_ms - base.p50_ms, 3) for base, ours in pairs],
        "requests": sum(ours.requests for _, ours in pairs),
    }
    yield Row("redis_outage", max(added), "ms", 50, detail=detail)


def _wait_until_it_is_left_alone(federator: Federator) -> None:
    end = monotonic() + 20
    number = 0
    while monotonic() < end:
        number += 1
        post(federator.url, message("resources/read", uri=f"up0+file:///first/{number}.md"))
        if json.loads(get(federator.admin + "/status"))["cache"]["redis"]["breaker"] == "open":
            return
        sleep(0.05)
    raise RuntimeError("the breaker stays closed")
