"""Resident memory: after start, and after reads of 1 KB that never repeat, by a thousand callers in turn.

The answers are private and each caller's token goes upstream, so every one of them is an entry of its own and
the budget of 64 MiB is used up many times over.
"""

from collections.abc import Iterator

from benchmarks import load
from benchmarks.messages import message
from benchmarks.rig import Federator, Rig, Row, Upstreams

READ = message("resources/read", uri="up0+file:///articles/NUMBER.md")
CALLERS = 1_000
BUDGET_BYTES_PER_READ = 64 * 1024 * 1024 // 200_000
SOME_MIB = 5


def rows(rig: Rig) -> Iterator[Row]:
    """Memory after start, after all reads, and what half as many more add to that."""
    upstreams = rig.upstreams(scope="private")
    # 64 MiB for 200,000 reads, and less for fewer, so that the budget is used up in any case.
    budget = BUDGET_BYTES_PER_READ * rig.effort.reads
    federator = rig.federator(upstreams, cache={"memory": budget}, upstream={"forward": ["authorization"]})
    yield Row("memory_start", federator.resident_mib(), "MiB", 70)
    asked = _read(rig, upstreams, federator, rig.effort.reads, first=0)
    full = federator.resident_mib()
    yield Row("memory_full", full, "MiB", 220, detail={"reads": asked, "callers": CALLERS})
    asked += _read(rig, upstreams, federator, rig.effort.reads // 2, first=2 * asked)
    growth = round(federator.resident_mib() - full, 1)
    yield Row("memory_growth", growth, "MiB", SOME_MIB, detail={"reads": asked})


def _read(rig: Rig, upstreams: Upstreams, federator: Federator, reads: int, *, first: int) -> int:
    """Read at least so many resources that were never read before; gives how many."""
    before = upstreams.calls("resources/read")
    script = load.numbered(READ, first=first, callers=CALLERS)
    rate = load.run(
        federator.url,
        script,
        rig.folder,
        seconds=600,
        enough=lambda: upstreams.calls("resources/read") - before >= reads,
    )
    asked = upstreams.calls("resources/read") - before
    assert asked >= rate.requests, "a read was answered from the cache"
    return asked
