"""A legacy client (mcp 1.30) lists and reads everything: `python client.py URL` prints one JSON object.

`{"version", "resources": [uri], "templates": [uriTemplate], "reads": {uri: contents}, "completions":
{uriTemplate: values}, "missing": code}`, where `completions` are of each template's first variable, if the
server declares them, and `missing` is the error code of a read of what is not there.  Runs in an environment
of its own, like `server.py`.
"""

import asyncio
import json
import re
import sys

from mcp import ClientSession, types
from mcp.client.streamable_http import streamablehttp_client
from mcp.shared.exceptions import McpError


async def everything(call, key):
    found, cursor = [], None
    while True:
        page = await call(cursor)
        found += getattr(page, key)
        cursor = page.nextCursor
        if cursor is None:
            return found


async def main(url: str) -> None:
    async with streamablehttp_client(url) as (read, write, _), ClientSession(read, write) as session:
        begun = await session.initialize()
        resources = await everything(session.list_resources, "resources")
        templates = await everything(session.list_resource_templates, "resourceTemplates")
        reads = {}
        for resource in resources:
            contents = (await session.read_resource(resource.uri)).contents
            reads[str(resource.uri)] = [one.model_dump(mode="json", exclude_none=True) for one in contents]
        completions = {}
        for template in templates if begun.capabilities.completions else ():
            ref = types.ResourceTemplateReference(type="ref/resource", uri=template.uriTemplate)
            name = re.search(r"\{\W?(\w+)", template.uriTemplate)[1]
            found = await session.complete(ref, {"name": name, "value": ""})
            completions[template.uriTemplate] = found.completion.values
        missing = None
        try:
            await session.read_resource(f"{resources[0].uri}-not-there")
        except McpError as error:
            missing = error.error.code
        print(
            json.dumps(
                {
                    "version": begun.protocolVersion,
                    "resources": [str(resource.uri) for resource in resources],
                    "templates": [template.uriTemplate for template in templates],
                    "reads": reads,
                    "completions": completions,
                    "missing": missing,
                }
            )
        )


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1]))
