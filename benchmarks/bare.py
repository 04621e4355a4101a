"""The baseline of the hit ratios: the least that an aiohttp handler can do.

It reads the request's body and answers with the bytes of a file: no router, no access log, the federator's
event loop.  Nothing is added to it, or the ratios flatter us.
"""

import argparse
import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path

import uvloop
from aiohttp import web


async def serve(handle: Callable[[web.BaseRequest], Awaitable[web.StreamResponse]]) -> None:
    """Answer with a handler and nothing around it, on a free port that is printed, until the process ends."""
    loop = asyncio.get_running_loop()
    server = await loop.create_server(web.Server(handle, access_log=None), "127.0.0.1", 0, backlog=1024)
    print("listens on", server.sockets[0].getsockname()[1], flush=True)
    await asyncio.Event().wait()


async def main() -> None:
    """Answer every request with the same bytes until the process is ended."""
    parser = argparse.ArgumentParser()
    parser.add_argument("body", type=Path)
    body = parser.parse_args().body.read_bytes()

    async def handle(request: web.BaseRequest) -> web.Response:
        await request.read()
        return web.Response(body=body, content_type="application/json")

    await serve(handle)


if __name__ == "__main__":
    uvloop.run(main())
