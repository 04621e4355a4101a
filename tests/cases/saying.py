"""What `alpha` says, given as members of a result, and what a client then gets, as text."""

import json
from collections.abc import AsyncIterator, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from typing import Any

from mcp_types.methods import validate_server_result

from tests.instruments.fronted import Clock, fronted
from tests.instruments.house import House, Reply, house
from tests.instruments.wire import Answer, Wire, result

READ = "resources/read"
LIST = "resources/list"
TEMPLATES = "resources/templates/list"
INCOMPLETE = "dev.mcp-federator/incomplete"
HINTS = '"resultType":"complete","ttlMs":60000,"cacheScope":"public"'


def said(members: str) -> Answer:
    """A complete result with these members, as they are spelt."""
    return result(f"{{{members},{HINTS}}}".encode())


def valid(reply: Reply, method: str) -> dict[str, Any]:
    """The result, which the official types accept."""

    def refuse(constant: str) -> None:
        raise AssertionError(f"{constant} is no JSON")

    found: dict[str, Any] = json.loads(reply.body, parse_constant=refuse)["result"]
    validate_server_result(method, "2026-07-28", found)
    return found


async def asked(it: House, wire: Wire, method: str, params: Mapping[str, Any] | None = None) -> str:
    """The reply as text, which is the same from upstream and from the cache."""
    first, second = await it.post(method, params), await it.post(method, params)
    assert ("fwd=miss" in first.cache_status, "hit" in second.cache_status) == (True, True)
    assert len(wire.calls(method)) == 1
    assert first.body == second.body
    valid(first, method)
    return first.body.decode()


async def read_as(members: str, *, uri: str = "x://1") -> str:
    """The reply to a read, where an upstream gives this result."""
    async with fronted({READ: said(members)}) as (it, wire):
        return await asked(it, wire, READ, {"uri": "alpha+" + uri})


async def listed_as(items: str, method: str = LIST) -> str:
    """The reply to a list, where an upstream gives these items."""
    name = "resources" if method == LIST else "resourceTemplates"
    async with fronted({method: said(f'"{name}":[{items}]')}) as (it, wire):
        return await asked(it, wire, method)


GOOD = '{"uri":"good","name":"n"}'


@asynccontextmanager
async def beside(members: str, method: str = LIST) -> AsyncIterator[tuple[House, Reply, Reply]]:
    """A page of `odd`, which gives this result, and of `fine`; from upstream and from the cache."""
    items, uri = ("resources", "uri") if method == LIST else ("resourceTemplates", "uriTemplate")
    fine = f'"{items}":[{GOOD.replace("uri", uri)}]'
    async with AsyncExitStack() as open_:
        wires = {
            name: await open_.enter_async_context(Wire({method: said(text)}))
            for name, text in (("odd", members), ("fine", fine))
        }
        it = await open_.enter_async_context(
            house({name: wire.url for name, wire in wires.items()}, clock=Clock())
        )
        first, second = await it.page(None, method), await it.page(None, method)
        assert valid(first, method)[items] == valid(second, method)[items]
        yield it, first, second
