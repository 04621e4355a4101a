"""How a child process is made, and how its end is learnt.

Why not by the event loop: the one we run on leaves descriptors of ours open in its children, which then stay
open as long as these or their own children live.  The standard library's `Popen` passes three and no more, on
any loop.

Hazard: a child is waited for in a thread of its own, which must not outlive the process: it is a daemon.
"""

import asyncio
import os
import signal
import subprocess
import threading
from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import Final

import msgspec

NOWHERE: Final = subprocess.DEVNULL


class Spawned(msgspec.Struct, frozen=True):
    """A child, the first of its process group and session.

    Attributes:
        pid: its process id, and that of its group.
        exited: its exit code, or the negative number of the signal that ended it.
    """

    pid: int
    exited: asyncio.Future[int]

    def signal(self, number: int) -> bool:
        """Send a signal to the group; False where there is none any more."""
        try:
            os.killpg(self.pid, number)
        except (ProcessLookupError, PermissionError):  # the latter for one of zombies, on macOS
            return False
        return True


def spawn(
    command: Sequence[str],
    *,
    stdin: int,
    stdout: int,
    stderr: int,
    env: Mapping[str, str],
    cwd: str | None,
) -> Spawned:
    """Start a program with these three descriptors; it takes a few milliseconds.  Needs a running loop.

    Raises:
        OSError, ValueError: it cannot be started.
    """
    loop = asyncio.get_running_loop()
    process = subprocess.Popen(  # noqa: S603 - the operator chose it
        command, stdin=stdin, stdout=stdout, stderr=stderr, env=env, cwd=cwd, start_new_session=True
    )
    spawned = Spawned(process.pid, loop.create_future())

    def tell(code: int) -> None:
        if not spawned.exited.done():
            spawned.exited.set_result(code)

    def wait() -> None:
        code = process.wait()
        with suppress(RuntimeError):  # the loop is closed, and nobody wants to know
            loop.call_soon_threadsafe(tell, code)

    try:
        threading.Thread(target=wait, name=f"process {process.pid}", daemon=True).start()
    except RuntimeError as problem:
        spawned.signal(signal.SIGKILL)
        process.wait()
        raise OSError(0, "no thread can be started to wait for it") from problem
    return spawned
