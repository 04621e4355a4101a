"""Hits of 1 KB where Redis is configured: out of Redis, the memory tier off, and out of memory.

Out of Redis is compared with the bare handler that runs the same script on the same Redis; beside it stands
what it costs to decipher a private answer, and that nothing is enciphered.  The resources are read in turn:
requests for one at the same time would share a look, and be cheaper than a hit is.  Out of memory is compared
with the federator that knows no Redis.
"""

from collections.abc import Iterator

from benchmarks import load
from benchmarks.messages import message
from benchmarks.rig import Rig, Row, Upstreams, post
from tests.instruments.redis_server import Server

KEYS = 256


def read(number: int | str) -> str:
    """The URI of a resource."""
    return f"up0+file:///articles/{number}.md"


def rows(rig: Rig) -> Iterator[Row]:
    """The promises, and the cost of the cipher."""
    for name, scope, encrypt, limit in (
        ("redis_hit", "public", True, 0.7),
        ("redis_hit_private", "private", True, None),
        ("redis_hit_private_plain", "private", False, None),
    ):
        with rig.another() as one:
            redis, upstreams = one.redis(), one.upstreams(scope=scope)
            yield _out_of_redis(one, redis, upstreams, name, encrypt=encrypt, limit=limit)
    redis, upstreams = rig.redis(), rig.upstreams()
    without = rig.federator(upstreams)
    behind = rig.federator(upstreams, cache={"redis": {"url": redis.url}})
    script = load.same(message("resources/read", uri=read(1)))
    yield rig.ratio("redis_memory_hit", without, behind, script, limit=0.95)
    assert upstreams.calls("resources/read") == 2


def _out_of_redis(
    rig: Rig, redis: Server, upstreams: Upstreams, name: str, *, encrypt: bool, limit: float | None
) -> Row:
    federator = rig.federator(
        upstreams, cache={"memory": 0, "redis": {"url": redis.url, "encrypt_private": encrypt}}
    )
    looks: list[list[str]] = []
    body = b""
    for number in range(1, KEYS + 1):
        before = {*redis.keys("*:[ge]:*")}
        body = post(federator.url, message("resources/read", uri=read(number)))
        entry, generation = (key.decode() for key in sorted({*redis.keys("*:[ge]:*")} - before))
        common, lane = entry.partition(":e:")[0] + ":m", entry.replace(":e:", ":f:")
        looks.append([common, generation, entry, entry, lane, lane])
    bare = rig.bare_redis(body, redis, looks)
    script = load.numbered(message("resources/read", uri=read("NUMBER")), cycle=KEYS)
    row = rig.ratio(name, bare, federator, script, limit=limit)
    # One call for each: everything else was a hit.
    assert upstreams.calls("resources/read") == KEYS
    return row
