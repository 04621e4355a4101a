"""Somebody's desk: what lies on it changes with every look, is private, and good for ten seconds.

Each read says how often it was really read, so a copy from a cache is seen at once: the number stands still.
The SDK's high-level server is enough here: hints are given once for each method.
"""

from itertools import count

from mcp.server.caching import CacheHint
from mcp.server.mcpserver import MCPServer

from serving import port, serve

SOON = CacheHint(ttl_ms=10_000, scope="private")

server = MCPServer(
    "desk",
    version="1.0",
    log_level="WARNING",
    cache_hints={"resources/list": SOON, "resources/templates/list": SOON, "resources/read": SOON},
)
looks = count(1)


@server.resource("desk://clock", title="Clock")
def clock() -> str:
    """How often somebody really looked at the clock or at a note."""
    return f"look number {next(looks)}"


@server.resource("desk://inbox", title="Inbox", mime_type="application/json")
def inbox() -> dict[str, int]:
    """One letter more with each look."""
    return {"unread": next(looks)}


@server.resource("desk://notes/{name}", title="Note")
def note(name: str) -> str:
    """A note of any name."""
    return f"{name}: look number {next(looks)}"


if __name__ == "__main__":
    serve("desk", server.streamable_http_app(), port(9102))
