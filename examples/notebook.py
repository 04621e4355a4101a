"""An MCP server over stdio, of the 2025 revisions, in plain Python without any library.

It shows how little there is to stdio: a JSON-RPC message on each line, requests in, answers out, the log on
stderr.  `mcp-federator list -- python3 examples/notebook.py` asks it directly.
"""

import json
import sys
from typing import Any

from answering import Answers, page, text

NOTES = {
    "monday": "Water the plants.",
    "tuesday": "Call the plumber about the cold tap.",
    "wednesday": "Market: leeks, eggs, thread.",
    "thursday": "Return the ladder.",
    "friday": "Sharpen the saw.",
    "saturday": "Oil the bicycle.",
    "sunday": "Nothing.",
}


def read(params: dict[str, Any]) -> dict[str, Any]:
    """The note of a day."""
    uri = params.get("uri")
    scheme, _, day = str(uri).partition(":")
    return text(uri, NOTES.get(day) if scheme == "note" else None)


answers = Answers(
    "notebook",
    {
        "resources/list": lambda params: page(
            [{"uri": f"note:{day}", "name": f"the note of {day}", "mimeType": "text/plain"} for day in NOTES],
            params,
        ),
        "resources/templates/list": lambda _: {
            "resourceTemplates": [{"uriTemplate": "note:{day}", "name": "the note of a day"}]
        },
        "resources/read": read,
    },
)


def main() -> None:
    """Answer until stdin ends."""
    for line in sys.stdin:
        message = json.loads(line)
        if "id" in message and "method" in message:
            print(json.dumps({"jsonrpc": "2.0", "id": message["id"], **answers(message)}), flush=True)


if __name__ == "__main__":
    main()
