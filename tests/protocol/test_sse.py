"""Event streams, however they are cut."""

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mcp_federator.protocol.jsonrpc import decode_message
from mcp_federator.protocol.sse import MAX_LINES, Decoder, ServerSentEvent

LIMIT = 1 << 20


def decoded(*chunks: bytes, limit: int = LIMIT) -> list[ServerSentEvent]:
    decoder = Decoder(limit)
    return [event for chunk in chunks for event in decoder.feed(chunk)]


def bytewise(stream: bytes) -> list[bytes]:
    return [stream[at : at + 1] for at in range(len(stream))]


def by_the_standard(stream: bytes) -> list[ServerSentEvent]:
    """The parser of the HTML standard, written as it is written there: whole text, line by line."""
    text = stream.decode(errors="surrogateescape").removeprefix("\ufeff")
    events, data, event, last = [], "", "", ""
    *lines, _ = re.split("\r\n|\r|\n", text)
    for line in lines:
        if line == "":
            if data:
                events.append(
                    ServerSentEvent(data[:-1].encode(errors="surrogateescape"), event or "message", last)
                )
            data, event = "", ""
            continue
        field, _, value = line.partition(":")
        value = value.removeprefix(" ")
        if field == "data":
            data += value + "\n"
        elif field == "event":
            event = value
        elif field == "id" and "\0" not in value:
            last = value
    return events


pieces = st.sampled_from(
    b"data|event|id|retry|:|: | |\r|\n|\r\n|\n\n|\r\r|x|{}|\0|data:|data: a\n|\xef\xbb\xbf|\xc3\xa9"
    b"|: ping\r\n\r\n|id: 1\r\ndata:\r\n\r\n".split(b"|")
)
streams = st.lists(pieces, max_size=30).map(b"".join)


@given(streams, st.data())
def test_H16_any_chunking_gives_the_same_events(stream: bytes, data: st.DataObject) -> None:
    """Whole, byte by byte or cut anywhere: what the standard says."""
    cuts = sorted(data.draw(st.lists(st.integers(0, len(stream)), max_size=6)))
    chunks = [stream[start:end] for start, end in zip([0, *cuts], [*cuts, len(stream)], strict=True)]
    expected = by_the_standard(stream)
    assert decoded(stream) == expected
    assert decoded(*bytewise(stream)) == expected
    assert decoded(*chunks) == expected


STREAM = (
    b"\xef\xbb\xbf:\r\n: ping\r\n\r\nid: 1\r\ndata:\r\n\r\nretry: 5\r\n"
    b'event: message\r\ndata: {"jsonrpc":"2.0","method":"notifications/message"}\r\n\r\n'
    b'event: message\r\ndata:{"jsonrpc":"2.0",\r\ndata: "id":7,"result":{"a":1}}\r\n\r\n'
)


@pytest.mark.parametrize("end", [b"\r\n", b"\n", b"\r"], ids=["crlf", "lf", "bare-cr"])
@pytest.mark.parametrize("cut", [False, True], ids=["whole", "bytewise"])
def test_H16_a_stream_with_everything_in_it_is_one_response(end: bytes, cut: bool) -> None:
    """BOM, comments, priming event, retry, notification, two data lines: the result that JSON would give."""
    stream = STREAM.replace(b"\r\n", end)
    events = decoded(*(bytewise(stream) if cut else [stream]))
    replies = [reply for event in events if (reply := decode_message(event.data, 7)) is not None]
    assert [bytes(reply.result or b"") for reply in replies] == [b'{"a":1}']
    assert [event.id for event in events] == ["1", "1", "1"]
    assert events[0].data == b""


@pytest.mark.parametrize("end", [b"\r", b"\n"], ids=["bare-cr", "lf"])
def test_H16_an_event_does_not_wait_for_the_next_chunk(end: bytes) -> None:
    """A CR ends its line at once, although a LF may follow."""
    decoder = Decoder(LIMIT)
    assert decoder.feed(b"data: a" + end + end) == [ServerSentEvent(b"a")]


def test_H16_a_crlf_cut_in_two_is_one_line_end() -> None:
    """Neither an empty line nor part of the next one."""
    assert decoded(b"data: a\r", b"\ndata: b\r", b"\n\r", b"\n") == [ServerSentEvent(b"a\nb")]
    assert decoded(b"data: a\r", b"", b"\n", b"data: b\n\n") == [ServerSentEvent(b"a\nb")]


def test_H17_what_has_no_blank_line_behind_it_is_no_event() -> None:
    """A stream that ends within an event has not said it."""
    assert decoded(b"data: a\n") == []
    assert decoded(b"data: a") == []


def test_an_event_has_its_name_and_the_last_id() -> None:
    """The name holds for one event, the id until another comes; one with NUL is none."""
    assert decoded(b"id: 7\nevent: e\ndata: a\n\ndata: b\n\nid: \0\ndata: c\n\nid\ndata: d\n\n") == [
        ServerSentEvent(b"a", "e", "7"),
        ServerSentEvent(b"b", "message", "7"),
        ServerSentEvent(b"c", "message", "7"),
        ServerSentEvent(b"d", "message", ""),
    ]


@pytest.mark.parametrize(
    "stream",
    [
        b"data: " + b"x" * 101,
        b"data: " + b"x" * 60 + b"\ndata: " + b"x" * 60,
        b"data:\n" * 101,
        b":" + b"x" * 101,
        b"event: " + b"x" * 101,
    ],
    ids=["line", "lines", "empty-lines", "comment", "name"],
)
def test_an_event_beyond_the_limit_is_refused(stream: bytes) -> None:
    """Whatever grows without end is cut off before its end has come."""
    for chunks in ([stream], bytewise(stream)):
        with pytest.raises(ValueError, match="larger than 100 bytes"):
            decoded(*chunks, limit=100)


def test_the_limit_is_on_one_event() -> None:
    """Any number of events, and of comments between them, may pass."""
    events = decoded(
        b": keep-alive\ndata: " + b"x" * 80 + b"\n\n", *[b": k\n"] * 500, b"data: y\n\n" * 500, limit=100
    )
    assert len(events) == 501


def test_lines_are_counted() -> None:
    """A stream ends with the first line too many, whatever the lines hold; pieces of one line are none."""
    for line in (b"\n", b"\r", b":\n", b"data:\n\n"):
        decoder = Decoder(100)
        decoder.feed(line * (MAX_LINES // line.count(b"\n" if line != b"\r" else line)))
        with pytest.raises(ValueError, match=f"more than {MAX_LINES} lines"):
            decoder.feed(line)
    decoder = Decoder(MAX_LINES + 1)
    for _ in range(MAX_LINES + 1):
        decoder.feed(b":")


@pytest.mark.parametrize(
    ("stream", "place", "retry", "events"),
    [
        (b"", "before", None, 0),
        (b"id: 1\ndata: a\n\n", "1", None, 1),
        (b"id: 1\n\n", "1", None, 0),
        (b"data: a\n\nid: 1\ndata: b\n", "before", None, 1),
        (b"id\ndata: a\n\n", "", None, 1),
        (b"id: a\0b\ndata: a\n\n", "before", None, 1),
        (b"retry: 1500\n", "before", 1500, 0),
        (b"retry: 1500\nretry: 20\n", "before", 20, 0),
        (b"retry: -1\nretry: 1.5\nretry:\nretry: " + b"9" * 5000 + b"\nretry: \xc2\xb2\n", "before", None, 0),
    ],
)
def test_what_the_next_connection_has_to_know(
    stream: bytes, place: str, retry: int | None, events: int
) -> None:
    """The id of the last event that came whole, and how long to wait: whole numbers of a sound length."""
    decoder = Decoder(LIMIT, id="before")
    for chunk in bytewise(stream):
        decoder.feed(chunk)
    assert (decoder.id, decoder.retry, decoder.events) == (place, retry, events)
