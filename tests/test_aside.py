import threading

import pytest

from mcp_federator.aside import LARGE, aside
from tests.upstream.asking import run


@pytest.mark.parametrize(("size", "beside"), [(0, False), (LARGE, False), (LARGE + 1, True)])
def test_what_is_large_is_worked_on_beside_the_loop(size: int, beside: bool) -> None:
    """What is small is not; either way what comes of it comes back."""

    async def body() -> None:
        where = await aside(size, lambda given: (given, threading.current_thread()), "x")
        assert where[0] == "x"
        assert (where[1] is not threading.current_thread()) == beside

    run(body())


@pytest.mark.parametrize("size", [0, LARGE + 1])
def test_what_it_raises_is_raised(size: int) -> None:
    """The asker gets the error, not the thread."""

    async def body() -> None:
        with pytest.raises(ValueError, match="invalid literal"):
            await aside(size, int, "x")

    run(body())
