"""Changes where several federators share a Redis: what one hears all know before anybody is told."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest

from mcp_federator.model import Change, Offers
from mcp_federator.upstream.client import Client
from tests.cases.hearing import ID, listening, say
from tests.cases.test_redis_sharing import numbered, two
from tests.instruments.fronted import FORWARD, READ, URI, run, text
from tests.instruments.house import House
from tests.instruments.redis_server import Server
from tests.instruments.wire import Wire


@pytest.fixture(autouse=True)
def _tells(monkeypatch: pytest.MonkeyPatch) -> None:
    """The upstream tells of everything, and says what a test says."""
    monkeypatch.setattr(Client, "want", lambda *_: None)
    monkeypatch.setattr(Client, "offers", property(lambda _: Offers(lists=True, resources=True)))


@asynccontextmanager
async def both(redis: Server, **settings: Any) -> AsyncIterator[tuple[House, House]]:
    """Two federators before an upstream that says another number each time."""
    async with Wire({READ: numbered()}) as wire, two(redis, {"url": wire.url, **settings}) as houses:
        yield houses


def test_what_one_federator_hears_listeners_of_the_other_are_told(redis: Server) -> None:
    """Each thing once, though it is told both ways; the next read is new at either."""

    async def body() -> None:
        async with both(redis) as (one, other), listening(other, URI, lists=True, id="o") as (stream, _):
            assert [text(await it.read(URI)) for it in (one, other)] == ["1", "1"]
            say(one, "alpha", Change.RESOURCE, "x://1")
            told = await stream.next()
            assert told["method"] == "notifications/resources/updated"
            assert told["params"] == {"_meta": {ID: "o"}, "uri": URI}
            assert [text(await it.read(URI)) for it in (other, one)] == ["2", "2"]
            say(one, "alpha")
            assert (await stream.next())["method"] == "notifications/resources/list_changed"
            other.app._endpoint.drain()
            assert (await stream.next())["id"] == "o"

    run(body())


def test_invalidate_before_relay_on_every_replica(redis: Server) -> None:
    """Invariant 5: who is told at one federator and reads at the other at once is given what is new."""

    async def body() -> None:
        uris = [f"alpha+x://{number}" for number in range(30)]
        async with both(redis) as (one, other), listening(one, *uris) as (stream, _):
            for uri in uris:
                await one.read(uri)
                before = text(await other.read(uri))
                say(one, "alpha", Change.RESOURCE, uri.removeprefix("alpha+"))
                assert (await stream.next())["params"]["uri"] == uri
                assert text(await other.read(uri)) != before

    run(body())


def test_what_was_heard_on_behalf_of_somebody_is_told_nowhere_else(redis: Server) -> None:
    """What processes tell each other does not say whose it is."""

    async def body() -> None:
        async with (
            both(redis, **FORWARD) as (one, other),
            listening(one, URI) as (here, _),
            listening(other, URI) as (there, _),
        ):
            say(one, "alpha", Change.RESOURCE, "x://1")
            assert (await here.next())["params"]["uri"] == URI
            hub = other.app._federation.hub
            async with asyncio.timeout(10):
                while not await other.samples("mcp_federator_invalidations_total", reason="replica"):
                    pass
            assert len(hub._channels["alpha"].elsewhere) == 0
            other.app._endpoint.drain()
            assert (await there.next())["id"] == 1

    run(body())
