"""What the command line writes and reads where a person sits.

What was asked for goes to stdout, what is said about it to stderr, so that output can be piped; questions are
said, too.  What comes from outside is made printable.
"""

import asyncio
import os
import sys
import threading
from collections.abc import Sequence
from contextlib import suppress
from io import TextIOWrapper
from pathlib import Path

from mcp_federator import log


def open_streams() -> None:
    """Make the three standard streams usable, however the process was started.

    A number that is free would be given to a socket, which the event loop does not survive; and `print` to a
    stream that is not there goes to another one.
    """
    for number in range(3):
        try:
            os.fstat(number)
        except OSError:
            # The lowest free number is taken: this one.
            os.set_inheritable(os.open(os.devnull, os.O_RDWR), True)  # noqa: FBT003 - it takes no names
    nowhere = Path(os.devnull)
    sys.stdin = sys.stdin or nowhere.open()
    sys.stdout = sys.stdout or nowhere.open("w")
    sys.stderr = sys.stderr or nowhere.open("w")
    if isinstance(sys.stdout, TextIOWrapper):
        # Of what a server says, not everything can be written everywhere.
        sys.stdout.reconfigure(errors="backslashreplace")


def leave_streams() -> None:
    """Write nothing any more to those who have stopped reading, not even what is held back at the end."""
    nowhere = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, 1)
    os.dup2(nowhere, 2)
    os.close(nowhere)


def remark(text: str) -> None:
    """Say something about the output."""
    sys.stdout.flush()
    print(f"# {text}", file=sys.stderr, flush=True)


def print_table(rows: Sequence[tuple[str, ...]]) -> None:
    """Columns as wide as their widest cell; what comes from outside is made printable."""
    shown = [tuple(log.clean(cell, 1000) for cell in row) for row in rows]
    columns = max((len(row) for row in shown), default=0)
    # A row with fewer cells ends in free text, which sets no width.
    widths = [max((len(row[at]) for row in shown if at < len(row) - 1), default=0) for at in range(columns)]
    for row in shown:
        print("  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=False)).rstrip())


async def ask_line(prompt: str) -> str | None:
    """Ask for one line; None at the end of input.

    The thread that waits for it is left alone when we are told to stop: nothing else would let it go.
    """
    sys.stdout.flush()
    print(f"# {prompt}", end="", file=sys.stderr, flush=True)
    loop = asyncio.get_running_loop()
    typed: asyncio.Future[str | None] = loop.create_future()

    def told(line: str | None) -> None:
        if not typed.done():
            typed.set_result(line)

    def read() -> None:
        line = _line()
        with suppress(RuntimeError):  # nobody waits any more, and the loop is closed
            loop.call_soon_threadsafe(told, line)

    threading.Thread(target=read, daemon=True, name="terminal").start()
    return await typed


def _line() -> str | None:
    # Unbuffered: a thread that is left behind must hold no lock of stdin's.
    line = bytearray()
    try:
        while (byte := os.read(0, 1)) not in {b"", b"\n"}:
            line += byte
    except OSError:  # the terminal is gone
        return None
    return line.decode(errors="replace") if line or byte else None
