"""A modern server over stdio, written with the SDK: `python shelf_over_stdio.py`.

Three texts, a blob and a template; an upstream of its own process where `servers` has only HTTP.
"""

from mcp.server.caching import CacheHint
from mcp.server.mcpserver import MCPServer

HINT = CacheHint(ttl_ms=60_000, scope="public")

server = MCPServer(
    "shelf-over-stdio",
    version="1.0",
    log_level="ERROR",
    cache_hints={"resources/list": HINT, "resources/templates/list": HINT, "resources/read": HINT},
)


@server.resource("pipe://a", mime_type="text/plain")
def first() -> str:
    return "text of a\nand its second line"


@server.resource("pipe://b", mime_type="text/plain")
def second() -> str:
    return "text of b: ü, \U0001f600, \u2028"


@server.resource("urn:pipe:c", mime_type="application/json")
def third() -> str:
    return '{"c": [1, 2]}'


@server.resource("pipe://blob", mime_type="application/octet-stream")
def blob() -> bytes:
    return bytes(range(256))


@server.resource("pipe://numbers/{number}")
def numbered(number: str) -> str:
    return f"number {number}"


if __name__ == "__main__":
    server.run("stdio")
