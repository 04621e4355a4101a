"""A client of one upstream, ready to ask: real parts around it, a clock the test sets, true counts."""

import asyncio
import json
import re
from collections.abc import AsyncIterator, Coroutine
from contextlib import asynccontextmanager
from typing import Any, TypeVar

from mcp_federator.config import Lists, Upstream
from mcp_federator.errors import UpstreamError, UpstreamFailure
from mcp_federator.federation.partition import Credentials
from mcp_federator.federation.prefix import Mapping
from mcp_federator.metrics import Metrics
from mcp_federator.model import ANYONE, Answer, Caller, Method, Query
from mcp_federator.upstream import Budget, Client, Slots
from mcp_federator.upstream.streamable_http import StreamableHttp
from mcp_federator.upstream.transport import Changed, unheard

T = TypeVar("T")

MAX_TTL = 86_400.0
_COUNT = re.compile(
    r'^mcp_federator_upstream_requests_total\{method="(.*)",outcome="(.*)",upstream="alpha"\} (\d+)'
)


def run(body: Coroutine[Any, Any, T]) -> T:
    """Run a test's body to its end; a task it leaves behind is a failure."""

    async def alone() -> T:
        result = await body
        left = asyncio.all_tasks() - {asyncio.current_task()}
        assert not left, f"left over: {left}"
        return result

    return asyncio.run(alone())


class Clock:
    """Seconds, as the test says."""

    def __init__(self) -> None:
        self.now = 1000.0

    def __call__(self) -> float:
        return self.now


class Asker:
    """The client, and what stands around it."""

    def __init__(
        self,
        url: str | None,
        *,
        clock: Clock | None = None,
        budget: int = 256 << 20,
        slots: int = 1000,
        lists: Lists | None = None,
        max_ttl: float = MAX_TTL,
        changed: Changed = unheard,
        **settings: Any,
    ) -> None:
        self.clock = clock or Clock()
        self.metrics = Metrics("0")
        self.budget = Budget(budget)
        self.slots = Slots(slots)
        chosen = Upstream(url=url, **settings)
        self.client = Client(
            "alpha",
            chosen,
            mapping=Mapping("alpha", chosen.prefix, chosen.native_prefix),
            credentials=Credentials(b"secret", chosen.forward, chosen.credential_headers),
            max_ttl=max_ttl,
            metrics=self.metrics,
            clock=self.clock,
            budget=self.budget,
            slots=self.slots,
            lists=lists or Lists(),
            changed=changed,
        )

    @property
    def transport(self) -> StreamableHttp:
        assert isinstance(self.client._transport, StreamableHttp)
        return self.client._transport

    async def read(self, uri: str = "x://1", caller: Caller = ANYONE, **more: Any) -> Answer:
        return await self.client.fetch(Query(Method.READ, uri=uri, **more), caller)

    async def list(self, cursor: str | None = None, caller: Caller = ANYONE) -> Answer:
        return await self.client.fetch(Query(Method.LIST, cursor=cursor), caller)

    async def fails(self, uri: str = "x://1", caller: Caller = ANYONE, **more: Any) -> UpstreamFailure:
        """The failure of a read that gets no answer."""
        try:
            answer = await self.read(uri, caller, **more)
        except UpstreamFailure as failure:
            return failure
        raise AssertionError(f"answered: {answer}")

    async def errs(self, uri: str = "x://1", caller: Caller = ANYONE, **more: Any) -> UpstreamError:
        """The error of a read whose answer is one."""
        try:
            answer = await self.read(uri, caller, **more)
        except UpstreamError as error:
            return error
        raise AssertionError(f"answered: {answer}")

    @property
    def outcomes(self) -> dict[str, int]:
        """How requests ended, probes and handshakes left out."""
        found: dict[str, int] = {}
        for line in self.metrics.render()[0].decode().splitlines():
            if (match := _COUNT.match(line)) and match[1] not in {Method.DISCOVER, "other"}:
                found[match[2]] = found.get(match[2], 0) + int(match[3])
        return found


async def settled(asker: Asker) -> None:
    """Until nothing goes on behind an answer: no probe, and no stream that has still to end."""
    while tasks := [*asker.client._discovery._probes.tasks.values(), *asker.transport._lingering]:
        await asyncio.wait(tasks)
        await asyncio.sleep(0)


def members(answer: Answer) -> Any:
    """The members of an answer to a read."""
    return json.loads(b"{%b}" % answer.body)


def items(answer: Answer) -> Any:
    """The items of an answer to a list."""
    return json.loads(b"[%b]" % answer.body)


@asynccontextmanager
async def asking(url: str | None, **options: Any) -> AsyncIterator[Asker]:
    """A client that has begun to probe; nothing of it is left at the end."""
    asker = Asker(url, **options)
    await asker.client.start()
    try:
        yield asker
    finally:
        await asker.client.close()
        assert asker.budget.taken == asker.slots.taken == asker.client.status.in_flight == 0
