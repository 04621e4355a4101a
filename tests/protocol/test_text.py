"""What must hold of a text is checked exactly, although nobody walks over its characters."""

import json
import math
import re
from collections.abc import Callable
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from mcp_federator.protocol.text import MAX_DEPTH, MAX_VALUES, _outside, _unescaped, check_text, members

# Text made of what the checks look for: brackets, quotes, backslashes, digits and exponents.
awkward = st.text(st.sampled_from('[]{}",:\\/0123456789eE+-. aé\n'), max_size=20)
values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | awkward,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(awkward, inner, max_size=4),
    max_leaves=20,
)
writers: st.SearchStrategy[Callable[[Any], str]] = st.sampled_from(
    [
        lambda value: json.dumps(value, separators=(",", ":")),
        lambda value: json.dumps(value, ensure_ascii=False),
        lambda value: json.dumps(value, indent=2),
    ]
)


def refused(text: bytes, *, depth: int = MAX_DEPTH) -> bool:
    try:
        check_text(text, depth=depth)
    except ValueError:
        return True
    return False


def well_formed(text: bytes) -> bool:
    try:
        msgspec.json.decode(text)
    except ValueError:
        return False
    return True


def depth_of(value: Any) -> int:
    inner = value.values() if isinstance(value, dict) else value if isinstance(value, list) else None
    return 0 if inner is None else 1 + max(map(depth_of, inner), default=0)


@given(values, writers, st.integers(1, 4))
def test_depth_is_exact(value: Any, write: Callable[[Any], str], depth: int) -> None:
    """A text is refused if and only if it nests deeper than allowed, whatever its strings hold."""
    text = write(value).encode()
    assert refused(text, depth=depth) == (depth_of(value) > depth)


@pytest.mark.parametrize(
    ("opening", "closing"), [(b"[", b"]"), (b'{"a":', b"}"), (b'[{"a":', b"}]"), (b'["]",', b"]")]
)
def test_H15_sixty_four_levels_pass_and_one_more_does_not(opening: bytes, closing: bytes) -> None:
    """The limit counts arrays and objects alike, and no bracket in a string."""
    levels = MAX_DEPTH // len(opening.translate(None, delete=b'"a:],'))
    assert not refused(opening * levels + b'"["' + closing * levels)
    assert refused(b"[" + opening * levels + b'"["' + closing * levels + b"]")


@pytest.mark.parametrize(
    "text",
    [
        b"[" * 100_000,
        b'{"a":' * 100_000,
        b"[[]" * 100_000,
        b"[" * 100_000 + b"]" * 100_000,
        b'["' * 100_000 + b'"]' * 100_000,
        b"]" * 100_000 + b"[" * 100_000,
    ],
    ids=["arrays", "objects", "crooked", "closed", "hidden", "reversed"],
)
def test_H15_absurd_nesting_is_a_plain_refusal(text: bytes) -> None:
    """However deep, the check or the decoder behind it says ValueError; nothing overflows."""
    assert refused(text) or not well_formed(text)


@pytest.mark.parametrize(
    "text",
    [
        b'"\xff"',
        b'"\xc0\xaf"',
        b'"\xed\xa0\x80"',
        b'"\xe2\x82',
        b'"\xf5\x80\x80\x80"',
        '"ü"'.encode("latin-1"),
    ],
    ids=["stray", "overlong", "surrogate", "cut", "beyond", "latin-1"],
)
def test_one_bad_byte_is_refused(text: bytes) -> None:
    """Bytes that are no UTF-8 do not pass, wherever they stand."""
    assert refused(text)
    assert refused(b'{"a":[' + text + b"]}")


@pytest.mark.parametrize(
    "number",
    [
        b"9" * 5000,
        b"-" + b"9" * 5000,
        b"1E400",
        b"-1e+400",
        b"1" + b"0" * 309,
        b"9" * 220 + b"e99",
        b"0.1e310",
        b"1.8e308",
        b"1e99999999999",
    ],
    ids=lambda number: number[:12].decode(),
)
def test_H14_numbers_beyond_a_double_are_refused(number: bytes) -> None:
    """What common readers turn into infinity, or fail on, is no number to pass on."""
    assert refused(b'{"n":' + number + b"}")
    assert refused(b"[0," + number + b"]")


@pytest.mark.parametrize(
    "number",
    [
        b"9007199254740993",
        b"9223372036854775808",
        b"1.10",
        b"1e2",
        b"1E-7",
        b"-0.0",
        b"1.7e308",
        b"1e-400",
        b"0.000e400",
        b"1e0000000000000308",
        b"9" * 308,
        b"0." + b"3" * 5000,
    ],
    ids=lambda number: number[:12].decode(),
)
def test_H14_numbers_that_a_double_holds_pass(number: bytes) -> None:
    """Long, small, exact or oddly spelled: still a number that everybody reads."""
    assert not refused(b'{"n":' + number + b"}")
    assert not refused(number)


@pytest.mark.parametrize("string", [b'"1E400"', b'"' + b"9" * 5000 + b'"', b'"\\"1e400"', b'"\\\\","1e400"'])
def test_H14_digits_in_strings_are_text(string: bytes) -> None:
    """A blob or a digest may look like any number."""
    assert not refused(b"[" + string + b",1e40]")


@pytest.mark.parametrize(
    ("one", "room"),
    [(b"1", 1), (b'"",""', 2), (b"[]", 2), (b'{"a":1,"b":2}', 3)],
    ids=["numbers", "strings", "arrays", "objects"],
)
def test_values_are_counted(one: bytes, room: int) -> None:
    """A text of as many values as allowed passes, one of more does not; commas in strings are text."""
    many = MAX_VALUES // room
    text = b'"%b"' % (b",[{" * MAX_VALUES)
    assert not refused(b"[" + b",".join([one] * (many - 2) + [text]) + b"]")
    assert refused(b"[" + b",".join([one] * (many + 1) + [text]) + b"]")


@given(values, writers, st.integers(1, 40))
def test_strings_are_passed_over_wherever_a_slice_ends(
    value: Any, write: Callable[[Any], str], size: int
) -> None:
    """What stands outside strings does not depend on how the text is cut."""
    text = _unescaped(write(value).encode())
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("mcp_federator.protocol.text._SLICE", size)
        assert _outside(text) == re.sub(rb'"[^"]*"', b"", text)


numbers = st.from_regex(r"-?(0|[1-9][0-9]{0,350})(\.[0-9]{1,3})?([eE][+-]?[0-9]{1,4})?", fullmatch=True)


@given(values, writers, numbers)
def test_H14_the_check_of_numbers_is_exact(value: Any, write: Callable[[Any], str], number: str) -> None:
    """A text is refused if and only if a reader would see infinity."""
    text = write([value, "@", value]).replace('"@"', number)
    assert refused(text.encode()) == math.isinf(float(number))


def escaped(name: str) -> str:
    return '"' + "".join(f"\\u{ord(character):04x}" for character in name) + '"'


names = st.lists(st.sampled_from(["a", "b", 'a"', "a\\", "a,", "{", "[a", "é", ""]), max_size=5)
spellings: st.SearchStrategy[Callable[[str], str]] = st.sampled_from(
    [json.dumps, lambda name: json.dumps(name, ensure_ascii=False), escaped]
)


@given(names, st.data())
def test_equal_names_are_found_in_any_spelling(names: list[str], data: st.DataObject) -> None:
    """An object is refused if and only if two of its own members have one name."""
    parts = [f"{data.draw(spellings)(name)} :{data.draw(values.map(json.dumps))}" for name in names]
    text = ("{" + " , ".join(parts) + "}").encode()
    if len(set(names)) == len(names):
        assert list(members(text)) == names
    else:
        with pytest.raises(ValueError, match="same name"):
            members(text)


def test_members_are_kept_byte_for_byte() -> None:
    """Values come back in their own spelling."""
    found = members(b'{"a":1.10,"b":[ 1e2 ],"c":"\\u0041"}')
    assert {name: bytes(value) for name, value in found.items()} == {
        "a": b"1.10",
        "b": b"[ 1e2 ]",
        "c": b'"\\u0041"',
    }


@pytest.mark.parametrize("text", [b"[]", b"1", b"null", b'"{}"', b"", b"{", b"{,}", b'{"a":1}}'])
def test_only_objects_have_members(text: bytes) -> None:
    """Anything else is a ValueError."""
    with pytest.raises(ValueError, match=r"."):
        members(text)
