"""One child process: started, written to, read from, and ended with all that it started.

What may not come in: what the bytes mean, and whether to start another one.

Hazards:
- A child may never read its stdin.  Nobody may wait for that without end, and what waits to be written must
  stay small: whoever writes waits until there is room.
- A child may be gone while its own children hold its streams open: its end is its exit, not theirs alone.
- All that a child starts is in its process group, unless it left it on purpose.  The group outlives the
  child, so it is ended last and always.
- The streams are pipes: some event loops make socket pairs, and through one of those a program cannot open
  /dev/stdout.
"""

import asyncio
import logging
import os
import signal
from collections.abc import Callable, Mapping
from contextlib import AsyncExitStack, ExitStack, suppress
from typing import IO, Final, Self

from mcp_federator.upstream.guard import Guard
from mcp_federator.upstream.spawning import Spawned, spawn

LAST_WORDS: Final = 0.5
"""Seconds for what a child that has ended wrote before that."""

CLOSED_WAIT: Final = 2.0
"""Seconds a child may take to end once its stdin is closed (basic/transports/stdio, "Shutdown")."""

TERMINATED_WAIT: Final = 2.0
"""Seconds it, and then the rest of its group, may take to end after SIGTERM."""

KILLED_WAIT: Final = 2.0
"""Seconds the system may take to end it after SIGKILL."""

_LOOK_AGAIN: Final = 0.02
_INHERITED: Final = ("PATH", "HOME", "LANG", "TZ", "TMPDIR", "USER", "LOGNAME", "SHELL", "TERM")

_log = logging.getLogger(__name__)


def environment(own: Mapping[str, str], inherited: Mapping[str, str] = os.environ) -> dict[str, str]:
    """A child's whole environment: a few variables of ours, no secret among them, and its own."""
    taken = {name: value for name, value in inherited.items() if name in _INHERITED or name.startswith("LC_")}
    return {**taken, **own}


class _Reading(asyncio.Protocol):
    def __init__(self, take: Callable[[bytes], None]) -> None:
        self._take = take
        self.ended = asyncio.get_running_loop().create_future()

    def data_received(self, data: bytes) -> None:
        self._take(data)

    def connection_lost(self, exc: Exception | None) -> None:
        del exc
        if not self.ended.done():
            self.ended.set_result(None)


class _Writing(asyncio.BaseProtocol):
    def __init__(self) -> None:
        self.room = asyncio.Event()
        self.room.set()
        self.ended = asyncio.get_running_loop().create_future()

    def pause_writing(self) -> None:
        self.room.clear()

    def resume_writing(self) -> None:
        self.room.set()

    def connection_lost(self, exc: Exception | None) -> None:
        del exc
        self.room.set()
        if not self.ended.done():
            self.ended.set_result(None)


class Process:
    """A running child; `start` makes one.

    Attributes:
        pid: its process id, and that of its group.
    """

    def __init__(
        self,
        name: str,
        *,
        guard: Guard,
        child: Spawned,
        stdin: tuple[asyncio.WriteTransport, _Writing],
        outputs: tuple[tuple[asyncio.ReadTransport, _Reading], ...],
        ended: Callable[[str], None],
    ) -> None:
        self._name = name
        self._guard = guard
        self._child = child
        self._stdin, self._writing = stdin
        self._outputs = outputs
        self._ended: Callable[[str], None] | None = ended
        self.pid = child.pid
        loop = asyncio.get_running_loop()
        self._told = loop.create_future()
        self._life = loop.create_task(self._live(), name=f"process {name}")

    @classmethod
    async def start(
        cls,
        name: str,
        command: tuple[str, ...],
        *,
        env: Mapping[str, str],
        cwd: str | None,
        received: Callable[[bytes], None],
        complained: Callable[[bytes], None],
        ended: Callable[[str], None],
    ) -> Self:
        """Start a child.

        Args:
            name: the upstream's, for the log.
            command: the program and its arguments.
            env: its whole environment.
            cwd: where it starts; None is where we are.
            received: takes what comes on stdout.
            complained: takes what comes on stderr, also for a while after `ended`.
            ended: called once, with how it ended; it says nothing on stdout any more.

        Raises:
            OSError, ValueError: it cannot be started.
        """
        loop = asyncio.get_running_loop()
        async with AsyncExitStack() as undo:
            guard = Guard(name)
            undo.push_async_callback(guard.release)
            with ExitStack() as theirs:
                (stdin, to_child), (from_child, stdout), (complaints, stderr) = _pipes(theirs)
                writing = await loop.connect_write_pipe(_Writing, to_child)
                undo.callback(writing[0].abort)
                reading = await loop.connect_read_pipe(lambda: _Reading(received), from_child)
                undo.callback(reading[0].close)
                complaining = await loop.connect_read_pipe(lambda: _Reading(complained), complaints)
                undo.callback(complaining[0].close)
                child = spawn(
                    command,
                    stdin=stdin.fileno(),
                    stdout=stdout.fileno(),
                    stderr=stderr.fileno(),
                    env=env,
                    cwd=cwd,
                )
            guard.watch(child.pid)
            undo.pop_all()
        return cls(name, guard=guard, child=child, stdin=writing, outputs=(reading, complaining), ended=ended)

    async def write(self, line: bytes) -> None:
        """Write a line as soon as there is room, however long that takes.

        Raises:
            BrokenPipeError: the child reads no more; nothing was written.
        """
        while not self._writing.room.is_set():
            await self._writing.room.wait()
        if not self.offer(line):
            raise BrokenPipeError

    @property
    def has_room(self) -> bool:
        """Whether a line would be written without waiting."""
        return self._writing.room.is_set()

    def offer(self, line: bytes) -> bool:
        """Write a line, room or not; False where the child reads no more."""
        if self._writing.ended.done() or self._stdin.is_closing():
            return False
        self._stdin.write(line + b"\n")
        return True

    @property
    def told(self) -> bool:
        """Whether it was asked to end."""
        return self._told.done()

    async def end(self) -> None:
        """End it with its group, and wait until that is done; a few seconds at most."""
        if not self._told.done():
            self._told.set_result(None)
        await asyncio.shield(self._life)

    async def _live(self) -> None:
        """Wait for the end, see to it that it is one, and tell."""
        (stdout, stdout_reading), (stderr, stderr_reading) = self._outputs
        gone = {self._child.exited, stdout_reading.ended}
        signs = {*gone, self._writing.ended, self._told}
        await asyncio.wait(signs, return_when=asyncio.FIRST_COMPLETED)
        if not self._told.done():
            if self._child.exited.done():
                # Its own children may hold stdout open.
                self._child.signal(signal.SIGTERM)
            await asyncio.wait(gone, timeout=LAST_WORDS)
        self._tell()
        stdout.close()
        await self._end_child()
        await self._end_group()
        await asyncio.wait({stderr_reading.ended}, timeout=LAST_WORDS)
        stderr.close()
        await self._guard.release()

    def _tell(self) -> None:
        ended, self._ended = self._ended, None
        if ended is not None:
            ended(self._how())

    def _how(self) -> str:
        if self._told.done():
            return "on our demand"
        if not self._child.exited.done():
            return "it closed its stdin or stdout"
        code = self._child.exited.result()
        if code < 0:
            with suppress(ValueError):
                return signal.Signals(-code).name
        return f"exit code {code}"

    async def _end_child(self) -> None:
        """Close its stdin, then ask it to end, then make it end (basic/transports/stdio, "Shutdown")."""
        # What is still to be written is for nobody, and a child that does not read would never see the end.
        if not self._stdin.is_closing():
            if self._stdin.get_write_buffer_size():
                self._stdin.abort()
            else:
                self._stdin.close()
        for wait, number in ((CLOSED_WAIT, signal.SIGTERM), (TERMINATED_WAIT, signal.SIGKILL)):
            if await self._exits(wait):
                return
            self._child.signal(number)
        if not await self._exits(KILLED_WAIT):
            _log.error("%s: process %d does not end", self._name, self.pid)

    async def _exits(self, wait: float) -> bool:
        await asyncio.wait({self._child.exited}, timeout=wait)
        return self._child.exited.done()

    async def _end_group(self) -> None:
        """The same for all that the child started."""
        if not self._child.signal(signal.SIGTERM):
            return
        for _ in range(int(TERMINATED_WAIT / _LOOK_AGAIN)):
            await asyncio.sleep(_LOOK_AGAIN)
            if not self._child.signal(0):
                return
        self._child.signal(signal.SIGKILL)


def _pipes(theirs: ExitStack) -> tuple[tuple[IO[bytes], IO[bytes]], ...]:
    """Pipes for stdin, stdout and stderr, reading ends first; `theirs` closes the child's ends."""
    pipes = []
    with ExitStack() as undo:
        for number in range(3):
            reader, writer = os.pipe()
            pipe = os.fdopen(reader, "rb", 0), os.fdopen(writer, "wb", 0)
            for end in pipe:
                undo.callback(end.close)
            theirs.callback(pipe[0 if number == 0 else 1].close)
            pipes.append(pipe)
        undo.pop_all()
    return tuple(pipes)
