"""URI templates (RFC 6570): is it one, what does it expand to and from what, what is certain of all it gives.

Expansion is left to `uritemplate`.  That is lenient where the RFC is not (to it an unclosed brace is text,
and an operator without a meaning expands to something), so the syntax is checked here: RFC 6570, section 2.

Hazard: a template comes from an upstream.  The grammar is written so that no text makes the match backtrack.
"""

import re
from collections.abc import Mapping
from functools import lru_cache
from typing import Any
from urllib.parse import quote

import uritemplate

from mcp_federator.federation.reversal import Reversal, Value

_PERCENT_ENCODED = "%[0-9A-Fa-f]{2}"

_BEYOND_ASCII = "\u00a0-\ud7ff\ue000-\ufdcf\ufdf0-\uffef" + "".join(
    f"{chr(plane << 16)}-{chr((plane << 16) + 0xFFFD)}" for plane in range(1, 17)
)
"""All but controls, surrogates and noncharacters (section 1.5, ucschar and iprivate)."""

_LITERAL = rf"[!#$&'(-;=?-\[\]_a-z~{_BEYOND_ASCII}]|{_PERCENT_ENCODED}"
"""Section 2.1, with the apostrophe of erratum 6937."""

_NAME = rf"(?:[A-Za-z0-9_]|{_PERCENT_ENCODED})++"
_VARIABLE = rf"{_NAME}(?:\.{_NAME})*+(?:\*|:[1-9][0-9]{{0,3}})?"
_EXPRESSION = rf"\{{[+#./;?&]?{_VARIABLE}(?:,{_VARIABLE})*+\}}"
"""Section 2.2, less the operators reserved for extensions: nobody can expand those."""

_TEMPLATE = re.compile(rf"(?:{_LITERAL}|{_EXPRESSION})*+")
_TO_ENCODE = re.compile(f"[{_BEYOND_ASCII}]+")
_BRACES = re.compile("[{}]")


def valid(text: str) -> bool:
    """Whether `text` is a URI template that every processor can expand."""
    return _TEMPLATE.fullmatch(text) is not None


def expand(text: str, values: Mapping[str, Any]) -> str:
    """The URI that a valid template gives for `values`: strings, lists of strings, or mappings of strings.

    Literals beyond ASCII are percent-encoded (section 3.1), which `uritemplate` leaves undone.  In
    two things it departs from section 3.2.7: `{;x*}` gives an empty item as `;x=`, not `;x`, and `{;x}` gives
    an empty list, which is undefined, as `;x=`.  Both ways match.
    """
    return uritemplate.expand(_encoded(text), dict(values))


def match(text: str, uri: str) -> dict[str, Value] | None:
    """The values from which a template makes `uri`, or None where there are none.

    What comes back expands to `uri` again, but for escapes and the order of a mapping.  It is what was put in
    wherever that can be told from the URI; `federation.reversal` says where it cannot.  The time is linear in
    the length of `uri`, and one of more than 8,192 characters matches nothing.

    Raises:
        ValueError: `text` is no template, or has a prefix length (`{x:3}`), which cannot be reversed.
    """
    return reversal(text).match(uri)


@lru_cache(maxsize=256)
def reversal(text: str) -> Reversal:
    """The template, ready to be matched; raises what `match` raises."""
    if not valid(text):
        raise ValueError("no URI template (RFC 6570)")
    return Reversal(_BRACES.split(_encoded(text)))


def literal_head(text: str) -> str:
    """What every expansion of a valid template begins with, as it is written in the template."""
    return text.partition("{")[0]


def _encoded(text: str) -> str:
    """The template with its literals as they stand in URIs."""
    return _TO_ENCODE.sub(lambda found: quote(found[0]), text)
