"""A legacy server, written with the last release of the SDK that speaks only 2025 revisions (mcp 1.30).

Runs in an environment of its own, for the SDK's two generations cannot share one: `python server.py stdio`,
or `python server.py http PORT`, which prints one line when it listens.  Ten resources on pages of four, and a
template whose variable is completed; a read of anything else is -32002, but for two kinds of names.
`file:///notes/new…` makes the note and tells that the list has changed; `file:///notes/edit/N.md` changes
note N and tells whoever subscribed to it.
"""

import base64
import socket
import sys

import anyio
import uvicorn
from mcp import types
from mcp.server.lowlevel import Server
from mcp.server.lowlevel.helper_types import ReadResourceContents
from mcp.server.stdio import stdio_server
from mcp.server.streamable_http_manager import StreamableHTTPSessionManager
from mcp.shared.exceptions import McpError

TEXTS = {f"file:///notes/{n}.md": f"note {n}" for n in range(9)}
TEMPLATE = "file:///notes/{n}.md"
BLOB = "data://blob/logo"
PAGE = 4

SUBSCRIBED: dict[str, list] = {}


class Telling(Server):
    def get_capabilities(self, *arguments):
        # The SDK declares neither, whatever a server does.
        capabilities = super().get_capabilities(*arguments)
        capabilities.resources.subscribe = capabilities.resources.listChanged = True
        return capabilities


server: Server = Telling("legacy", version="1.0")


@server.subscribe_resource()
async def subscribe(uri) -> None:
    SUBSCRIBED.setdefault(str(uri), []).append(server.request_context.session)


@server.unsubscribe_resource()
async def unsubscribe(uri) -> None:
    SUBSCRIBED.pop(str(uri), None)


@server.list_resources()
async def list_resources(request: types.ListResourcesRequest) -> types.ListResourcesResult:
    first = int(request.params.cursor) if request.params and request.params.cursor else 0
    every = [*TEXTS, BLOB]
    return types.ListResourcesResult(
        resources=[types.Resource(uri=uri, name=uri) for uri in every[first : first + PAGE]],
        nextCursor=str(first + PAGE) if first + PAGE < len(every) else None,
    )


@server.list_resource_templates()
async def list_templates() -> list[types.ResourceTemplate]:
    return [types.ResourceTemplate(uriTemplate=TEMPLATE, name="note")]


@server.read_resource()
async def read_resource(uri) -> list[ReadResourceContents]:
    if str(uri) == BLOB:
        return [ReadResourceContents(content=base64.b64decode("H4sIAAAA"), mime_type="application/gzip")]
    if str(uri).startswith("file:///notes/new"):
        TEXTS[str(uri)] = "new note"
        await server.request_context.session.send_resource_list_changed()
    if str(uri).startswith("file:///notes/edit/"):
        note = str(uri).replace("edit/", "")
        TEXTS[note] += "!"
        for session in SUBSCRIBED.get(note, []):
            await session.send_resource_updated(note)
        return [ReadResourceContents(content="done", mime_type="text/plain")]
    if str(uri) not in TEXTS:
        raise McpError(types.ErrorData(code=-32002, message="Resource not found", data={"uri": str(uri)}))
    return [ReadResourceContents(content=TEXTS[str(uri)], mime_type="text/markdown")]


@server.completion()
async def complete(ref, argument, _context) -> types.Completion | None:
    if (getattr(ref, "uri", None), argument.name) != (TEMPLATE, "n"):
        return None
    values = [str(n) for n in range(len(TEXTS)) if str(n).startswith(argument.value)]
    return types.Completion(values=values, total=len(values), hasMore=False)


async def stdio() -> None:
    async with stdio_server() as (read, write):
        await server.run(read, write, server.create_initialization_options())


async def http(port: int) -> None:
    manager = StreamableHTTPSessionManager(server)
    listening = socket.create_server(("127.0.0.1", port))
    config = uvicorn.Config(manager.handle_request, log_level="error", lifespan="off", interface="asgi3")
    print(f"legacy listens on http://127.0.0.1:{listening.getsockname()[1]}/mcp", flush=True)
    async with manager.run():
        await uvicorn.Server(config).serve(sockets=[listening])


if __name__ == "__main__":
    if sys.argv[1] == "http":
        anyio.run(http, int(sys.argv[2]))
    else:
        anyio.run(stdio)
