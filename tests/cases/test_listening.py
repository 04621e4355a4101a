"""H31, H32 and H38 for clients that listen, over the whole product.

What upstreams say is put in where the product hears it; each row is judged by what clients are told, by what
they read after it, and by what reached the upstream.
"""

import asyncio
import json
from typing import Any

import pytest

from mcp_federator.cache import watched
from mcp_federator.model import Change, Offers, Wanted
from mcp_federator.upstream.client import Client
from tests.cases.hearing import ID, PATIENCE, listening, say
from tests.instruments.fronted import LIST, READ, run
from tests.instruments.house import House, house
from tests.instruments.wire import Wire, contents, page, result

BOTH = Offers(lists=True, resources=True)


@pytest.fixture(autouse=True)
def told(monkeypatch: pytest.MonkeyPatch) -> dict[str, list[Wanted]]:
    """What each upstream was told is wanted of it; alpha and beta tell of everything, others of nothing."""
    wanted: dict[str, list[Wanted]] = {}

    def want(client: Client, _: object, wish: Wanted) -> None:
        wanted.setdefault(client.status.name, []).append(wish)

    monkeypatch.setattr(Client, "want", want)
    monkeypatch.setattr(
        Client, "offers", property(lambda it: BOTH if it.status.name in {"alpha", "beta"} else Offers())
    )
    return wanted


def answers(*texts: str) -> dict[str, Any]:
    return {READ: [result(contents("x://1", text)) for text in texts], LIST: result(page("x://1"))}


def test_H31_an_update_is_told_in_the_clients_words_and_the_copy_is_gone(
    told: dict[str, list[Wanted]],
) -> None:
    """Only what is honoured is acknowledged; the update bears public URI and id; the next read is new."""

    async def body() -> None:
        async with Wire(answers("v1", "v2")) as alpha, Wire(answers("v1")) as gamma:
            upstreams = {"alpha": alpha.url, "gamma": gamma.url}
            async with house(upstreams) as it:
                uris = ["alpha+x://1", "gamma+y://1", "nope+z://1"]
                async with listening(it, *uris, id="s-1") as (stream, granted):
                    assert granted == {"resourceSubscriptions": ["alpha+x://1"]}
                    assert (await it.read("alpha+x://1")).result["contents"][0]["text"] == "v1"
                    say(it, "alpha", Change.RESOURCE, "x://2")
                    say(it, "alpha", Change.RESOURCE, "x://1")
                    assert await stream.next() == {
                        "jsonrpc": "2.0",
                        "method": "notifications/resources/updated",
                        "params": {"_meta": {ID: "s-1"}, "uri": "alpha+x://1"},
                    }
                    assert (await it.read("alpha+x://1")).result["contents"][0]["text"] == "v2"
                    assert told["alpha"][-1] == Wanted(lists=True, uris=frozenset({"x://1"}))
                assert len(alpha.calls(READ)) == 2

    run(body())


def test_H32_a_storm_costs_two_lists_of_each_page() -> None:
    """Of fifty listeners half opted in; each of these lists anew when told, which is twice in 500 changes."""

    async def body() -> None:
        async with (
            Wire({LIST: result(page("x://1"))}) as alpha,
            Wire({LIST: result(page("y://1"))}) as beta,
            house({"alpha": alpha.url, "beta": beta.url}) as it,
        ):
            await it.page()
            did = asyncio.Semaphore(0)

            async def client(number: int) -> int:
                count = 0
                async with listening(it, lists=number % 2 == 0, id=number) as (stream, granted):
                    assert granted == ({"resourcesListChanged": True} if number % 2 == 0 else {})
                    did.release()
                    while "method" in await stream.next():
                        count += 1
                        await it.page()
                        did.release()
                return count

            async def all_did(count: int) -> None:
                for _ in range(count):
                    await did.acquire()

            clients = [asyncio.create_task(client(number)) for number in range(50)]
            await all_did(50)
            for _ in range(500):
                say(it, "alpha")
            await all_did(25)
            it.app._federation.hub._channels["alpha"].pace.flush()
            await all_did(25)
            it.app._endpoint.drain()
            assert await asyncio.gather(*clients) == [2, 0] * 25
            assert (len(alpha.calls(LIST)), len(beta.calls(LIST))) == (3, 1)
            assert await it.samples("mcp_federator_invalidations_total", upstream="alpha") == 2
            assert await it.samples("mcp_federator_notifications_total", upstream="alpha") == 500

    run(body())


def test_H38_the_end_of_the_process_ends_every_stream(told: dict[str, list[Wanted]]) -> None:
    """Fifty listeners are told the end within the grace time, and nothing is wanted of upstreams any more."""

    async def body() -> None:
        async with Wire(answers("v1")) as alpha, asyncio.timeout(PATIENCE):
            ends: list[Any] = []

            async def client(it: House, number: int) -> None:
                async with listening(it, f"alpha+x://{number}", id=number) as (stream, _):
                    ready.release()
                    ends.append(await stream.next())
                    assert await stream.next() is None

            ready = asyncio.Semaphore(0)
            async with house({"alpha": alpha.url}) as it:
                clients = [asyncio.create_task(client(it, number)) for number in range(50)]
                for _ in clients:
                    await ready.acquire()
                assert await it.samples("mcp_federator_listeners") == 50
                assert (await it.status())["listeners"] == 50
                begun = asyncio.get_running_loop().time()
                it.app.stop()
                await asyncio.gather(*clients)
                assert asyncio.get_running_loop().time() - begun < 2
            assert {end["id"] for end in ends} == set(range(50))
            assert all(end["result"]["resultType"] == "complete" for end in ends)
            assert not told["alpha"][-1].uris

    run(body())


def test_H38_a_listener_that_leaves_releases_its_upstream(told: dict[str, list[Wanted]]) -> None:
    """At once; what somebody else listens to stays."""

    async def body() -> None:
        async with Wire(answers("v1")) as alpha, house({"alpha": alpha.url}) as it:
            async with listening(it, "alpha+x://1"):
                async with listening(it, "alpha+x://1", "alpha+x://2"):
                    pass
                async with asyncio.timeout(PATIENCE):
                    while await it.samples("mcp_federator_listeners") != 1:
                        pass
                assert told["alpha"][-1].uris == {"x://1"}
            async with asyncio.timeout(PATIENCE):
                while await it.samples("mcp_federator_listeners") != 0:
                    pass
            assert told["alpha"][-1] == Wanted(lists=True)

    run(body())


@pytest.mark.parametrize("subscribe", [True, False])
def test_what_is_kept_is_listened_to(
    subscribe: bool, told: dict[str, list[Wanted]], monkeypatch: pytest.MonkeyPatch
) -> None:
    """`cache.subscribe`: lists from the beginning, and resources while copies of them are kept."""
    monkeypatch.setattr(watched, "LOOK_SECONDS", 0.001)

    async def body() -> None:
        settings = {"cache": {"subscribe": subscribe}}
        async with Wire(answers("v1")) as alpha, house({"alpha": {"url": alpha.url, **settings}}) as it:
            if subscribe:
                assert told["alpha"] == [Wanted(lists=True)]
            await it.read("alpha+x://1")
            if not subscribe:
                assert told == {}
                return
            async with asyncio.timeout(PATIENCE):
                while len(told["alpha"]) < 2:
                    await it.status()
            assert told["alpha"][1:] == [Wanted(lists=True, uris=frozenset({"x://1"}))]

    run(body())


def test_capabilities_are_those_of_the_upstreams_in_force() -> None:
    """In discover and in initialize; a reload changes them."""

    async def body() -> None:
        async with Wire(answers("v1")) as alpha, house({"gamma": alpha.url}) as it:
            assert (await it.post("server/discover")).result["capabilities"] == {"resources": {}}
        async with Wire(answers("v1")) as alpha, house({"alpha": alpha.url, "gamma": alpha.url}) as it:
            declared = {"resources": {"subscribe": True, "listChanged": True}}
            assert (await it.post("server/discover")).result["capabilities"] == declared
            params = {"protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": {"name": "t"}}
            begin = {"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": params}
            headers = {"Content-Type": "application/json", "Accept": "application/json, text/event-stream"}
            begun = await it.send(json.dumps(begin).encode(), headers)
            assert begun.result["capabilities"] == declared

    run(body())
