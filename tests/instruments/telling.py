"""A modern server that tells of its changes, written with the SDK: `python telling.py stdio`, or `http PORT`.

A read of `tell://edit/NAME` changes `tell://NAME` and tells so; one of `tell://new/NAME` makes it, and tells
that the list is another one.  Its hints say that all may be kept for an hour.
"""

import asyncio
import socket
import sys
from typing import Any

import uvicorn
from mcp.server.lowlevel import Server
from mcp.server.stdio import stdio_server
from mcp.server.subscriptions import InMemorySubscriptionBus, ListenHandler
from mcp.shared.exceptions import MCPError
from mcp.shared.subscriptions import ResourcesListChanged, ResourceUpdated
from mcp_types import (
    INVALID_PARAMS,
    ListResourcesResult,
    ReadResourceRequestParams,
    ReadResourceResult,
    Resource,
    TextResourceContents,
)

HOUR = 3_600_000
TEXTS = {"tell://a": "a 1", "tell://b": "b 1"}

bus = InMemorySubscriptionBus()


async def on_list(*_: Any) -> ListResourcesResult:
    items = [Resource(uri=uri, name=uri) for uri in TEXTS]
    return ListResourcesResult(resources=items, ttl_ms=HOUR, cache_scope="public")


async def on_read(_: Any, params: ReadResourceRequestParams) -> ReadResourceResult:
    what, _, name = params.uri.removeprefix("tell://").partition("/")
    uri = f"tell://{name or what}"
    if what == "edit":
        text, _, number = TEXTS[uri].partition(" ")
        TEXTS[uri] = f"{text} {int(number) + 1}"
        await bus.publish(ResourceUpdated(uri=uri))
    elif what == "new":
        TEXTS[uri] = f"{name} 1"
        await bus.publish(ResourcesListChanged())
    if uri not in TEXTS:
        raise MCPError(INVALID_PARAMS, "Resource not found", {"uri": params.uri})
    part = TextResourceContents(uri=params.uri, text=TEXTS[uri])
    return ReadResourceResult(contents=[part], ttl_ms=0 if name else HOUR, cache_scope="public")


server: Server[Any] = Server(
    "telling",
    version="1.0",
    on_list_resources=on_list,
    on_read_resource=on_read,
    on_subscriptions_listen=ListenHandler(bus),
)


async def over_stdio() -> None:
    async with stdio_server() as (read, write):
        await server.run(read, write, server.create_initialization_options())


def over_http(port: int) -> None:
    listening = socket.create_server(("127.0.0.1", port))
    config = uvicorn.Config(server.streamable_http_app(), log_level="error")
    sys.stdout.write(f"telling listens on http://127.0.0.1:{listening.getsockname()[1]}/mcp\n")
    sys.stdout.flush()
    uvicorn.Server(config).run(sockets=[listening])


if __name__ == "__main__":
    if sys.argv[1] == "http":
        over_http(int(sys.argv[2]))
    else:
        asyncio.run(over_stdio())
