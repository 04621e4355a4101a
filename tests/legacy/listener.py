"""A legacy client (mcp 1.30) that listens: `python listener.py URL URI...` prints a line for what it is told.

First `listening` and what the server declares; then `updated URI TEXT`, where the text is what a read made at
once gives, or `list_changed`.  It goes on until it is ended.  Runs in an environment of its own.
"""

import asyncio
import json
import sys

from mcp import ClientSession, types
from mcp.client.streamable_http import streamablehttp_client


async def main(url: str, *uris: str) -> None:
    told = asyncio.Queue()

    async def hear(message) -> None:
        if isinstance(message, types.ServerNotification):
            await told.put(message.root)

    async with (
        streamablehttp_client(url) as (read, write, _),
        ClientSession(read, write, message_handler=hear) as session,
    ):
        begun = await session.initialize()
        for uri in uris:
            await session.subscribe_resource(uri)
        print("listening", json.dumps(begun.capabilities.model_dump(exclude_none=True)))
        while True:
            change = await told.get()
            if isinstance(change, types.ResourceUpdatedNotification):
                contents = (await session.read_resource(change.params.uri)).contents
                print("updated", change.params.uri, contents[0].text)
            elif isinstance(change, types.ResourceListChangedNotification):
                print("list_changed")


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]))
