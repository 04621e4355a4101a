"""An event loop whose time passes only when nothing is left to do: time-outs are tested without waiting."""

import asyncio
import selectors
from collections.abc import Coroutine
from typing import Any, TypeVar

T = TypeVar("T")


class _Selector(selectors.SelectSelector):
    """Never blocks; what would be waited for is added to `now` instead."""

    def __init__(self) -> None:
        super().__init__()
        self.now = 0.0

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        ready = super().select(0)
        if not ready:
            if timeout is None:
                raise RuntimeError("everything waits for something that will never happen")
            self.now += max(0.0, timeout)
        return ready


class VirtualLoop(asyncio.SelectorEventLoop):
    """Begins at 0 seconds, and jumps from one timer to the next."""

    def __init__(self) -> None:
        self._virtual = _Selector()
        super().__init__(self._virtual)

    def time(self) -> float:
        return self._virtual.now


def run(main: Coroutine[Any, Any, T]) -> T:
    """Run to the end in virtual time; a task left over is a failure."""
    with asyncio.Runner(loop_factory=VirtualLoop) as runner:

        async def alone() -> T:
            result = await main
            left = asyncio.all_tasks() - {asyncio.current_task()}
            assert not left, f"left over: {left}"
            return result

        return runner.run(alone())
