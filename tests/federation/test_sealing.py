"""Sealed texts: what cursors and session ids rest on; test_cursor.py has every way to forge one."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mcp_federator.federation.sealing import Sealing

SECRETS = [b"first secret"]


def sealing(purpose: bytes = b"a purpose", version: bytes = b"\x01") -> Sealing:
    return Sealing(SECRETS, purpose, version)


@given(st.binary(max_size=200))
def test_what_was_sealed_opens_again(content: bytes) -> None:
    """On any process with the secret, whatever the content; and the text is visible ASCII."""
    text = sealing().seal(content)
    assert sealing().open(text) == content
    assert text.isascii()
    assert text.isprintable()


@pytest.mark.parametrize(
    ("other", "problem"),
    [
        (sealing(purpose=b"another"), "not sealed"),
        (sealing(version=b"\x02"), "version"),
        (Sealing([b"other secret"], b"a purpose", b"\x01"), "not sealed"),
    ],
    ids=["purpose", "version", "secret"],
)
def test_another_kind_of_text_does_not_open(other: Sealing, problem: str) -> None:
    """A text is bound to its purpose, its version and its secret."""
    with pytest.raises(ValueError, match=problem):
        other.open(sealing().seal(b"content"))
