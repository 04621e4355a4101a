import json
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mcp_federator.protocol.lines import Head, Lines, TooLong, head_of, likely_id, one_line


@given(
    st.lists(st.binary(max_size=30).map(lambda raw: b"{" + raw.replace(b"\n", b"") + b"}"), max_size=8),
    st.lists(st.integers(0, 300), max_size=8),
)
def test_lines_do_not_depend_on_how_they_come(lines: list[bytes], cuts: list[int]) -> None:
    """However a stream is cut into chunks, the lines are the same."""
    stream = b"".join(line + b"\n" for line in lines)
    places = [0, *sorted(cut for cut in cuts if cut < len(stream)), len(stream)]
    decoder = Lines(1000)
    found = [line for start, end in pairwise(places) for line in decoder.feed(stream[start:end])]
    assert found == lines
    assert decoder.pending == 0


def test_what_has_not_ended_is_no_line() -> None:
    """It is kept, and counted, until its end comes."""
    lines = Lines(100)
    assert lines.feed(b'{"a"') == []
    assert lines.pending == 4
    assert lines.feed(b":1}\n{") == [b'{"a":1}']
    assert lines.pending == 1


@pytest.mark.parametrize("step", [1, 7, 1000])
def test_a_line_that_is_too_long_is_not_kept(step: int) -> None:
    """Its two ends remain, what is kept stays small, and the next line is read."""
    lines = Lines(1000)
    stream = b"{head" + b"x" * 5000 + b"tail}\n" + b"{}\n"
    found: list[bytes | TooLong] = []
    for start in range(0, len(stream), step):
        found += lines.feed(stream[start : start + step])
        assert lines.pending <= 1000
    long, short = found
    assert isinstance(long, TooLong)
    assert long.head.startswith(b"{head")
    assert long.tail.endswith(b"tail}")
    assert short == b"{}"


def test_a_line_of_exactly_the_limit_is_kept() -> None:
    """One more byte is too many."""
    lines = Lines(10)
    assert lines.feed(b"{" + b"x" * 9 + b"\n") == [b"{" + b"x" * 9]
    (long,) = lines.feed(b"{" + b"x" * 10 + b"\n")
    assert isinstance(long, TooLong)


def test_a_line_may_be_skipped() -> None:
    """When its room is wanted for something else."""
    lines = Lines(1000)
    lines.feed(b'{"id":1,')
    lines.skip()
    assert lines.pending == 0
    assert lines.feed(b'"a":2}\n{}\n') == [TooLong(b'{"id":1,', b'{"id":1,"a":2}'), b"{}"]


def test_lines_without_a_brace_are_counted() -> None:
    """They can be no messages; blank ones are no lines at all."""
    lines = Lines(100)
    assert lines.feed(b"Hello\n\n\r\nReady\r\n{}\n[]\n") == [b"{}"]
    assert lines.strays == 3
    assert lines.feed(b"y\n" * 100_000) == []
    assert lines.strays == 100_003


HEADS = {
    '{"jsonrpc":"2.0","id":5,"result":{}}': Head(5),
    '{"result":{"id":7},"jsonrpc":"2.0","id":5}': Head(5),
    '{"jsonrpc":"2.0","id":5,"error":{}}\r': Head(5),
    '{"jsonrpc":"2.0","id":5,"method":"ping"}': Head(spontaneous=True),
    '{"jsonrpc":"2.0","method":"notifications/x","params":{"id":5}}': Head(spontaneous=True),
    '{"jsonrpc":"2.0","id":"5","result":{}}': Head(),
    '{"jsonrpc":"2.0","id":5.0,"result":{}}': Head(),
    '{"jsonrpc":"2.0","id":-5,"result":{}}': Head(),
    '{"jsonrpc":"2.0","id":null,"error":{}}': Head(),
    '{"jsonrpc":"2.0","error":{}}': Head(),
    "[1]": Head(),
    "{]": Head(),
    '{"jsonrpc":"2.0","id":5,"result":{]': Head(5),
    '{"jsonrpc": "2.0", "id": 5, "result": ' + "[" * 100_000: Head(5),
}


@pytest.mark.parametrize(("text", "head"), HEADS.items(), ids=range(len(HEADS)))
def test_heads(text: str, head: Head) -> None:
    """Our ids are whole numbers, and nothing else is one of them."""
    assert head_of(text.encode()) == head


@pytest.mark.parametrize(
    ("text", "number"),
    [
        ('{"jsonrpc":"2.0","id":12,"result":{"contents":[{"uri":"x"', 12),
        ('{ "jsonrpc" : "2.0" , "id" : 12 , "result":', 12),
        ('{"id":12,"jsonrpc":"2.0"', 12),
        ('"text":"x"}]},"jsonrpc":"2.0","id":12}', 12),
        ('"text":"x"}]},"id":12,"jsonrpc":"2.0"}\r', 12),
        ('{"result":{"jsonrpc":"2.0","id":12,', None),
        ('"x":{"a":1,"id":12}}', None),
        ('{"jsonrpc":"2.0","id":"12","result"', None),
        ('{"jsonrpc":"2.0","id":12345678901234567890,', None),
        ("", None),
    ],
)
def test_an_id_is_told_by_the_ends_of_a_message(text: str, number: int | None) -> None:
    """Where it stands first or last on the top level, and nowhere else."""
    ends = text.encode()
    assert likely_id(ends[:256], ends[-256:]) == number


json_texts = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=10,
)


@given(json_texts, st.sampled_from([None, 1, "\t"]))
def test_one_line_means_the_same(value: Any, indent: int | str | None) -> None:
    """Line breaks go, and what the text says stays."""
    text = json.dumps(value, indent=indent, ensure_ascii=False).replace("\n", "\r\n").encode()
    line = one_line(text)
    assert b"\n" not in line
    assert b"\r" not in line
    assert json.loads(line) == value
