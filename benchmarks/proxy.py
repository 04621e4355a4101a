"""The baseline of the miss ratio: the least that an aiohttp reverse proxy can do.

It passes the body and the end-to-end header fields on, reads the answer whole, and passes it back.
"""

import argparse

import uvloop
from aiohttp import ClientSession, ClientTimeout, TCPConnector, web
from multidict import CIMultiDict

from benchmarks.bare import serve

HOP_BY_HOP = ("host", "content-length", "connection", "transfer-encoding")


async def main() -> None:
    """Pass every request on until the process is ended."""
    parser = argparse.ArgumentParser()
    parser.add_argument("url")
    url = parser.parse_args().url
    # The federator's own limits, so that both wait for the same things.
    client = ClientSession(
        connector=TCPConnector(limit=64), timeout=ClientTimeout(total=10), auto_decompress=False
    )

    async def handle(request: web.BaseRequest) -> web.Response:
        body = await request.read()
        headers = CIMultiDict(request.headers)
        for name in HOP_BY_HOP:
            headers.popall(name, None)
        async with client.post(url, data=body, headers=headers) as answer:
            return web.Response(
                body=await answer.read(), status=answer.status, content_type=answer.content_type
            )

    async with client:
        await serve(handle)


if __name__ == "__main__":
    uvloop.run(main())
