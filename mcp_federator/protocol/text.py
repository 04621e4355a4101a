"""What must hold of a JSON text before any of it is decoded or carried on.

`msgspec.Raw` carries members through byte for byte, and its scanner is strict about grammar, control
characters, escapes and surrogates.  Three things it lets pass, and each can break whoever reads the bytes
after us: bytes that are no UTF-8, nesting without end, and numbers that no double holds (many readers fail on
them, some crash).  A fourth it hides: of two members with one name the last wins silently.  Here all four are
found.

Only functions from bytes to a verdict may come in.  A verdict is a `ValueError` whose message never quotes
the text.

The method: whatever lies in strings is removed by operations on buffers (`replace`, `translate`, `split`),
and questions are put to the little that remains.  No loop here runs over the text's characters.

Hazards:
- The removal presumes that backslashes stand in strings only and that quotes pair; where they do not, the
  text is no JSON, and the decoder says so.  The verdict "good" is therefore worth something only together
  with a decode.
- One operation on a buffer, or one decode, lets nothing else in the process run until it ends, in whatever
  thread.  What costs more with each string takes a slice at a time, and how many values a text may hold is
  limited before anybody decodes it.
"""

import re
from math import isinf
from typing import Final

import msgspec

MAX_DEPTH: Final = 64
"""How deep objects and arrays may nest; far above what MCP needs, far below where parsers give up."""

MAX_VALUES: Final = 500_000
"""How many values a text may hold, those within others included; 16 MiB of real pages hold fewer."""

_SLICE: Final = 1 << 16

_BRACKETS: Final = bytes.maketrans(b"{}", b"[]")
_NOT_BRACKETS: Final = bytes(set(range(256)) - set(b'"[]{}'))
_NOT_VALUES: Final = bytes(set(range(256)) - set(b'",[]{}'))
_NOT_COMMAS: Final = bytes(set(range(256)) - set(b'",'))

# A number past the largest double, 1.8E308, has three digits in its exponent or, with two, 210 before it.
_DIGITS: Final = bytes(
    ord("0") if byte in b"0123456789" else ord("e") if byte in b"eE" else ord(" ") for byte in range(256)
)
_LONG: Final = b"0" * 200
_STEEP: Final = b"e000"
_NUMBER: Final = re.compile(rb"-?[0-9][0-9.eE+-]*")

_OBJECT: Final = msgspec.json.Decoder(dict[str, msgspec.Raw])


def check_text(body: bytes, *, depth: int = MAX_DEPTH) -> None:
    """Pass a text that is UTF-8, not too deep, and holds only so many values, and numbers that a double can.

    Whether it is JSON is left to the decoder.

    Raises:
        ValueError: one of the four does not hold.
    """
    check_encoding(body)
    _check_values(body)
    check_depth(body, depth=depth)
    digits = body.translate(_DIGITS, b"+")
    if _STEEP in digits or _LONG in digits:
        _check_numbers(body)


def check_encoding(body: bytes) -> None:
    """Pass UTF-8 (RFC 8259, section 8.1); raises ValueError."""
    if not body.isascii():
        try:
            body.decode()
        except UnicodeDecodeError:
            raise ValueError("the text is not UTF-8") from None


def check_depth(body: bytes, *, depth: int = MAX_DEPTH) -> None:
    """Pass a text that nests at most `depth` deep; raises ValueError."""
    if body.count(b"[") + body.count(b"{") <= depth:
        return
    brackets = _outline(body, _NOT_BRACKETS)
    # Each round takes the innermost level away; a text that only opens would stay as long as it is.
    if b"[" * (depth + 1) not in brackets:
        for _ in range(depth):
            brackets = brackets.replace(b"[]", b"")
            if not brackets:
                return
    raise ValueError(f"the text nests deeper than {depth}, or its brackets do not match")


def _check_values(body: bytes) -> None:
    # Most texts are too short for so many, or have too few marks even with those in strings.
    if len(body) <= MAX_VALUES or sum(map(body.count, (b",", b"[", b"{"))) <= MAX_VALUES:
        return
    marks = _outline(body, _NOT_VALUES)
    if marks.count(b",") + marks.count(b"[") > MAX_VALUES:
        raise ValueError(f"the text holds more than {MAX_VALUES} values")


def members(text: bytes) -> dict[str, msgspec.Raw]:
    """The members of the object that `text` is.

    Raises:
        ValueError: it is no object, or two members have one name, in whatever spelling.
    """
    found = _OBJECT.decode(text)
    if has_twins(text, found):
        raise ValueError("two members of one object have the same name")
    return found


def has_twins(text: bytes, found: dict[str, msgspec.Raw]) -> bool:
    """Whether two members of an object have one name, of which a decoder then found one."""
    # What is left of the text without its names has as many commas, unless a member was lost.
    return _commas(text) != _commas(b",".join(found.values()))


def _commas(text: bytes) -> int:
    return _outline(text, _NOT_COMMAS).count(b",")


def _outline(text: bytes, unwanted: bytes) -> bytes:
    """Of what stands outside strings, all but the unwanted; braces become brackets."""
    return _outside(_unescaped(text).translate(_BRACKETS, unwanted))


def _outside(text: bytes, between: bytes = b"") -> bytes:
    """What stands outside the strings of a text without escapes, with `between` in their place."""
    kept = []
    inside = False
    for start in range(0, len(text), _SLICE):
        parts = text[start : start + _SLICE].split(b'"')
        kept.append(between.join(parts[inside::2]))
        inside ^= len(parts) % 2 == 0
    return b"".join(kept)


def _unescaped(text: bytes) -> bytes:
    """The text without those escapes that hide where a string ends; backslashes pair from the left."""
    return text.replace(b"\\\\", b"").replace(b'\\"', b"") if b"\\" in text else text


def _check_numbers(body: bytes) -> None:
    for number in _NUMBER.finditer(_outside(_unescaped(body), between=b" ")):
        if isinf(float(number[0])):
            raise ValueError("a number is beyond what a double can hold")
