import logging

import pytest

from mcp_federator.upstream.stderr import BURST, MAX_LINE_CHARS, PER_SECOND, Stderr
from tests.upstream.asking import Clock


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def told(caplog: pytest.LogCaptureFixture, clock: Clock) -> Stderr:
    caplog.set_level(logging.INFO, "mcp_federator")
    return Stderr("alpha", clock)


def lines(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [line.removeprefix("alpha: stderr: ") for line in caplog.messages]


def test_lines_are_whole(told: Stderr, caplog: pytest.LogCaptureFixture) -> None:
    """However they come; blank ones say nothing, and the last needs no end."""
    for chunk in (b"a", b"b\nc\n\n  \r\nd\r", b"\ne"):
        told.feed(chunk)
    assert lines(caplog) == ["ab", "c", "d"]
    told.end()
    assert lines(caplog) == ["ab", "c", "d", "e"]


def test_lines_are_escaped_and_cut(told: Stderr, caplog: pytest.LogCaptureFixture) -> None:
    """Nothing of a child's reaches a terminal as a command, and no line is endless."""
    told.feed(b"\x1b[2J\xff\xc3\xbc\n" + b"x" * 1_000_000)
    told.feed(b"x" * 1_000_000 + b"\nnext\n")
    first, second, third = lines(caplog)
    assert first == "\\x1b[2J\ufffdü"
    assert second == "x" * (MAX_LINE_CHARS - 1) + "…"
    assert third == "next"


def test_a_flood_is_cut(told: Stderr, caplog: pytest.LogCaptureFixture, clock: Clock) -> None:
    """So many at once, then so many a second; how many are missing is told where they are missing."""
    for _ in range(100):
        told.feed(b"line\n" * 1000)
    assert lines(caplog) == ["line"] * BURST
    clock.now += 1
    told.feed(b"later\n" * 100)
    assert lines(caplog)[BURST:] == [
        f"{100_000 - BURST} lines are left out here",
        *["later"] * PER_SECOND,
    ]
    told.end()
    assert lines(caplog)[-1] == f"{100 - PER_SECOND} lines are left out here"
