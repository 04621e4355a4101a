"""An MCP server over stdio, of the 2025 revisions, in plain Python without any library.

It shows how little there is to stdio: a JSON-RPC message on each line, requests in, answers out, the log on
stderr.  `mcp-federator list -- python3 examples/notebook.py` asks it directly.
"""

import json
import re
import sys
from typing import Any

VERSIONS = ("2025-11-25", "2025-06-18", "2025-03-26")
PAGE = 4
NOTES = {
    "monday": "Water the plants.",
    "tuesday": "Call the plumber about the cold tap.",
    "wednesday": "Market: leeks, eggs, thread.",
    "thursday": "Return the ladder.",
    "friday": "Sharpen the saw.",
    "saturday": "Oil the bicycle.",
    "sunday": "Nothing.",
}
URI = "note:{day}"


class Refusal(Exception):  # noqa: N818 - the answer is one
    """A JSON-RPC error: code, message, data."""


def initialize(params: dict[str, Any]) -> dict[str, Any]:
    """The handshake: the version the client wants where we speak it, else our newest."""
    asked = params.get("protocolVersion")
    return {
        "protocolVersion": asked if asked in VERSIONS else VERSIONS[0],
        "capabilities": {"resources": {}},
        "serverInfo": {"name": "notebook", "version": "1.0"},
    }


def list_resources(params: dict[str, Any]) -> dict[str, Any]:
    """One page; its cursor is where the next one begins."""
    cursor = params.get("cursor", "0")
    if not re.fullmatch("[0-9]{1,3}", cursor):
        raise Refusal(-32602, "no cursor of ours", None)
    start, days = int(cursor), list(NOTES)
    page = [
        {"uri": URI.format(day=day), "name": f"the note of {day}", "mimeType": "text/plain"}
        for day in days[start : start + PAGE]
    ]
    more = {"nextCursor": str(start + PAGE)} if start + PAGE < len(days) else {}
    return {"resources": page, **more}


def list_templates(_: dict[str, Any]) -> dict[str, Any]:
    """The one template there is."""
    return {"resourceTemplates": [{"uriTemplate": URI, "name": "the note of a day"}]}


def read(params: dict[str, Any]) -> dict[str, Any]:
    """The note of a day."""
    uri = params.get("uri", "")
    text = NOTES.get(uri.removeprefix("note:")) if uri.startswith("note:") else None
    if text is None:
        raise Refusal(-32002, "Resource not found", {"uri": uri})
    return {"contents": [{"uri": uri, "mimeType": "text/plain", "text": text}]}


METHODS = {
    "initialize": initialize,
    "ping": lambda _: {},
    "resources/list": list_resources,
    "resources/templates/list": list_templates,
    "resources/read": read,
}


def answer(message: dict[str, Any]) -> dict[str, Any]:
    """The result or the error of one request."""
    method = METHODS.get(message["method"])
    if method is None:
        return {"error": {"code": -32601, "message": "Method not found"}}
    try:
        return {"result": method(message.get("params", {}))}
    except Refusal as refusal:
        code, text, data = refusal.args
        return {"error": {"code": code, "message": text, **({} if data is None else {"data": data})}}


def main() -> None:
    """Answer until stdin ends."""
    for line in sys.stdin:
        message = json.loads(line)
        if "id" in message and "method" in message:
            print(json.dumps({"jsonrpc": "2.0", "id": message["id"], **answer(message)}), flush=True)


if __name__ == "__main__":
    main()
