"""Lines to and from a terminal."""

import asyncio
import os
import pty
import threading

import pytest

from mcp_federator.terminal import ask_line, print_table


def test_what_comes_from_outside_cannot_command_the_terminal(capsys: pytest.CaptureFixture[str]) -> None:
    """Control characters in cells are shown escaped."""
    print_table([("\x1b[2Jx", "a\nb")])
    assert capsys.readouterr().out == "\\x1b[2Jx  a\\nb\n"


def typed(lines: bytes, count: int) -> list[str | None]:
    """What is asked for, where these bytes are stdin."""

    async def body() -> list[str | None]:
        return [await ask_line("? ") for _ in range(count)]

    kept, (reading, writing) = os.dup(0), os.pipe()
    try:
        os.dup2(reading, 0)
        os.write(writing, lines)
        os.close(writing)
        return asyncio.run(body())
    finally:
        os.dup2(kept, 0)
        os.close(kept)
        os.close(reading)


@pytest.mark.parametrize(
    ("lines", "asked"),
    [
        (b"a\nb\n", ["a", "b", None]),
        (b"a\n\nb", ["a", "", "b", None]),
        (b"", [None]),
        (b"\xff\xc3\xbc\n", ["\ufffd\u00fc"]),
    ],
)
def test_a_line_is_what_was_typed_and_none_at_the_end(
    lines: bytes, asked: list[str | None], capsys: pytest.CaptureFixture[str]
) -> None:
    """One at a time, however many came at once; the prompt is no part of the output."""
    assert typed(lines, len(asked)) == asked
    told = capsys.readouterr()
    assert (told.out, told.err) == ("", "# ? " * len(asked))


def test_nobody_waits_for_a_line_that_does_not_come() -> None:
    """Who is told to stop stops, although the terminal is silent."""

    async def body() -> None:
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0):
                await ask_line("? ")

    kept, (ours, theirs) = os.dup(0), pty.openpty()
    try:
        os.dup2(theirs, 0)
        asyncio.run(body())
    finally:
        os.write(ours, b"late\n")
        for thread in threading.enumerate():
            if thread.name == "terminal":
                thread.join(10)
        os.dup2(kept, 0)
        for each in (kept, ours, theirs):
            os.close(each)
