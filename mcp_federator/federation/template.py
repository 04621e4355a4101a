"""URI templates (RFC 6570): is it one, what does it expand to, and what is certain of all it can give.

Expansion is left to `uritemplate`.  That is lenient where the RFC is not (to it an unclosed brace is text,
and an operator without a meaning expands to something), so the syntax is checked here: RFC 6570, section 2.

Hazard: a template comes from an upstream.  The grammar is written so that no text makes the match backtrack.
"""

import re
from collections.abc import Mapping
from typing import Any
from urllib.parse import quote

import uritemplate

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


def valid(text: str) -> bool:
    """Whether `text` is a URI template that every processor can expand."""
    return _TEMPLATE.fullmatch(text) is not None


def expand(text: str, values: Mapping[str, Any]) -> str:
    """The URI that a valid template gives for `values`: strings, lists of strings, or mappings of strings.

    Literals beyond ASCII are percent-encoded (section 3.1), which `uritemplate` leaves undone.
    """
    return uritemplate.expand(_TO_ENCODE.sub(lambda found: quote(found[0]), text), dict(values))


def literal_head(text: str) -> str:
    """What every expansion of a valid template begins with, as it is written in the template."""
    return text.partition("{")[0]
