"""Modern requests as a client would send them: bytes and header fields."""

import json
from dataclasses import dataclass, field

VERSION = "2026-07-28"
META = {
    "io.modelcontextprotocol/protocolVersion": VERSION,
    "io.modelcontextprotocol/clientInfo": {"name": "benchmarks", "version": "1"},
    "io.modelcontextprotocol/clientCapabilities": {},
}


@dataclass(frozen=True)
class Message:
    """One POST."""

    body: str
    headers: dict[str, str] = field(default_factory=dict)


def message(method: str, **params: str) -> Message:
    """A request; a read's URI must be ASCII without what needs the header's base64 form."""
    request = {"jsonrpc": "2.0", "id": 1, "method": method, "params": {"_meta": META, **params}}
    headers = {
        "Content-Type": "application/json",
        "Accept": "application/json, text/event-stream",
        "MCP-Protocol-Version": VERSION,
        "Mcp-Method": method,
    }
    if "uri" in params:
        headers["Mcp-Name"] = params["uri"]
    return Message(json.dumps(request, separators=(",", ":")), headers)
