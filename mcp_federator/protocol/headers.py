"""HTTP header fields that carry protocol: `Mcp-Name`, trace context, `Cache-Status`.

Only values come in and go out; which message has which field is the dialect's affair (`modern`).

Hazard: whatever is written here ends in an HTTP head.  Only visible ASCII and blanks leave this module.
"""

import re
from base64 import b64decode, b64encode
from typing import Final

from mcp_federator.model import Outcome, Served, Trace

_MARK: Final = "=?base64?"
_END: Final = "?="


def encode_name(uri: str) -> str:
    """A value of `Mcp-Name` (transports/streamable-http, "Value Encoding").

    Printable ASCII stands for itself, unless it is empty, begins or ends with a blank, or looks encoded.
    """
    plain = uri.isascii() and uri.isprintable() and uri == uri.strip() != ""
    return uri if plain and not _is_encoded(uri) else f"{_MARK}{b64encode(uri.encode()).decode()}{_END}"


def decode_name(value: str) -> str:
    """The name that a value of `Mcp-Name` stands for; the markers are case-sensitive.

    Raises:
        ValueError: characters that no field may hold, or an encoding that is not canonical base64 of UTF-8.
    """
    if not (value.isascii() and value.replace("\t", "").isprintable()):
        raise ValueError("the value holds characters that a header field may not hold")
    if not _is_encoded(value):
        return value
    encoded = value[len(_MARK) : -len(_END)]
    name = b64decode(encoded)
    if b64encode(name).decode() != encoded:
        raise ValueError("the value is not base64")
    return name.decode()


def _is_encoded(value: str) -> bool:
    return value.startswith(_MARK) and value.endswith(_END) and len(value) >= len(_MARK) + len(_END)


_TRACEPARENT: Final = re.compile(
    r"(?!ff)[0-9a-f]{2}-(?!0{32})[0-9a-f]{32}-(?!0{16})[0-9a-f]{16}-[0-9a-f]{2}(?P<more>-[\x21-\x7e]*)?"
)
_STATE_MEMBER: Final = re.compile(
    r"(?:[a-z][a-z0-9_*/-]{0,255}|[a-z0-9][a-z0-9_*/-]{0,240}@[a-z][a-z0-9_*/-]{0,13})"
    r"=[\x20-\x2b\x2d-\x3c\x3e-\x7e]{0,255}[\x21-\x2b\x2d-\x3c\x3e-\x7e]"
)
_WORD: Final = r"[!#$%&'*+.^_`|~0-9A-Za-z-]+"
_OCTETS: Final = r"[\x21\x23-\x2b\x2d-\x3a\x3c-\x5b\x5d-\x7e]*+"
_BLANKS: Final = r"[ \t]*+"
# Nothing in it gives back what it took: blanks around an empty value can be shared out in too many ways.
_BAGGAGE_MEMBER: Final = re.compile(
    rf"{_WORD}+{_BLANKS}={_BLANKS}{_OCTETS}"
    rf"(?:{_BLANKS};{_BLANKS}{_WORD}+(?:{_BLANKS}={_BLANKS}{_OCTETS})?+)*+{_BLANKS}"
)
MAX_TRACE_FIELD: Final = 8192
"""Longest `traceparent`, `tracestate` or `baggage` that goes on, in characters."""


def trace(traceparent: str | None, tracestate: str | None = None, baggage: str | None = None) -> Trace | None:
    """The trace context of a request, of `_meta` or of header fields (W3C Trace Context 2, W3C Baggage).

    What breaks the syntax is dropped without a word; without a sound `traceparent` there is no context.
    """
    if traceparent is None or len(traceparent) > MAX_TRACE_FIELD:
        return None
    match = _TRACEPARENT.fullmatch(traceparent)
    # Later versions may append fields; version 00 may not.
    if match is None or (match["more"] is not None and traceparent.startswith("00")):
        return None
    return Trace(
        traceparent,
        _sound(tracestate, _STATE_MEMBER, most=32),
        _sound(baggage, _BAGGAGE_MEMBER, most=64),
    )


def _sound(value: str | None, member: re.Pattern[str], *, most: int) -> str | None:
    """The list when it has one to `most` members and each is sound; empty members do not count."""
    if value is None or len(value) > MAX_TRACE_FIELD:
        return None
    found = [part for item in value.split(",") if (part := item.strip(" \t"))]
    return value if 0 < len(found) <= most and all(map(member.fullmatch, found)) else None


def cache_status(served: Served) -> str:
    """The one member of `Cache-Status` that tells how an answer came about (RFC 9211).

    A copy is a `hit` with its remaining life; what went upstream is told by `fwd` and why.  A stale copy
    served after the upstream was asked in vain went there; one served because the breaker is open did not.  A
    merged list is a hit only if all its parts are.
    """
    if served.hits or served.misses:
        copy, detail = not served.misses, f'"hit={served.hits} miss={served.misses}"'
    else:
        detail = served.detail
        copy = served.outcome is Outcome.HIT or (
            served.outcome is Outcome.STALE and detail != "stale-if-error"
        )
    if not copy:
        told = f"mcp-federator; fwd={_why_forwarded(served)}"
    elif served.fresh_for is None:
        told = "mcp-federator; hit"
    else:
        told = f"mcp-federator; hit; ttl={served.fresh_for}"
    return f"{told}; detail={detail}" if detail else told


def _why_forwarded(served: Served) -> str:
    if served.outcome is Outcome.BYPASS:
        return "bypass"
    why = "request" if served.refreshed else "stale" if served.found_stale else "miss"
    if served.outcome is Outcome.STALE:
        return "stale"
    if served.outcome is Outcome.COALESCED:
        return f"{why}; collapsed"
    return f"{why}; stored" if served.stored else why
