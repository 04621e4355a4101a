"""Lines of requests: what stands on them, and that nothing forges one."""

import asyncio
import json
import os
from collections.abc import Iterator

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mcp_federator import log
from mcp_federator.log import clean
from mcp_federator.model import Era
from mcp_federator.request_log import RequestLog
from tests.instruments.pipes import Pipe

NOON = 1_796_040_000.25
STAMP = "2026-11-30T12:00:00.250Z"


@pytest.fixture
def pipe() -> Iterator[Pipe]:
    pipe = Pipe()
    yield pipe
    pipe.close()


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
