"""H31 for real clients of every era: what they are told of changes, and what they read then.

What upstreams say is put in where the product hears it.
"""

import asyncio
import json
import signal
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest
from mcp.client.subscriptions import ResourcesListChanged, ResourceUpdated

from mcp_federator.model import Change, Event, Offers, Wanted
from mcp_federator.upstream.client import Client
from tests.instruments import clients, legacy
from tests.instruments.clients import MODERN
from tests.instruments.fronted import LIST, READ, run
from tests.instruments.house import House, house
from tests.instruments.processes import Child, child
from tests.instruments.wire import Wire, contents, page, result

URI = "alpha+x://1"
DECLARED = {"subscribe": True, "listChanged": True}
PATIENCE = 20.0

LISTENERS = {
    "python-legacy": [legacy.PYTHON, "-u", str(legacy.ROOT / "tests/legacy/listener.py")],
    "typescript": ["node", str(legacy.NODE_FOLDER / "listener.mjs"), "modern"],
    "typescript-legacy": ["node", str(legacy.NODE_FOLDER / "listener.mjs"), "legacy"],
    "typescript-1": ["node", str(legacy.NODE_FOLDER / "listener.mjs"), "sdk1"],
}


@pytest.fixture(autouse=True)
def wanted(monkeypatch: pytest.MonkeyPatch) -> list[Wanted]:
    """What the upstream was told is wanted of it; it tells of everything."""
    told: list[Wanted] = []
    monkeypatch.setattr(Client, "want", lambda _it, _caller, wish: told.append(wish))
    monkeypatch.setattr(Client, "offers", property(lambda _: Offers(lists=True, resources=True)))
    return told


def say(it: House, change: Change, uri: str | None = None) -> None:
    """The upstream says that something changed, as the product hears it."""
    federation = it.app._federation
    federation.hub.heard(federation._stacks["alpha"].voice, Event("alpha", change, uri))


@asynccontextmanager
async def changing() -> AsyncIterator[tuple[House, Wire]]:
    """A federator before an upstream whose resource has another text at each read."""
    reads = [result(contents("x://1", f"v{number}", ttl=3_600_000)) for number in range(1, 4)]
    async with Wire({READ: reads, LIST: result(page("x://1"))}) as wire, house({"alpha": wire.url}) as it:
        assert (await it.read(URI)).result["contents"][0]["text"] == "v1"
        yield it, wire


async def until_wanted(it: House, wanted: list[Wanted], *, uris: frozenset[str]) -> None:
    async with asyncio.timeout(PATIENCE):
        while not wanted or wanted[-1].uris != uris:
            await it.status()


@pytest.mark.parametrize("mode", ["auto", MODERN])
def test_H31_a_python_client_listens(mode: str, wanted: list[Wanted]) -> None:
    """It is told in public URIs, reads what is new, and sees the end as one in order."""

    async def body() -> None:
        async with changing() as (it, wire), clients.sdk(it.url, mode=mode) as reader:
            client = reader.client  # type: ignore[attr-defined] # the instrument's own
            listened = client.listen(resources_list_changed=True, resource_subscriptions=[URI, "nope+x://1"])
            async with listened as events, asyncio.timeout(PATIENCE):
                assert events.honored.resources_list_changed is True
                assert events.honored.resource_subscriptions == [URI]
                say(it, Change.RESOURCE, "x://1")
                assert await anext(events) == ResourceUpdated(uri=URI)
                assert (await reader.read(URI)).contents[0].text == "v2"  # type: ignore[union-attr] # a text
                say(it, Change.LIST)
                assert await anext(events) == ResourcesListChanged()
                say(it, Change.RESOURCE, "x://1/part")
                assert await anext(events) == ResourceUpdated(uri=URI + "/part")
                it.app._endpoint.drain()
                assert [event async for event in events] == []
            assert len(wire.calls(READ)) == 2
            if mode == "auto":
                declared = reader.capabilities.resources
                assert declared is not None
                assert declared.model_dump(by_alias=True, exclude_none=True) == DECLARED
            assert wanted[1] == Wanted(lists=True, uris=frozenset({"x://1"}))

    run(body())


@pytest.mark.parametrize(
    "kind",
    [pytest.param(kind, marks=[] if kind == "python-legacy" else legacy.needs_node) for kind in LISTENERS],
)
def test_H31_any_client_listens(kind: str, wanted: list[Wanted]) -> None:
    """It is told of what it asked for in public URIs, and the read it makes then is new."""

    async def body() -> None:
        async with changing() as (it, wire):
            with child(*LISTENERS[kind], it.url, URI) as listener:
                found = await said(listener, r"(?m)^listening (.*)$")
                assert json.loads(found)["resources"] == DECLARED
                await until_wanted(it, wanted, uris=frozenset({"x://1"}))
                say(it, Change.RESOURCE, "x://2")
                say(it, Change.RESOURCE, "x://1")
                await said(listener, rf"(?m)^updated {URI.replace('+', '[+]')} (v2)$")
                say(it, Change.LIST)
                await said(listener, r"(?m)^(list_changed)$")
                if kind == "typescript":
                    it.app._endpoint.drain()
                    assert await said(listener, r"(?m)^closed (.*)$") == "graceful"
                assert "x://2" not in listener.output
            assert len(wire.calls(READ)) == 2

    run(body())


@legacy.needs_node
def test_H38_a_typescript_client_ends_its_stream(wanted: list[Wanted]) -> None:
    """By closing it and posting a cancellation without `Mcp-Method`, which is accepted; nothing is left."""

    async def body() -> None:
        async with changing() as (it, _):
            with child(*LISTENERS["typescript"], it.url, URI) as listener:
                await said(listener, r"(?m)^(listening)")
                assert await it.samples("mcp_federator_listeners") == 1
                listener.signal(signal.SIGUSR1)
                await said(listener, r"(?m)^(unsubscribed)$")
                assert await said(listener, r"(?m)^closed (.*)$") == "local"
                async with asyncio.timeout(PATIENCE):
                    while await it.samples("mcp_federator_listeners"):
                        pass
                assert "Error" not in listener.output
            assert len(wanted) > 1

    run(body())


async def said(listener: Child, pattern: str) -> str:
    """What the listener printed, once it has."""
    found = await asyncio.to_thread(listener.wait_for, pattern, PATIENCE)
    return found[1]
