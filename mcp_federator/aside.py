"""Where large answers are decoded, tagged and deciphered: beside the event loop, so that nobody else waits.

Two threads for the whole process: more would only take turns with the loop, and one would let the answers of
one upstream hold up all others.

Hazard: a thread lets others run between two operations on buffers, not within one.  That these stay short is
the affair of what is called.
"""

import asyncio
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Final, TypeVar

LARGE: Final = 128 << 10
"""Bytes; up to here a thread costs more than it spares.  The worst of such texts takes some 50 ms."""

_Made = TypeVar("_Made")
_Given = TypeVar("_Given")

_threads: Final = ThreadPoolExecutor(2, "aside")


async def aside(size: int, work: Callable[[_Given], _Made], given: _Given) -> _Made:
    """What `work` makes of what it is given, which is `size` bytes.

    Whoever is cancelled leaves it behind; it ends by itself.
    """
    if size <= LARGE:
        return work(given)
    return await asyncio.get_running_loop().run_in_executor(_threads, work, given)
