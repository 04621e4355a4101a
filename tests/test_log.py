"""Lines: what stands on them, that nothing forges one, and that writing them holds nobody up."""

import asyncio
import json
import logging
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from contextlib import suppress
from typing import NoReturn

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mcp_federator import log
from mcp_federator.log import RequestLog, Writer, clean
from mcp_federator.model import Era

NOON = 1_796_040_000.25
STAMP = "2026-11-30T12:00:00.250Z"


class Pipe:
    """A writer's descriptor, and what came out of its other end."""

    def __init__(self) -> None:
        self.reading, self.writing = os.pipe()
        self.writer = Writer(self.writing)

    def take(self) -> str:
        """All that was written, once the writer is done."""
        self.writer.close()
        os.close(self.writing)
        with os.fdopen(self.reading, closefd=False) as file:
            return file.read()

    def close(self) -> None:
        """Ends the reader first: that frees a waiting writer before its descriptor's number is used anew."""
        with suppress(OSError):
            os.close(self.reading)
        self.writer.close()
        with suppress(OSError):
            os.close(self.writing)


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


def write_one(requests: RequestLog, **changes: object) -> None:
    fields: dict[str, object] = {
        "id": b"1",
        "method": "resources/read",
        "era": Era.MODERN,
        "upstreams": ("docs",),
        "outcome": "hit",
        "status": "ok",
        "seconds": 0.0125,
        "size": 1311,
        "uri": "docs+file:///a b",
    }
    requests.write(**(fields | changes))  # type: ignore[arg-type] # one table for all kinds of field


def line(pipe: Pipe, form: log.Format, level: log.Level = "info", **changes: object) -> str:
    requests = RequestLog(form, level, writer=pipe.writer, clock=lambda: NOON)
    write_one(requests, **changes)
    return pipe.take()


def fail(message: str) -> NoReturn:
    raise ValueError(message)


def test_a_request_is_one_line_of_text(pipe: Pipe) -> None:
    """Time, id, method, era, upstreams, outcome, status, milliseconds, bytes."""
    assert line(pipe, "text") == (
        f"{STAMP} info request id=1 method=resources/read era=modern upstreams=docs outcome=hit"
        " status=ok ms=12.500 bytes=1311\n"
    )


def test_a_request_is_one_line_of_json(pipe: Pipe) -> None:
    """The same, for machines."""
    assert json.loads(line(pipe, "json")) == {
        "time": STAMP,
        "level": "info",
        "id": 1,
        "method": "resources/read",
        "era": "modern",
        "upstreams": ["docs"],
        "outcome": "hit",
        "status": "ok",
        "ms": 12.5,
        "bytes": 1311,
    }


def test_uris_are_written_at_debug_level_only(pipe: Pipe) -> None:
    """A URI can name people and secrets."""
    assert "file:" not in line(pipe, "json", "info")


@pytest.mark.parametrize("form", ["text", "json"])
def test_at_debug_level_the_uri_stands_on_the_line(pipe: Pipe, form: log.Format) -> None:
    """It is quoted, so that a space ends nothing."""
    assert '"docs+file:///a b"' in line(pipe, form, "debug")


@pytest.mark.parametrize("level", ["warning", "error"])
def test_a_higher_level_writes_no_requests(pipe: Pipe, level: log.Level) -> None:
    """A request is no warning."""
    assert line(pipe, "text", level) == ""


@pytest.mark.parametrize(
    ("id_", "shown"),
    [
        (None, None),
        (b"-5", -5),
        (b'""', ""),
        (b'"s-1"', "s-1"),
        (b"9007199254740993", 9007199254740993),
        (b'"a\\u001bb"', "a\x1bb"),
        ('"\u202eabc"'.encode(), '"\\u202eabc"'),
        (b'"' + b"x" * 1000 + b'"', '"' + "x" * 198 + "…"),
    ],
    ids=["unread", "negative", "empty", "text", "beyond-2-53", "escaped", "bidi", "long"],
)
def test_an_id_is_shown_as_it_was_written_or_as_text(pipe: Pipe, id_: bytes | None, shown: object) -> None:
    """Value and type of a short id that prints are kept; any other id is escaped and cut."""
    assert json.loads(line(pipe, "json", id=id_))["id"] == shown


@pytest.mark.parametrize("form", ["text", "json"])
@given(method=st.text(), uri=st.text(), id_=st.text(alphabet=st.characters(categories=["L", "Z", "C"])))
def test_nothing_from_outside_forges_a_line(form: log.Format, method: str, uri: str, id_: str) -> None:
    """Whatever is asked, one request is one printing line, and in JSON an object with the usual members."""
    pipe = Pipe()
    raw_id = json.dumps(id_, ensure_ascii=False).encode(errors="surrogatepass")
    written = line(pipe, form, "debug", method=method, uri=uri, id=raw_id)
    pipe.close()
    assert written.endswith("\n")
    assert written[:-1].isprintable()
    if form == "json":
        assert json.loads(written)["method"] == clean(method)
        assert json.loads(written)["uri"] == clean(uri)
    else:
        assert written.startswith(f"{STAMP} info request id=")


def test_in_text_a_strange_method_cannot_pose_as_another_field(pipe: Pipe) -> None:
    """A method with spaces stands in quotes."""
    assert ' method="x status=ok" era=modern' in line(pipe, "text", method="x status=ok")


def test_no_upstream_and_no_outcome_are_shown_as_such(pipe: Pipe) -> None:
    """A request that concerned no upstream has neither."""
    assert " upstreams=- outcome=- " in line(pipe, "text", upstreams=(), outcome="")


def test_lines_are_gathered_and_written_by_the_loop(pipe: Pipe) -> None:
    """Nobody has to flush: the loop does it soon."""

    async def body() -> bytes:
        requests = RequestLog(writer=pipe.writer)
        write_one(requests)
        write_one(requests)
        arrived = asyncio.Event()
        asyncio.get_running_loop().add_reader(pipe.reading, arrived.set)
        await arrived.wait()
        asyncio.get_running_loop().remove_reader(pipe.reading)
        return os.read(pipe.reading, 65536)

    assert asyncio.run(body()).count(b"\n") == 2


def test_a_burst_is_handed_over_before_the_loop_gets_to_it(pipe: Pipe) -> None:
    """The buffer between two turns of the loop is bounded."""

    async def body() -> int:
        requests = RequestLog(writer=pipe.writer)
        for _ in range(1000):
            write_one(requests)
        return len(requests._requests)

    assert asyncio.run(body()) < 256


def test_close_writes_what_was_gathered(pipe: Pipe) -> None:
    """The last lines before the process ends are not lost."""

    async def body() -> None:
        requests = RequestLog(writer=pipe.writer)
        for _ in range(10):
            write_one(requests)
        requests.close()

    asyncio.run(body())
    assert pipe.take().count("\n") == 10


def test_new_settings_hold_from_the_next_line(pipe: Pipe) -> None:
    """A reload changes form and level without losing a line."""
    requests = RequestLog("text", "info", writer=pipe.writer, clock=lambda: NOON)
    write_one(requests)
    requests.configure("json", "debug")
    write_one(requests)
    text, json_ = pipe.take().splitlines()
    assert text.startswith(f"{STAMP} info request ")
    assert json.loads(json_)["uri"] == "docs+file:///a b"


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
    requests = RequestLog(writer=writer)
    for _ in range(3):
        write_one(requests)
        requests.close()
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
