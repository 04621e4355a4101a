"""What must hold of a JSON text before any of it is decoded or carried on.

`msgspec.Raw` carries members through byte for byte, and its scanner is strict about grammar, control
characters, escapes and surrogates.  Three things it lets pass, and each can break whoever reads the bytes
after us: bytes that are no UTF-8, nesting without end, and numbers that no double holds (many readers fail on
them, some crash).  A fourth it hides: of two members with one name the last wins silently.  Here all four are
found.

Only functions from bytes to a verdict may come in.  A verdict is a `ValueError` whose message never quotes
the text.

The method: whatever lies in strings is removed by whole-buffer operations (`replace`, `translate`, one
regular expression), and questions are put to the little that remains.  No loop here runs over the text's
characters.  Hazard: the removal presumes that backslashes stand in strings only and that quotes pair; where
they do not, the text is no JSON, and the decoder says so.  The verdict "good" is therefore worth something
only together with a decode.
"""

import re
from math import isinf
from typing import Final

import msgspec

MAX_DEPTH: Final = 64
"""How deep objects and arrays may nest; far above what MCP needs, far below where parsers give up."""

_BRACKETS: Final = bytes.maketrans(b"{}", b"[]")
_NOT_BRACKETS: Final = bytes(set(range(256)) - set(b'"[]{}'))
_NOT_COMMAS: Final = bytes(set(range(256)) - set(b'",'))
_STRING: Final = re.compile(rb'"[^"]*"')

# A number past the largest double, 1.8E308, has three digits in its exponent or, with two, 210 before it.
_DIGITS: Final = bytes(
    ord("0") if byte in b"0123456789" else ord("e") if byte in b"eE" else ord(" ") for byte in range(256)
)
_LONG: Final = b"0" * 200
_STEEP: Final = b"e000"
_NUMBER: Final = re.compile(rb"-?[0-9][0-9.eE+-]*")

_OBJECT: Final = msgspec.json.Decoder(dict[str, msgspec.Raw])


def check_text(body: bytes, *, depth: int = MAX_DEPTH) -> None:
    """Pass a text that is UTF-8, nests at most `depth` deep and holds only numbers that a double can hold.

    Whether it is JSON is left to the decoder.

    Raises:
        ValueError: one of the three does not hold.
    """
    check_encoding(body)
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


def members(text: bytes) -> dict[str, msgspec.Raw]:
    """The members of the object that `text` is.

    Raises:
        ValueError: it is no object, or two members have one name, in whatever spelling.
    """
    found = _OBJECT.decode(text)
    # What is left of the text without its names has as many commas, unless a member was lost.
    if _commas(text) != _commas(b",".join(found.values())):
        raise ValueError("two members of one object have the same name")
    return found


def _commas(text: bytes) -> int:
    return _outline(text, _NOT_COMMAS).count(b",")


def _outline(text: bytes, unwanted: bytes) -> bytes:
    """Of what stands outside strings, all but the unwanted; braces become brackets."""
    marks = _unescaped(text).translate(_BRACKETS, unwanted)
    # Two quotes side by side are an empty string, or they join two strings into one: all vanish anyhow.
    return _STRING.sub(b"", marks.replace(b'""', b""))


def _unescaped(text: bytes) -> bytes:
    """The text without those escapes that hide where a string ends; backslashes pair from the left."""
    return text.replace(b"\\\\", b"").replace(b'\\"', b"") if b"\\" in text else text


def _check_numbers(body: bytes) -> None:
    for number in _NUMBER.findall(_STRING.sub(b" ", _unescaped(body))):
        if isinf(float(number)):
            raise ValueError("a number is beyond what a double can hold")
