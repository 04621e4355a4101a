"""Lines: what stands on them, that nothing forges one, and that writing them holds nobody up."""

import json
import logging
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from typing import NoReturn

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mcp_federator import log
from mcp_federator.log import Writer, clean
from tests.instruments.pipes import Pipe

NOON = 1_796_040_000.25
STAMP = "2026-11-30T12:00:00.250Z"


@pytest.fixture
def pipe() -> Iterator[Pipe]:
    pipe = Pipe()
    yield pipe
    pipe.close()


@pytest.fixture
def ordinary() -> Iterator[None]:
    """Leaves the process's logging as it was."""
    root, own = logging.getLogger(), logging.getLogger("mcp_federator")
    before = (root.handlers[:], root.level, own.level)
    yield
    root.handlers[:], own.level = before[0], before[2]
    root.setLevel(before[1])
    own.setLevel(before[2])


def fail(message: str) -> NoReturn:
    raise ValueError(message)


def test_a_blocked_stderr_holds_nobody_up(pipe: Pipe) -> None:
    """Lines beyond 1 Mi characters that nobody reads are dropped, and told once somebody reads."""
    text = "x" * 1023 + "\n"
    for _ in range(3000):
        pipe.writer.put(text)
    pipe.writer.close(wait=0)
    assert pipe.writer._pending <= 1 << 20
    data, written, dropped = b"", 0, 0
    while written + dropped < 3000:
        data += os.read(pipe.reading, 65536)
        written = data.count(b"x\n")
        dropped = sum(int(number) for number in re.findall(rb"(\d+) lines dropped", data))
    assert (written + dropped, dropped > 0) == (3000, True)


@pytest.mark.parametrize("broken", ["no-reader", "closed", "never-there"])
def test_a_broken_stderr_fails_nobody(pipe: Pipe, broken: str) -> None:
    """Lines that nobody can get are lost in silence."""
    if broken == "no-reader":
        os.close(pipe.reading)
        writer = pipe.writer
    elif broken == "closed":
        os.close(pipe.writing)
        writer = pipe.writer
    else:
        writer = Writer(-1)
    for _ in range(3):
        writer.put("a line\n")
        writer.close()
    assert writer._pending == 0


def test_a_nonblocking_stderr_loses_nothing(pipe: Pipe) -> None:
    """Another owner of the terminal may have made it so."""
    os.set_blocking(pipe.writing, False)
    for _ in range(200):
        pipe.writer.put("x" * 1023 + "\n")
    data = b""
    while len(data) < 200 * 1024:
        data += os.read(pipe.reading, 65536)
    assert data == (b"x" * 1023 + b"\n") * 200


def test_a_line_after_the_end_is_written_too(pipe: Pipe) -> None:
    """Closing waits; it does not forbid."""
    pipe.writer.put("one\n")
    pipe.writer.close()
    pipe.writer.put("two\n")
    assert pipe.take() == "one\ntwo\n"


@pytest.mark.parametrize(
    ("text", "limit", "shown"),
    [
        ("plain text", 200, "plain text"),
        ("", 200, ""),
        ("a\nb\r\x1b[31mc\x00", 200, "a\\nb\\r\\x1b[31mc\\x00"),
        ("\u202eevil\u2028\u200b", 200, "\\u202eevil\\u2028\\u200b"),
        ("\x85\xa0\x7f", 200, "\\x85\\xa0\\x7f"),
        ("\ud800", 200, "\\ud800"),
        ("Załącznik 文件 🎉", 200, "Załącznik 文件 🎉"),
        ("x" * 201, 200, "x" * 199 + "…"),
        ("x" * 200, 200, "x" * 200),
        ("\n" * 10, 6, "\\n\\n\\…"),
    ],
    ids=["plain", "empty", "control", "bidi", "latin-1", "surrogate", "letters", "long", "just", "grown"],
)
def test_clean_shows_text_on_one_line(text: str, limit: int, shown: str) -> None:
    """Printing characters stay, others are escaped, the rest is cut."""
    assert clean(text, limit) == shown


@given(text=st.text(st.characters()), limit=st.integers(min_value=1, max_value=300))
def test_clean_prints_and_fits(text: str, limit: int) -> None:
    """For any text and limit."""
    assert clean(text, limit).isprintable()
    assert len(clean(text, limit)) <= limit


@pytest.mark.usefixtures("ordinary")
def test_ordinary_lines_are_one_line_each(pipe: Pipe) -> None:
    """Time, level, logger, message; line breaks in the message are escaped."""
    log.configure("text", "info", writer=pipe.writer)
    logging.getLogger("mcp_federator.upstream").info("docs said %s", "a\nb")
    written = pipe.take()
    assert written.count("\n") == 1
    assert written[24:] == " info mcp_federator.upstream: docs said a\\nb\n"


@pytest.mark.usefixtures("ordinary")
def test_ordinary_lines_in_json(pipe: Pipe) -> None:
    """The traceback of an exception is one member."""
    log.configure("json", "info", writer=pipe.writer)
    try:
        fail("a\x1bb")
    except ValueError:
        logging.getLogger("mcp_federator.app").exception("it failed")
    written = json.loads(pipe.take())
    assert {key: written[key] for key in ("level", "logger", "message")} == {
        "level": "error",
        "logger": "mcp_federator.app",
        "message": "it failed",
    }
    assert written["traceback"].splitlines()[-1] == "ValueError: a\\x1bb"


@pytest.mark.usefixtures("ordinary")
def test_a_traceback_is_indented_below_its_line(pipe: Pipe) -> None:
    """In text, only our own lines begin at the margin."""
    log.configure("text", "info", writer=pipe.writer)
    try:
        fail("1\n2026-11-30T12:00:00.250Z error forged")
    except ValueError:
        logging.getLogger("mcp_federator.app").exception("it failed")
    first, *rest = pipe.take().splitlines()
    assert first.endswith(" error mcp_federator.app: it failed")
    assert rest
    assert all(line.startswith("  ") for line in rest)


@pytest.mark.usefixtures("ordinary")
@pytest.mark.parametrize(
    ("level", "ours", "theirs"),
    [("debug", "dwe", "we"), ("info", "we", "we"), ("warning", "we", "we"), ("error", "e", "e")],
)
def test_libraries_speak_from_warning_on(pipe: Pipe, level: log.Level, ours: str, theirs: str) -> None:
    """What they say below that can hold URIs and what clients sent."""
    log.configure("text", level, writer=pipe.writer)
    for name in ("mcp_federator.x", "aiohttp.server"):
        logger = logging.getLogger(name)
        logger.debug("d")
        logger.warning("w")
        logger.error("e")
    written = pipe.take().splitlines()
    assert "".join(line[-1] for line in written if "mcp_federator" in line) == ours
    assert "".join(line[-1] for line in written if "aiohttp" in line) == theirs


@pytest.mark.usefixtures("ordinary")
def test_configuring_again_replaces_the_first(pipe: Pipe) -> None:
    """A reload does not write every line twice."""
    log.configure("text", "info", writer=pipe.writer)
    log.configure("json", "info", writer=pipe.writer)
    logging.getLogger("mcp_federator").warning("once")
    assert json.loads(pipe.take())["message"] == "once"


def test_the_last_lines_of_a_process_reach_stderr() -> None:
    """Without a loop, without a close: the exit of the interpreter waits for the writer."""
    program = (
        "import logging; from mcp_federator import log; log.configure('text', 'info');"
        "logging.getLogger('mcp_federator').info('goodbye')"
    )
    command = [sys.executable, "-c", program]
    done = subprocess.run(command, capture_output=True, check=True, text=True)  # noqa: S603 - our own program
    assert done.stderr.endswith(" info mcp_federator: goodbye\n")
