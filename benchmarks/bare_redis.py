"""The baseline of a hit out of Redis: the bare handler that runs the same script on the same Redis.

It reads the request's body, has Redis look for an entry as the federator does, the entries of a file in turn,
and answers with the bytes of another.  What Redis gives is read by the same client and not looked at: no
envelope is opened, no tag checked.
"""

import argparse
import json
from itertools import cycle
from pathlib import Path
from secrets import token_bytes
from typing import Any

import uvloop
from aiohttp import web
from redis.asyncio import Redis

from benchmarks.bare import serve
from mcp_federator.cache.envelope import MARK, RANDOM_BYTES
from mcp_federator.cache.scripts import LOOK


async def main() -> None:
    """Answer every request with the same bytes, after a look, until the process is ended."""
    parser = argparse.ArgumentParser()
    parser.add_argument("body", type=Path)
    parser.add_argument("url")
    parser.add_argument("keys", type=Path, help="JSON: of each entry, all keys of its look")
    options = parser.parse_args()
    body = options.body.read_bytes()
    looks = cycle(json.loads(options.keys.read_text()))
    client: Any = Redis.from_url(options.url, protocol=2)
    await client.script_load(LOOK.text)

    async def handle(request: web.BaseRequest) -> web.Response:
        await request.read()
        token, fresh = token_bytes(RANDOM_BYTES), token_bytes(RANDOM_BYTES)
        arguments = (MARK, b"resources", fresh, 300_000, token, 1000, "1", "")
        keys = next(looks)
        found = await client.execute_command("EVALSHA", LOOK.sha, len(keys), *keys, *arguments)
        # The entry is there and fresh, or this is no baseline of a hit.
        assert found[3]
        assert found[7] == b""
        return web.Response(body=body, content_type="application/json")

    await serve(handle)


if __name__ == "__main__":
    uvloop.run(main())
