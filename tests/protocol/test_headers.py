"""Header fields that carry protocol."""

import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from mcp.shared.inbound import decode_header_value, encode_header_value

from mcp_federator.model import Outcome, Served, Tier, Trace
from mcp_federator.protocol.headers import MAX_TRACE_FIELD, cache_status, decode_name, encode_name, trace

# Mcp-Name


ascii_text = st.text(st.characters(max_codepoint=0x7F))
lookalikes = st.text().map(lambda text: f"=?base64?{text}?=")


@given(st.text() | ascii_text | lookalikes)
@example("=?base64?=")
@example("=?base64??=")
@example("")
@example(" x ")
@example("a\tb")
def test_H33_every_name_survives_the_header(name: str) -> None:
    """A name goes as printable ASCII without blanks at its ends; we and the SDK read it back."""
    value = encode_name(name)
    assert value.isascii()
    assert value.isprintable()
    assert value == value.strip() != ""
    assert decode_name(value) == name
    assert decode_header_value(value) == name
    assert decode_name(encode_header_value(name)) == name


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("us-west1", "us-west1"),
        ("Hello, 世界", "=?base64?SGVsbG8sIOS4lueVjA==?="),
        (" padded ", "=?base64?IHBhZGRlZCA=?="),
        ("line1\nline2", "=?base64?bGluZTEKbGluZTI=?="),
        ("=?base64?literal?=", "=?base64?PT9iYXNlNjQ/bGl0ZXJhbD89?="),
        ("=?BASE64?eA==?=", "=?BASE64?eA==?="),
        ("file:///a b", "file:///a b"),
    ],
)
def test_H33_names_are_encoded_as_the_specification_shows(name: str, value: str) -> None:
    """The examples of "Value Encoding", and two that need no encoding."""
    assert encode_name(name) == value
    assert decode_name(value) == name


@pytest.mark.parametrize(
    "value",
    [
        "=?base64?SGVsbG8?=",
        "=?base64?SGVsbG8==?=",
        "=?base64?SGVs bG8=?=",
        "=?base64?SGVsbG8=\t?=",
        "=?base64?****?=",
        "=?base64?eB==?=",
        "=?base64?_-8=?=",
        "=?base64?/w==?=",
        "=?base64?7aCA?=",
        "file:///Za\u0142\u0105czniki",
        "file:///\udcc5\udc82",
        "a\nb",
        "a\x00b",
        "a\x7fb",
    ],
    ids=ascii,
)
def test_H33_broken_values_are_refused(value: str) -> None:
    """No base64, base64 of no UTF-8, and characters that no field may hold."""
    with pytest.raises(ValueError, match=r"."):
        decode_name(value)


def test_H33_a_tab_may_stand_in_a_value() -> None:
    """RFC 9110 allows it inside a field, so it is understood, though never sent."""
    assert decode_name("a\tb") == "a\tb"


# Trace context

PARENT = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"


@pytest.mark.parametrize(
    "traceparent",
    [
        PARENT,
        PARENT[:-2] + "00",
        "01" + PARENT[2:],
        "cc" + PARENT[2:] + "-what.the.future-holds",
        "fe" + PARENT[2:] + "-",
    ],
)
def test_a_sound_traceparent_goes_on(traceparent: str) -> None:
    """Later versions may be longer."""
    assert trace(traceparent) == Trace(traceparent)


@pytest.mark.parametrize(
    "traceparent",
    [
        None,
        "",
        PARENT.upper(),
        PARENT[:-1],
        PARENT + "0",
        PARENT + "-more",
        PARENT + "\n",
        " " + PARENT,
        "ff" + PARENT[2:],
        "0g" + PARENT[2:],
        "00-" + "0" * 32 + PARENT[35:],
        PARENT[:36] + "0" * 16 + "-01",
        PARENT.replace("-", "_"),
        "cc" + PARENT[2:] + "-a\r\nX: y",
        "cc" + PARENT[2:] + "-" + "a" * MAX_TRACE_FIELD,
    ],
)
def test_a_broken_traceparent_drops_the_context(traceparent: str | None) -> None:
    """Without it, state and baggage belong to nothing."""
    assert trace(traceparent, "a=b", "c=d") is None


@pytest.mark.parametrize(
    "tracestate",
    [
        "rojo=00f067aa0ba902b7",
        "rojo=00f067aa0ba902b7,congo=t61rcWkgMzE",
        "a=b , c=d,,",
        "fw529a3039@dt=FfAAA!~ x",
        "1tenant@sys=1",
        ",".join(f"k{number}=v" for number in range(32)),
    ],
)
def test_a_sound_tracestate_goes_on_as_it_is(tracestate: str) -> None:
    """Empty members and blanks between members are allowed."""
    assert trace(PARENT, tracestate) == Trace(PARENT, tracestate)


@pytest.mark.parametrize(
    "tracestate",
    [
        "",
        ",",
        "a",
        "a=",
        "=b",
        "A=b",
        "1a=b",
        "a=b=c",
        "a=b\r\nX: y",
        "a=é",
        "a b=c",
        "a=" + "b" * 257,
        "a" * 257 + "=b",
        ",".join(f"k{number}=v" for number in range(33)),
    ],
)
def test_a_broken_tracestate_is_dropped_alone(tracestate: str) -> None:
    """The parent still goes on."""
    assert trace(PARENT, tracestate) == Trace(PARENT)


@pytest.mark.parametrize(
    ("baggage", "sound"),
    [
        ("userId=alice", True),
        ("key1=value1;property1;property2, key2 = value2, key3=value3; p=v", True),
        ("key=%C3%A9", True),
        ("key=", True),
        ("key", False),
        ("key=a b", False),
        ('key="a"', False),
        ("key=a\\b", False),
        ("key=é", False),
        ("key=a\r\nX: y", False),
        ("", False),
        (",".join(f"k{number}=v" for number in range(65)), False),
        ("k=" + "v" * MAX_TRACE_FIELD, False),
    ],
)
def test_baggage_goes_on_when_sound(baggage: str, sound: bool) -> None:
    """It too is dropped alone."""
    assert trace(PARENT, None, baggage) == Trace(PARENT, None, baggage if sound else None)


@given(st.text(), st.text(), st.text())
def test_nothing_but_visible_ascii_and_blanks_goes_on(parent: str, state: str, baggage: str) -> None:
    """No text from outside ends a header line."""
    for context in (trace(parent, state, baggage), trace(PARENT, state, baggage)):
        for value in () if context is None else (context.traceparent, context.tracestate, context.baggage):
            assert value is None or (value.isascii() and value.replace("\t", "").isprintable())


# Cache-Status


@pytest.mark.parametrize(
    ("served", "told"),
    [
        (Served(Outcome.HIT, Tier.MEMORY, 29), "hit; ttl=29"),
        (Served(Outcome.HIT, Tier.MEMORY, 0), "hit; ttl=0"),
        (Served(Outcome.STALE, Tier.MEMORY, -12, detail="breaker"), "hit; ttl=-12; detail=breaker"),
        (
            Served(Outcome.STALE, fresh_for=-12, found_stale=True, detail="stale-if-error"),
            "fwd=stale; detail=stale-if-error",
        ),
        (Served(), "fwd=miss"),
        (Served(stored=True), "fwd=miss; stored"),
        (Served(found_stale=True, stored=True), "fwd=stale; stored"),
        (Served(refreshed=True, stored=True), "fwd=request; stored"),
        (Served(refreshed=True), "fwd=request"),
        (Served(Outcome.COALESCED), "fwd=miss; collapsed"),
        (Served(Outcome.COALESCED, found_stale=True), "fwd=stale; collapsed"),
        (Served(Outcome.BYPASS), "fwd=bypass"),
        (Served(Outcome.HIT, Tier.MEMORY, 5, hits=8), 'hit; ttl=5; detail="hit=8 miss=0"'),
        (Served(Outcome.HIT, hits=8), 'hit; detail="hit=8 miss=0"'),
        (Served(Outcome.MISS, hits=6, misses=2), 'fwd=miss; detail="hit=6 miss=2"'),
        (Served(Outcome.HIT, hits=6, misses=2), 'fwd=miss; detail="hit=6 miss=2"'),
    ],
)
def test_cache_status_tells_how_an_answer_came_about(served: Served, told: str) -> None:
    """Hit or fwd, never both; a merged list is a hit only if all its parts are."""
    assert cache_status(served) == f"mcp-federator; {told}"


@pytest.mark.parametrize(
    "baggage",
    [
        "a=1;" + "b= ;" * 2000,
        "a=1;b=" + " " * 8000 + "!\x01",
        "a" + " " * 8000,
        "a=1" + ";b" * 4000 + "\x01",
        "a=" + "; " * 4000,
    ],
    ids=["empty values", "blanks", "no value", "properties", "empty properties"],
)
def test_what_is_no_baggage_is_seen_at_once(baggage: str) -> None:
    """However a value misses the syntax, finding out takes no longer than reading it."""
    context = trace("00-0af7651916cd43dd8448eb211c80319c-00f067aa0ba902b7-01", None, baggage)
    assert context is not None
    assert context.baggage is None
