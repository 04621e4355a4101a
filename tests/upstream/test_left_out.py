import asyncio

import pytest

from mcp_federator.model import Method
from mcp_federator.upstream.left_out import TELL_AGAIN, LeftOut
from tests.instruments.house import house
from tests.instruments.wire import Wire, page, result
from tests.upstream.asking import Clock


def test_all_are_counted_and_told_once_in_a_while(caplog: pytest.LogCaptureFixture) -> None:
    """Each method has its own time; an answer in which nothing is left out says nothing."""
    caplog.set_level("INFO")
    clock = Clock()
    left_out = LeftOut("alpha", clock)
    for _ in range(100):
        left_out.add(0, Method.READ)
        left_out.add(2, Method.LIST)
        left_out.add(1, Method.TEMPLATES)
    clock.now += TELL_AGAIN
    left_out.add(3, Method.LIST)

    assert left_out.total == 303
    assert [line.partition(" are")[0] for line in caplog.messages] == [
        "alpha: 2 items in an answer to resources/list",
        "alpha: 1 items in an answer to resources/templates/list",
        "alpha: 3 items in an answer to resources/list",
    ]


def test_status_tells_how_many_are_withheld() -> None:
    """What stands outside the native prefix is not published, and its operator can see that."""

    async def check() -> None:
        async with Wire({"resources/list": result(page("in/1", "out/2", "out/3"))}) as wire:
            settings = {"url": wire.url, "prefix": "docs:", "native_prefix": "in/"}
            async with house({"alpha": settings}) as it:
                assert (await it.page()).uris == ["docs:1"]
                assert [one["left_out"] for one in (await it.status())["upstreams"]] == [2]

    asyncio.run(check())
