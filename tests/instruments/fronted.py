"""One scripted upstream, `alpha`, behind the whole product, at a time that the test sets; and usual words."""

import asyncio
from collections.abc import AsyncIterator, Callable, Coroutine, Mapping
from contextlib import asynccontextmanager
from itertools import chain
from typing import Any, TypeVar

from tests.instruments.house import House, Reply, house
from tests.instruments.wire import Answer, Answers, Received, Wire, contents, page

T = TypeVar("T")

READ = "resources/read"
LIST = "resources/list"
TEMPLATES = "resources/templates/list"
DISCOVER = "server/discover"
INCOMPLETE = "dev.mcp-federator/incomplete"
URI = "alpha+x://1"
ONE = contents("x://1")
SHELF: dict[str, dict[str, Any]] = {
    READ: ONE,
    LIST: page("x://1"),
    TEMPLATES: {
        "resultType": "complete",
        "resourceTemplates": [{"uriTemplate": "x://{a}", "name": "t"}],
        "ttlMs": 60_000,
        "cacheScope": "public",
    },
}
"""A result of each kind, with one thing in it."""
PARAMS: dict[str, dict[str, Any]] = {READ: {"uri": URI}, LIST: {}, TEMPLATES: {}}

QUICK = {"timeout": 0.3}
"""Where the time-out has to pass."""
NO_CACHE = {"Cache-Control": "no-cache"}
FORWARD = {"forward": ["authorization"]}

HEAD = b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\n\r\n"
"""Of a stream that lasts as long as its connection."""
NOTE = b'data: {"jsonrpc":"2.0","method":"notifications/message","params":{"level":"info","data":"x"}}\n\n'
PROGRESS = (
    b'data: {"jsonrpc":"2.0","method":"notifications/progress","params":{"progressToken":1,"progress":1}}\n\n'
)

PATIENCE = 20.0
"""Seconds after which a test's body is stuck."""


class Clock:
    """Seconds, as the test says."""

    def __init__(self) -> None:
        self.now = 1000.0

    def __call__(self) -> float:
        return self.now


def run(body: Coroutine[Any, Any, T]) -> T:
    """Run a test's body to its end, within bounds; a task left over is a failure."""

    async def alone() -> T:
        async with asyncio.timeout(PATIENCE):
            result = await body
        left = asyncio.all_tasks() - {asyncio.current_task()}
        assert not left, f"left over: {left}"
        return result

    return asyncio.run(alone())


@asynccontextmanager
async def fronted(
    answers: Mapping[str, Answers] | Answer,
    settings: Mapping[str, Any] | None = None,
    *,
    clock: Clock | None = None,
    probed: bool = True,
    **sections: Any,
) -> AsyncIterator[tuple[House, Wire]]:
    """A federator over `alpha`, which gives these answers; `settings` are its part of the configuration."""
    async with Wire(answers) as wire:
        alpha = {"url": wire.url, **(settings or {})}
        async with house({"alpha": alpha}, probed=probed, clock=clock or Clock(), **sections) as it:
            yield it, wire


def choosing(choose: Callable[[Received], Answer]) -> Answer:
    """An answer that is chosen when the request is there."""
    return lambda request: choose(request)(request)


async def waiting(it: House, count: int) -> None:
    """Until so many requests wait in the federator for an answer; each look is a round trip."""
    while (await it.status())["in_flight"] != count:
        pass


def after(go: asyncio.Event, answer: Answer) -> Answer:
    """An answer that waits for an event."""
    return lambda request: chain([go], answer(request))


def failed(reply: Reply, reason: str, upstream: str = "alpha", **data: Any) -> None:
    """The reply says which upstream failed and why, and nothing else of what the upstream said."""
    assert (reply.status, reply.error["code"]) == (200, -32603)
    assert reply.error["data"] == {"upstream": upstream, "reason": reason, **data}


def shown(reply: Reply) -> list[Any]:
    """The items or contents of a reply."""
    result = reply.result
    return list(result.get("contents") or result.get("resources") or result.get("resourceTemplates") or [])


def text(reply: Reply) -> str:
    """The first text of a read."""
    return str(reply.result["contents"][0]["text"])


def bearer(token: str) -> dict[str, str]:
    """The header field that says who asks."""
    return {"Authorization": f"Bearer {token}"}
