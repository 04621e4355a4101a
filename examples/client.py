"""The Python client: what a server has, page after page, and what stands in it.

`python examples/client.py` starts a server of its own over stdio; `python examples/client.py URL` asks the
one at that URL, a running federator for instance.
"""

import asyncio
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from mcp_federator.client import Client, InputRequest, McpError, UpstreamFailure

NOTEBOOK = [sys.executable, str(Path(__file__).parent / "notebook.py")]


def fill_in(request: InputRequest) -> Mapping[str, Any]:
    """Answer a server that wants to know something first: the form's own defaults, or no."""
    fields = request.params.get("requestedSchema", {}).get("properties", {})
    if any("default" not in field for field in fields.values()):
        return {"action": "decline"}
    return {"action": "accept", "content": {name: field["default"] for name, field in fields.items()}}


async def show(server: str | Sequence[str]) -> None:
    """Everything the client can do, once."""
    async with Client(server, timeout="5s") as client:
        status = client.status
        print(f"{status.server or 'a server'} speaks {status.version} ({status.era}) over {status.transport}")

        first = await client.list_page()
        print(f"the first page has {len(first.items)}, to be kept {first.ttl_ms} ms, {first.cache_scope}")

        resources = await client.list_all(max_pages=50)
        print(f"all pages have {len(resources)}")
        for template in await client.list_templates():
            print(f"template {template.uri_template}")

        for resource in resources[:3]:
            result = await client.read_with_input(resource.uri, fill_in, max_rounds=3)
            for content in result.contents:
                print(f"{content.uri}: {len(content.data)} bytes")
        try:
            await client.read("nowhere:at/all")
        except McpError as error:
            print(f"nowhere:at/all: {error.code}")


def main() -> int:
    """Show the server on the command line, or our own."""
    try:
        asyncio.run(show(sys.argv[1] if sys.argv[1:] else NOTEBOOK))
    except UpstreamFailure as failure:
        print(f"no answer: {failure.reason} {failure.detail}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
