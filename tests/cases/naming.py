"""Upstreams with URIs of their own, and what is read of them."""

from collections.abc import AsyncIterator, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from typing import Any

from mcp_federator.protocol.headers import decode_name
from tests.instruments.house import House, Reply, house
from tests.instruments.wire import Wire, by_uri, contents, page, result

READ = "resources/read"
LIST = "resources/list"
TEMPLATES = "resources/templates/list"


@asynccontextmanager
async def named(
    upstreams: Mapping[str, list[str]], settings: Mapping[str, Any] | None = None
) -> AsyncIterator[tuple[House, dict[str, Wire]]]:
    """A federator over upstreams of these names, each with its URIs; a text is name and URI."""
    async with AsyncExitStack() as open_:
        wires = {}
        for name, uris in upstreams.items():
            reads = by_uri({uri: contents(uri, f"{name} {uri}") for uri in uris})
            wires[name] = await open_.enter_async_context(Wire({LIST: result(page(*uris)), READ: reads}))
        configuration = {name: {"url": wire.url, **(settings or {})} for name, wire in wires.items()}
        yield await open_.enter_async_context(house(configuration)), wires


@asynccontextmanager
async def shelves(
    *lists: list[str], settings: Mapping[str, Any] | None = None
) -> AsyncIterator[tuple[House, list[Wire]]]:
    """The same over `alpha` and `beta`."""
    async with named(dict(zip(("alpha", "beta"), lists, strict=False)), settings) as (it, wires):
        yield it, list(wires.values())


def read_uris(wire: Wire) -> list[str]:
    """The URIs that reached an upstream, which stand alike in its body and in its header."""
    calls = wire.calls(READ)
    assert [decode_name(call.header("mcp-name") or "") for call in calls] == [
        call.params["uri"] for call in calls
    ]
    return [call.params["uri"] for call in calls]


def only(reply: Reply) -> tuple[str, str]:
    """URI and text of what was read."""
    (content,) = reply.result["contents"]
    return content["uri"], content["text"]


def refused(reply: Reply, uri: str) -> None:
    """The reply says that there is no such resource, and names it as it was asked for."""
    assert (reply.status, reply.error["code"]) == (200, -32602)
    assert reply.error["data"] == {"uri": uri}
