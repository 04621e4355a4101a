"""Legacy upstreams behind the whole product: what modern clients notice of them."""

import asyncio
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from typing import Any

import pytest

from tests.instruments.fronted import DISCOVER, INCOMPLETE, LIST, READ, Clock, run
from tests.instruments.house import House, house
from tests.instruments.wire import Answer, Answers, Wire, contents, discovered, error, page, reply, result
from tests.upstream.legacy_server import (
    INITIALIZE,
    INITIALIZED,
    NO_SESSION,
    NOT_FOUND,
    ONE,
    PAGE,
    LegacyWire,
    methods,
    one,
)

BETA = {READ: result(contents("x://1")), LIST: result(page("x://1"))}
both_ways = pytest.mark.parametrize("lost", [NOT_FOUND, NO_SESSION], ids=["404", "400"])


@asynccontextmanager
async def both(
    answers: Mapping[str, Answers], lost: Answer = NOT_FOUND
) -> AsyncIterator[tuple[House, LegacyWire, Wire]]:
    """A legacy upstream `alpha` and a modern one `beta`, behind the whole product."""
    async with (
        LegacyWire(answers, lost=lost) as alpha,
        Wire(BETA) as beta,
        house({"alpha": alpha.url, "beta": beta.url}) as it,
    ):
        yield it, alpha, beta


async def reads(it: House, uri: str, count: int) -> list[Any]:
    return [reply.message for reply in await asyncio.gather(*(it.read(f"{uri}{n}") for n in range(count)))]


def any_uri(request: Any) -> Any:
    return result({"contents": [{"uri": request.params["uri"], "text": "text"}]})(request)


@both_ways
def test_H18_clients_see_nothing_of_a_lost_session(lost: Answer) -> None:
    """Ten reads of one upstream whose session is gone, and one of another: all answered, one handshake."""

    async def body() -> None:
        async with both(one() | {READ: any_uri}, lost) as (it, alpha, beta):
            await it.read("alpha+x://first")
            alpha.alive.clear()
            del alpha.received[:]
            messages, (other,) = await asyncio.gather(
                reads(it, "alpha+x://", 10), asyncio.gather(it.read("beta+x://1"))
            )
            assert all(message["result"]["contents"][0]["text"] == "text" for message in messages)
            assert other.uris == ["beta+x://1"]
            assert (len(alpha.calls(INITIALIZE)), len(alpha.calls(INITIALIZED))) == (1, 1)
            assert alpha.calls(INITIALIZE)[0].header("mcp-session-id") is None
            assert len(alpha.calls(READ)) == 20
            assert methods(beta) == [DISCOVER, READ]

    run(body())


@both_ways
def test_H18_a_second_loss_is_told_in_our_words(lost: Answer) -> None:
    """An upstream that forgets every session: an error for each read, no loop, and the other one serves."""

    async def body() -> None:
        async with both({READ: lost, LIST: lost}, lost) as (it, alpha, _):
            for message in await reads(it, "alpha+x://", 10):
                assert message["error"]["code"] == -32603
                assert message["error"]["data"] == {"upstream": "alpha", "reason": "refused"}
            assert len(alpha.calls(READ)) == 20
            assert len(alpha.calls(INITIALIZE)) <= 11
            listed = await it.page()
            assert listed.uris == ["beta+x://1"]
            assert listed.result["_meta"][INCOMPLETE] == [{"upstream": "alpha", "reason": "refused"}]

    run(body())


def test_H22_not_found_of_a_legacy_server() -> None:
    """-32602 with the public URI as asked; nothing of it is kept, and once it is there it is read."""

    async def body() -> None:
        missing = error(-32002, data={"uri": "x://1"}, status=200)
        async with both(one() | {READ: [missing, missing, result(ONE)]}) as (it, _, _):
            for _ in range(2):
                failed = (await it.read("alpha+x://1")).error
                assert (failed["code"], failed["data"]) == (-32602, {"uri": "alpha+x://1"})
            assert (await it.read("alpha+x://1")).uris == ["alpha+x://1"]

    run(body())


def test_hints_of_the_configuration_make_a_legacy_server_cacheable() -> None:
    """With a default life its answers are kept and told with it; without one they are asked for each time."""

    async def body() -> None:
        kept = {"default_ttl": "30s", "default_scope": "public"}
        async with LegacyWire(one()) as alpha, LegacyWire(one()) as beta:
            upstreams = {"alpha": {"url": alpha.url, "cache": kept}, "beta": beta.url}
            async with house(upstreams) as it:
                for name, calls in (("alpha", 1), ("beta", 2)):
                    first, second = [await it.read(f"{name}+x://1") for _ in range(2)]
                    assert first.result["resultType"] == second.result["resultType"] == "complete"
                    assert (second.result["ttlMs"] > 0) is (name == "alpha")
                    wire = alpha if name == "alpha" else beta
                    assert len(wire.calls(READ)) == calls

    run(body())


def test_an_upgrade_and_a_downgrade_cost_no_request() -> None:
    """An upstream changes its era twice; every read and every list in between is whole."""

    async def body() -> None:
        clock = Clock()
        async with LegacyWire(one(), sessions=False) as alpha:
            legacy: dict[str, Answers] = dict(alpha.answers)

            def only(era: str, then: Answer, otherwise: Answer) -> Answer:
                def choose(request: Any) -> Any:
                    modern = request.header("mcp-method") is not None
                    return (then if modern is (era == "modern") else otherwise)(request)

                return choose

            refusal = reply(status=400)
            turned: dict[str, Answers] = {
                DISCOVER: result(discovered()),
                INITIALIZE: error(-32601, status=404),
                READ: only("modern", result(contents("x://1", ttl=0)), error(-32020)),
                LIST: only("modern", result(page("x://1", ttl=0)), error(-32020)),
            }
            back: dict[str, Answers] = legacy | {
                READ: only("legacy", result(ONE), refusal),
                LIST: only("legacy", result(PAGE), refusal),
            }
            async with house({"alpha": alpha.url}, clock=clock) as it:
                for answers, era in ((legacy, "legacy"), (turned, "modern"), (back, "legacy")):
                    alpha.answers = answers
                    clock.now += 5
                    assert (await it.read("alpha+x://1")).uris == ["alpha+x://1"]
                    listed = await it.page()
                    assert listed.uris == ["alpha+x://1"]
                    assert INCOMPLETE not in listed.result["_meta"]
                    (told,) = (await it.status())["upstreams"]
                    assert told["era"] == era

    run(body())
