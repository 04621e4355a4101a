"""The end of the process, which other people's code does not put off.

Repositories run in it: a task of theirs may heed no cancellation, a thread may never return.  The event loop
waits for both when it is closed, the interpreter for threads when it exits, and neither wait has an end.
What may not come in: what the process does until then.

Hazard: what is left behind runs on while all around it is taken down.  Nothing of ours may be among it.
"""

import asyncio
import logging
import os
import threading
from collections.abc import Collection, Coroutine
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Final, TypeVar

import uvloop

from mcp_federator import log

LAST_MOMENT: Final = 1.0
"""Seconds that tasks may take to heed their cancellation, and threads to return."""

_log = logging.getLogger(__name__)

_T = TypeVar("_T")


def run(work: Coroutine[Any, Any, _T]) -> _T:
    """Run this to its end, and give what is under way then a moment, not more."""
    runner = asyncio.Runner(loop_factory=uvloop.new_event_loop)
    threads = ThreadPoolExecutor(thread_name_prefix="asyncio")
    runner.get_loop().set_default_executor(threads)
    try:
        return runner.run(work)
    finally:
        ended = runner.run(_end_tasks())
        waiting = threading.Thread(target=threads.shutdown, daemon=True)
        waiting.start()
        waiting.join(LAST_MOMENT)
        if ended and not waiting.is_alive():
            runner.close()


def leave(code: int, others: Collection[threading.Thread]) -> int:
    """The exit code, which the process will end with although threads do not end; they have another moment.

    Args:
        code: the exit code.
        others: threads that are none of what was run.
    """

    def end() -> None:
        for thread in _held_by(others):
            _log.warning("left behind, for it does not end: thread %s", thread.name)
        log.stderr().close()
        os._exit(code)

    if _held_by(others):
        # The interpreter knows how to end a pool's threads that have nothing to do.
        timer = threading.Timer(LAST_MOMENT, end)
        timer.daemon = True
        timer.start()
    return code


async def _end_tasks() -> bool:
    """Cancel what is still under way; whether nothing is left."""
    loop = asyncio.get_running_loop()
    left = asyncio.all_tasks() - {asyncio.current_task()}
    for task in left:
        task.cancel()
    if left:
        _, left = await asyncio.wait(left, timeout=LAST_MOMENT)
    if not left:
        closing = loop.create_task(loop.shutdown_asyncgens(), name="asynchronous generators")
        _, left = await asyncio.wait({closing}, timeout=LAST_MOMENT)
    for task in left:
        _log.warning("left behind, for it does not end: task %s", task.get_name())
    if left:
        # That they are pending when the process ends has been said.
        loop.set_exception_handler(lambda *_: None)
    return not left


def _held_by(others: Collection[threading.Thread]) -> list[threading.Thread]:
    """The threads that the interpreter would wait for."""
    ours = {*others, threading.current_thread()}
    return [thread for thread in threading.enumerate() if not thread.daemon and thread not in ours]
