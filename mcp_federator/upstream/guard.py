"""What ends a child process when we can no longer do it: after a crash of ours, or a SIGKILL.

A guard is a shell of its own that waits for the end of a pipe whose other end only we hold.  When we are
gone, however that came, the pipe ends, and the guard ends the child's process group: SIGTERM, and after two
seconds SIGKILL.  This needs nothing but POSIX, and reaches the child's children, which Linux' "parent death
signal" does not.

Not covered: a process that left the group (`setsid`, as daemons do), a guard that was itself killed, and
systems without /bin/sh.  Those children still see the end of their stdin, which ends most servers.
"""

import logging
import os
import signal
from contextlib import suppress
from typing import Final

from mcp_federator.upstream.spawning import NOWHERE, Spawned, spawn

_SHELL: Final = "/bin/sh"
_SCRIPT: Final = """
trap '' HUP INT TERM
read -r group || exit 0
read -r _ && exit 0
kill -s TERM -- "-$group" || exit 0
for _ in 1 2; do
  sleep 1
  kill -s 0 -- "-$group" || exit 0
done
kill -s KILL -- "-$group"
"""

_log = logging.getLogger(__name__)


class Guard:
    """The guard of one child.

    It is made before the child, so that hardly a moment remains in which the child is unguarded.  Without a
    shell there is none, which is logged.  Needs a running loop.
    """

    def __init__(self, name: str) -> None:
        self._spawned: Spawned | None = None
        reader, self._lifeline = os.pipe()
        try:
            self._spawned = spawn(
                (_SHELL, "-c", _SCRIPT, "mcp-federator-guard"),
                stdin=reader,
                stdout=NOWHERE,
                stderr=NOWHERE,
                env={"PATH": os.defpath},
                cwd="/",
            )
        except OSError as problem:
            _log.warning("%s: a crash of ours may leave its process behind: %s", name, problem.strerror)
        finally:
            os.close(reader)

    def watch(self, group: int) -> None:
        """From now on this process group ends when we do."""
        with suppress(BrokenPipeError):  # somebody ended the guard
            os.write(self._lifeline, b"%d\n" % group)

    async def release(self) -> None:
        """End the guard: its group is no more, and the number may become another's."""
        if self._spawned is not None:
            if not self._spawned.exited.done():
                self._spawned.signal(signal.SIGKILL)
            await self._spawned.exited
        os.close(self._lifeline)
