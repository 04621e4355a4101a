"""Processes of ours: started, listened to, and always ended by their own id."""

import asyncio
import os
import re
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from time import monotonic, sleep


class Child:
    """A process whose output, both streams as one, goes to a file and can be waited for."""

    def __init__(self, *arguments: str, env: Mapping[str, str] | None = None) -> None:
        self.arguments = arguments
        self._file = tempfile.TemporaryFile()  # noqa: SIM115 - closed with the process
        self._process = subprocess.Popen(  # noqa: S603 - our own programs
            arguments,
            stdin=subprocess.DEVNULL,
            stdout=self._file,
            stderr=subprocess.STDOUT,
            env={**os.environ, **(env or {})},
        )

    @property
    def pid(self) -> int:
        return self._process.pid

    @property
    def running(self) -> bool:
        return self._process.poll() is None

    @property
    def output(self) -> str:
        size = os.fstat(self._file.fileno()).st_size
        return os.pread(self._file.fileno(), size, 0).decode(errors="replace")

    def wait_for(self, pattern: str, timeout: float = 30) -> re.Match[str]:
        """The first match of `pattern` in the output.

        Raises:
            AssertionError: the process ended, or `timeout` seconds passed, without one; tells the output.
        """
        end = monotonic() + timeout
        while True:
            # What it said before it ended is there once it has ended, so look at its state first.
            running = self.running
            output = self.output
            if found := re.search(pattern, output):
                return found
            if not running or monotonic() > end:
                state = (
                    f"took longer than {timeout} s" if running else f"ended with {self._process.returncode}"
                )
                raise AssertionError(f"{' '.join(self.arguments)} {state} without {pattern!r}:\n{output}")
            sleep(0.01)

    def signal(self, number: signal.Signals = signal.SIGTERM) -> None:
        self._process.send_signal(number)

    def ended(self, timeout: float = 15) -> int:
        """The exit code, once the process has ended by itself."""
        return self._process.wait(timeout)

    def stop(self, timeout: float = 15) -> int:
        """Ask the process to end and kill it if it does not; gives the exit code."""
        if self.running:
            self.signal()
        try:
            return self._process.wait(timeout)
        except subprocess.TimeoutExpired:
            self._process.kill()
            return self._process.wait()

    def close(self) -> None:
        """End the process and forget its output."""
        self.stop()
        self._file.close()


async def command(*arguments: str) -> tuple[int, str, str]:
    """Run the command line to its end: exit code, output, and what it said about it.

    A byte of the output that is no text is a half surrogate.
    """
    process = await asyncio.create_subprocess_exec(
        sys.executable,
        "-m",
        "mcp_federator",
        *arguments,
        stdin=asyncio.subprocess.DEVNULL,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
    )
    out, err = await process.communicate()
    return process.returncode or 0, out.decode(errors="surrogateescape"), err.decode()


@contextmanager
def child(*arguments: str, env: Mapping[str, str] | None = None) -> Iterator[Child]:
    """Run a program until the end of the block."""
    process = Child(*arguments, env=env)
    try:
        yield process
    finally:
        process.close()


@contextmanager
def python(*arguments: str, env: Mapping[str, str] | None = None) -> Iterator[Child]:
    """Run this Python with `arguments` until the end of the block."""
    with child(sys.executable, "-u", *arguments, env=env) as process:
        yield process
