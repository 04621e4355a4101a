"""A repository behind its client, ready to ask: real parts around it, a clock the test sets."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from mcp_federator.config import Upstream
from mcp_federator.errors import UpstreamError, UpstreamFailure
from mcp_federator.federation.partition import Credentials
from mcp_federator.federation.prefix import Mapping
from mcp_federator.metrics import Metrics
from mcp_federator.model import ANYONE, Answer, Event, Method, Query
from mcp_federator.upstream import Budget, Slots
from mcp_federator.upstream.mounting import Mounted, examine
from mcp_federator.upstream.repository import Repository, opened
from tests.upstream.asking import MAX_TTL, Clock, items, members


class Asker:
    """The client of a repository, and what stands around it."""

    def __init__(self, mounted: Mounted, settings: Upstream) -> None:
        self.clock = Clock()
        self.metrics = Metrics("0")
        self.budget = Budget(256 << 20)
        self.slots = Slots(100)
        self.heard: list[Event] = []
        self.client = Repository(
            "alpha",
            settings,
            mounted=mounted,
            mapping=Mapping("alpha", settings.prefix, settings.native_prefix),
            credentials=Credentials(b"secret", (), ()),
            max_ttl=MAX_TTL,
            metrics=self.metrics,
            clock=self.clock,
            budget=self.budget,
            slots=self.slots,
            changed=self.heard.append,
        )

    async def fetch(self, method: Method, uri: str | None = None, cursor: str | None = None) -> Answer:
        return await self.client.fetch(Query(method, uri=uri, cursor=cursor), ANYONE)

    async def read(self, uri: str = "x:1") -> Any:
        """The contents."""
        return members(await self.fetch(Method.READ, uri))["contents"]

    async def page(self, cursor: str | None = None) -> Any:
        """The items of a page."""
        return items(await self.fetch(Method.LIST, cursor=cursor))

    async def uris(self) -> list[str]:
        """All of the list, less our prefix."""
        uris, cursor = [], None
        while True:
            page = await self.fetch(Method.LIST, cursor=cursor)
            uris += [item["uri"].removeprefix("alpha+") for item in items(page)]
            cursor = page.next_cursor
            if cursor is None:
                return uris

    async def fails(
        self, method: Method = Method.READ, uri: str | None = "x:1", cursor: str | None = None
    ) -> UpstreamFailure:
        try:
            answer = await self.fetch(method, uri, cursor)
        except UpstreamFailure as failure:
            return failure
        raise AssertionError(f"answered: {answer}")

    async def errs(
        self, uri: str | None = "x:1", method: Method = Method.READ, cursor: str | None = None
    ) -> UpstreamError:
        try:
            answer = await self.fetch(method, uri, cursor)
        except UpstreamError as error:
            return error
        raise AssertionError(f"answered: {answer}")


@asynccontextmanager
async def mounted(repository: Any, **settings: Any) -> AsyncIterator[Asker]:
    """Ask this object; nothing of the house is left at the end."""
    asker = Asker(
        examine(repository, "tests:Repo", "upstreams.alpha.repository"),
        Upstream(repository="tests:Repo", **settings),
    )
    await asker.client.start()
    try:
        yield asker
    finally:
        await asker.client.close()
        assert asker.budget.taken == asker.slots.taken == asker.client.status.in_flight == 0


@asynccontextmanager
async def directory(path: object, **settings: Any) -> AsyncIterator[Asker]:
    """Ask the files of a directory."""
    chosen = Upstream(directory=str(path), **settings)
    asker = Asker(await opened("alpha", chosen), chosen)
    await asker.client.start()
    try:
        yield asker
    finally:
        await asker.client.close()


class Repo:
    """Gives what the test says."""

    prefix = "x:"

    def __init__(self, read: Any = "text", list: Any = (), **more: Any) -> None:  # noqa: A002 - the protocol's word
        self._read, self._list = read, list
        self.asked: Any = []
        vars(self).update(more)

    def list(self, cursor: str | None) -> Any:
        self.asked.append(cursor)
        return self._list(cursor) if callable(self._list) else self._list

    def read(self, what: Any) -> Any:
        self.asked.append(what)
        return self._read(what) if callable(self._read) else self._read
