import asyncio

import pytest
import uvloop

from tests.endpoint import door


@pytest.fixture(params=[asyncio.new_event_loop, uvloop.new_event_loop], ids=["asyncio", "uvloop"])
def each_loop(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Tests run twice: on asyncio's own loop, and on the one that the product runs on."""
    monkeypatch.setattr(door, "loop_factory", request.param)
