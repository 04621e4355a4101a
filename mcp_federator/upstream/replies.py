"""What a POST to an upstream brings back: one JSON text, or an event stream that carries the response.

What may not come in: what a response means.

Hazards:
- Bytes are counted after decompression, as they come; events are bounded with them.
- A stream may be all lines and no bytes: what came at once is looked at in slices, between which others run.
- A legacy stream may carry requests of the server among what it says; it may wait for their answers.
"""

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import Final

import aiohttp

from mcp_federator.aside import aside
from mcp_federator.protocol import legacy, sse
from mcp_federator.protocol.jsonrpc import Reply, decode_message, decode_reply
from mcp_federator.upstream.limits import Lease
from mcp_federator.upstream.transport import NO_ENDPOINT, Call

LINGER: Final = 1.0
"""Seconds an event stream may take to end after the reply, so that its connection can be used again."""

_MAX_FIRST_EVENT: Final = 64 << 10

_SLICE: Final = 4 << 10

Hear = Callable[[bytes], Awaitable[None]]
"""Takes what a legacy server says of its own accord."""


async def read(response: aiohttp.ClientResponse, call: Call, lease: Lease, hear: Hear) -> Reply:
    """The response to our call; raises ValueError where what comes is something else."""
    match response.content_type:
        case "application/json":
            body = await _whole(response, lease)
            if not call.legacy:
                return await aside(len(body), lambda body: decode_reply(body, call.id), body)
            reply = await _from_legacy(body, call.id, hear)
            if reply is None:
                raise ValueError("the message is no response")
            return reply
        case "text/event-stream":
            return await _from_stream(response, call, lease, hear)
        case other:
            hint = f", {NO_ENDPOINT}" if other == "text/html" else ""
            raise ValueError(f"HTTP {response.status} with content type {other}{hint}")


async def to_end(response: aiohttp.ClientResponse) -> None:
    """Read what comes after the reply, for a while."""
    with suppress(TimeoutError, aiohttp.ClientError):
        async with asyncio.timeout(LINGER):
            while await response.content.readany():
                pass


async def names_endpoint(response: aiohttp.ClientResponse) -> bool:
    """Whether a stream opens as that of the transport of 2024-11-05 does; raises ValueError for no stream."""
    if response.content_type != "text/event-stream":
        return False
    decoder = sse.Decoder(_MAX_FIRST_EVENT)
    while chunk := await response.content.readany():
        for event in decoder.feed(chunk):
            return event.event == "endpoint"
    return False


async def _whole(response: aiohttp.ClientResponse, lease: Lease) -> bytes:
    chunks = []
    while chunk := await response.content.readany():
        lease.take(len(chunk))
        chunks.append(chunk)
    return b"".join(chunks)


async def _from_stream(response: aiohttp.ClientResponse, call: Call, lease: Lease, hear: Hear) -> Reply:
    """The response among the messages of a stream; a modern server's notifications concern the call alone."""
    decoder = sse.Decoder(lease.limit)
    while chunk := await response.content.readany():
        lease.take(len(chunk))
        for start in range(0, len(chunk), _SLICE):
            for event in decoder.feed(chunk[start : start + _SLICE]):
                if event.event != "message":
                    continue
                if call.legacy:
                    reply = await _from_legacy(event.data, call.id, hear)
                else:
                    reply = await _message(event.data, call.id)
                if reply is not None:
                    return reply
            if start:
                await asyncio.sleep(0)
    raise ValueError("the stream ended without an answer")


async def _from_legacy(body: bytes, number: int, hear: Hear) -> Reply | None:
    """The response among the messages of a body or an event; requests are answered in their order."""
    found = None
    for message in await aside(len(body), legacy.messages, body):
        reply = await _message(message, number)
        if reply is not None:
            found = reply
        else:
            await hear(message)
    return found


async def _message(body: bytes, number: int) -> Reply | None:
    return await aside(len(body), lambda body: decode_message(body, number), body)
