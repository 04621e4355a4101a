"""Changes heard of real servers, of both eras, over HTTP and stdio; asked through the client."""

import asyncio
import sys
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from mcp_federator.model import ANYONE, Change, Event, Offers, Wanted
from tests.instruments import legacy
from tests.instruments.processes import child
from tests.upstream.asking import Asker, asking, run

TELLING = str(Path(__file__).parents[1] / "instruments" / "telling.py")
NOTES = "file:///notes/"


class Peer:
    """A server, and what it has: a resource, and what to read to change it or the list."""

    def __init__(self, kind: str) -> None:
        self.kind = kind
        self.modern = kind.startswith("modern")
        self.uri = "tell://a" if self.modern else f"{NOTES}1.md"
        self.edit = "tell://edit/a" if self.modern else f"{NOTES}edit/1.md"
        self.other = "tell://edit/b" if self.modern else f"{NOTES}edit/2.md"
        self.new = "tell://new/{}" if self.modern else NOTES + "new{}.md"


@pytest.fixture(params=["modern http", "modern stdio", "legacy http", "legacy stdio"])
def peer(request: pytest.FixtureRequest) -> Peer:
    return Peer(request.param)


@asynccontextmanager
async def heard(peer: Peer) -> AsyncIterator[tuple[Asker, list[Event]]]:
    """A client of the server, and what it tells."""
    events: list[Event] = []
    match peer.kind:
        case "modern stdio":
            settings: dict[str, Any] = {"command": sys.executable, "args": (TELLING, "stdio")}
            async with asking(None, changed=events.append, **settings) as alpha:
                yield alpha, events
        case "legacy stdio":
            settings = legacy.stdio_server()
            settings["args"] = tuple(settings["args"])
            async with asking(None, changed=events.append, **settings) as alpha:
                yield alpha, events
        case "modern http":
            with child(sys.executable, "-u", TELLING, "http", "0") as process:
                url = process.wait_for(r"listens on (\S+)")[1]
                async with asking(url, changed=events.append) as alpha:
                    yield alpha, events
        case _:
            with legacy.http_server() as url:
                async with asking(url, changed=events.append) as alpha:
                    yield alpha, events


async def until(true: Callable[[], bool]) -> None:
    async with asyncio.timeout(20):
        while not true():  # noqa: ASYNC110 - what is waited for happens in another process
            await asyncio.sleep(0.01)


def test_what_is_wanted_is_heard(peer: Peer) -> None:
    """Updates of what was named and no other, and that the list is another one."""

    async def body() -> None:
        async with heard(peer) as (alpha, events):
            await alpha.client.probe()
            assert alpha.client.offers == Offers(lists=True, resources=True)
            alpha.client.want(ANYONE, Wanted(lists=True, uris=frozenset({peer.uri})))
            await until(lambda: alpha.client.status.listening == 1)
            await alpha.read(peer.other)
            await alpha.read(peer.edit)
            update = Event("alpha", Change.RESOURCE, peer.uri)
            await until(lambda: update in events)
            await alpha.read(peer.new.format(1))
            await until(lambda: Event("alpha", Change.LIST) in events)
            assert {event.uri for event in events if event.change is Change.RESOURCE} == {peer.uri}

    run(body())


def test_what_is_wanted_no_more_is_heard_no_more(peer: Peer) -> None:
    """The upstream is told, and what another wish asks for is heard still."""

    async def body() -> None:
        async with heard(peer) as (alpha, events):
            alpha.client.want(ANYONE, Wanted(uris=frozenset({peer.uri})))
            await until(lambda: alpha.client.status.listening == 1)
            other = peer.other.replace("edit/", "")
            alpha.client.want(ANYONE, Wanted(uris=frozenset({other})))
            await asyncio.sleep(2)
            await alpha.read(peer.edit)
            await alpha.read(peer.other)
            await until(lambda: Event("alpha", Change.RESOURCE, other) in events)
            assert Event("alpha", Change.RESOURCE, peer.uri) not in events
            alpha.client.want(ANYONE, Wanted())
            await until(lambda: alpha.client.status.listening == 0)

    run(body())
