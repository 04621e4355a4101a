"""Upstreams that list in pages, and what a walk over all of them shows."""

from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from typing import Any

import pytest

from tests.instruments.fronted import Clock
from tests.instruments.house import House, Reply, house
from tests.instruments.wire import (
    Answer,
    Wire,
    by_cursor,
    page,
)

LIST = "resources/list"
READ = "resources/read"
TEMPLATES = "resources/templates/list"
INCOMPLETE = "dev.mcp-federator/incomplete"
ITEMS = {LIST: ("resources", "uri"), TEMPLATES: ("resourceTemplates", "uriTemplate")}
lists = pytest.mark.parametrize("method", [LIST, TEMPLATES], ids=["resources", "templates"])


def listed(method: str, *uris: str, **how: Any) -> dict[str, Any]:
    """A page of either list."""
    items, uri = ITEMS[method]
    members = page(*uris, **how)
    members[items] = [{uri: item["uri"], "name": item["name"]} for item in members.pop("resources")]
    return members


def paged(method: str, *pages: Sequence[str], cursors: Sequence[str] = "123456789", **how: Any) -> Answer:
    """A list on several pages, which knows the cursors that it gave, and no others."""
    at = [None, *cursors[: len(pages) - 1], None]
    return by_cursor(
        {at[number]: listed(method, *uris, cursor=at[number + 1], **how) for number, uris in enumerate(pages)}
    )


def shown(replies: Sequence[Reply], method: str = LIST) -> list[str]:
    """The URIs or templates on these pages."""
    items, uri = ITEMS[method]
    return [item[uri] for reply in replies for item in reply.result[items]]


def cursors(wire: Wire, method: str = LIST) -> list[Any]:
    """The cursors that an upstream was asked with; `None` where the member was missing."""
    assert all(call.params.get("cursor", "") is not None for call in wire.calls(method))
    return [call.params.get("cursor") for call in wire.calls(method)]


def refused(reply: Reply) -> None:
    """The reply says that the cursor is none."""
    assert (reply.status, reply.error["code"]) == (400, -32602)


@asynccontextmanager
async def merged(
    upstreams: Mapping[str, Answer | dict[str, Answer]],
    settings: Mapping[str, Mapping[str, Any]] | None = None,
    *,
    clock: Clock | None = None,
    **sections: Any,
) -> AsyncIterator[tuple[House, dict[str, Wire]]]:
    """A federator over upstreams that answer lists so, or all methods, at a time that stands still."""
    async with AsyncExitStack() as open_:
        wires = {}
        for name, answers in upstreams.items():
            given = answers if isinstance(answers, dict) else {LIST: answers, TEMPLATES: answers}
            wires[name] = await open_.enter_async_context(Wire(given))
        configuration = {
            name: {"url": wire.url, **(settings or {}).get(name, {})} for name, wire in wires.items()
        }
        it = await open_.enter_async_context(house(configuration, clock=clock or Clock(), **sections))
        yield it, wires
