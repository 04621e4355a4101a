"""A federator over scripted sources, in virtual time: one that takes three seconds takes none of ours."""

import asyncio
import json
from collections.abc import Coroutine, Mapping
from functools import partial
from typing import Any

import pytest

from mcp_federator.config import Duration, Lists
from mcp_federator.errors import McpError, Reason, UpstreamFailure
from mcp_federator.federation.cursor import Seal
from mcp_federator.federation.merge import ListScope
from mcp_federator.federation.prefix import Mapping as Names
from mcp_federator.federation.scopes import ListScopes
from mcp_federator.federator import Federator, Member
from mcp_federator.metrics import Metrics
from mcp_federator.model import ANYONE, Answer, Caller, Method, Query
from tests.instruments.scripted import Kept, Scripted
from tests.instruments.virtual_time import run

LIST = Method.LIST


class Bench:
    """A federator over named sources, with all that it needs."""

    def __init__(
        self,
        sources: Mapping[str, Scripted],
        *,
        required: tuple[str, ...] = (),
        list_scope: ListScope = "auto",
        window: int = 8,
        request_timeout: float = 30,
        identity: bytes = b"",
        scopes: ListScopes | None = None,
        completes: Mapping[str, bool | None] | None = None,
    ) -> None:
        self.sources = sources
        self.metrics = Metrics("0")
        declared = {**dict.fromkeys(sources, False), **(completes or {})}
        self.dropped: list[tuple[str, Method]] = []
        self.scopes = scopes or ListScopes(86400)
        self.federator = Federator(
            [
                Member(
                    name,
                    source,
                    Names(name),
                    identity or name.encode().ljust(32, b"."),
                    required=name in required,
                    list_scope=list_scope,
                    peek=source.peek if isinstance(source, Kept) else None,
                    still=source.still if isinstance(source, Kept) else None,
                    drop_pages=partial(self._drop, name),
                    completes=partial(declared.get, name),
                )
                for name, source in sources.items()
            ],
            lists=Lists(window=window, soft_deadline=Duration(2)),
            request_timeout=request_timeout,
            seals=Seal([b"secret"]),
            scopes=self.scopes,
            metrics=self.metrics,
            clock=lambda: asyncio.get_running_loop().time(),
        )

    def _drop(self, name: str, method: Method) -> None:
        self.dropped.append((name, method))

    async def page(self, cursor: str | None = None, caller: Caller = ANYONE, method: Method = LIST) -> Answer:
        return await self.federator.fetch(Query(method, cursor=cursor), caller)

    async def walk(self, method: Method = LIST) -> list[list[str]]:
        """The items of each page, to the end."""
        pages: list[list[str]] = []
        cursor = None
        while True:
            answer = await self.page(cursor, method=method)
            pages.append(items(answer))
            cursor = answer.next_cursor
            if cursor is None:
                return pages

    @property
    def calls(self) -> int:
        return sum(len(source.queries) for source in self.sources.values())

    def counted(self, line: str) -> int:
        """The value of one series in the scrape, 0 where there is none."""
        for row in self.metrics.render()[0].decode().splitlines():
            if row.startswith(f"mcp_federator_{line} "):
                return int(float(row.rpartition(" ")[2]))
        return 0


def items(answer: Answer) -> list[str]:
    return answer.body.decode().split(",") if answer.body else []


def now() -> float:
    return asyncio.get_running_loop().time()


def down(name: str, reason: Reason = Reason.UNREACHABLE) -> UpstreamFailure:
    return UpstreamFailure(name, reason, "secret detail")


def refused(call: Coroutine[Any, Any, Answer]) -> McpError:
    """The error that the call ends in."""

    async def main() -> Answer:
        return await call

    with pytest.raises(McpError) as raised:
        run(main())
    return raised.value


def told(error: McpError) -> Any:
    return None if error.data is None else json.loads(error.data)
