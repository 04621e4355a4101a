"""What comes back is bounded work, and a lot of it leaves the loop to others."""

import asyncio
import json
import threading
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, cast

import pytest

from mcp_federator.aside import LARGE
from mcp_federator.protocol import jsonrpc
from mcp_federator.protocol.text import check_text
from mcp_federator.upstream import replies
from mcp_federator.upstream.limits import Budget
from mcp_federator.upstream.transport import Call
from tests.upstream.asking import run

if TYPE_CHECKING:
    import aiohttp

RESULT = b'{"jsonrpc":"2.0","id":1,"result":{"x":"%b"}}'
NOTE = b'{"jsonrpc":"2.0","method":"notifications/progress"}'


class Response:
    """A response whose body comes in these chunks."""

    def __init__(self, content_type: str, *chunks: bytes) -> None:
        self.status = 200
        self.content_type = content_type
        self.content = self
        self._chunks = list(chunks)

    async def readany(self) -> bytes:
        return self._chunks.pop(0) if self._chunks else b""


async def read(content_type: str, *chunks: bytes, legacy: bool = False) -> jsonrpc.Reply:
    async def hear(message: bytes) -> None:
        assert b"notifications/progress" in message

    response = cast("aiohttp.ClientResponse", Response(content_type, *chunks))
    call = Call(1, "resources/read", b"{}", {}, legacy=legacy)
    with Budget(64 << 20).lease(16 << 20) as lease:
        return await replies.read(response, call, lease, hear)


def event(data: bytes) -> bytes:
    return b"data: %b\n\n" % data


def same(text: bytes) -> bytes:
    return text


def batch(text: bytes) -> bytes:
    return b"[%b,%b]" % (NOTE, text)


@pytest.mark.parametrize("size", [100, LARGE])
@pytest.mark.parametrize(
    ("content_type", "legacy", "put"),
    [
        ("application/json", False, same),
        ("application/json", True, same),
        ("application/json", True, batch),
        ("text/event-stream", False, event),
        ("text/event-stream", True, event),
    ],
    ids=["json", "legacy-json", "batch", "stream", "legacy-stream"],
)
def test_a_large_answer_is_decoded_beside_the_loop(
    size: int,
    content_type: str,
    legacy: bool,
    put: Callable[[bytes], bytes],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """In each of the forms in which it may come; a small one is not worth it."""
    threads: list[threading.Thread] = []

    def checked(text: bytes, **more: Any) -> None:
        if RESULT[:20] in text:
            threads.append(threading.current_thread())
        check_text(text, **more)

    monkeypatch.setattr(jsonrpc, "check_text", checked)

    async def body() -> None:
        reply = await read(content_type, put(RESULT % (b"x" * size)), legacy=legacy)
        assert reply.result is not None
        assert len(json.loads(bytes(reply.result))["x"]) == size
        assert [thread is threading.current_thread() for thread in threads] == [size < LARGE]

    run(body())


def test_others_have_their_turn_while_a_stream_is_read() -> None:
    """However many lines came at once."""

    async def body() -> None:
        turns = 0

        async def others() -> None:
            nonlocal turns
            while True:
                turns += 1
                await asyncio.sleep(0)

        task = asyncio.create_task(others())
        await read("text/event-stream", b"\n" * (64 << 10), event(RESULT % b""))
        task.cancel()
        await asyncio.wait({task})
        assert turns >= 15

    run(body())


@pytest.mark.parametrize(
    "chunk", [b"\n" * 4096, b":\n" * 2048, event(b"") * 512, event(NOTE) * 50], ids=lambda chunk: chunk[:6]
)
def test_a_stream_without_end_is_given_up(chunk: bytes) -> None:
    """Long before it has as many bytes as an answer may have."""

    async def body() -> None:
        with pytest.raises(ValueError, match="lines"):
            await read("text/event-stream", *[chunk] * ((16 << 20) // len(chunk)))

    run(body())
