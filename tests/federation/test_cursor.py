"""Composite cursors: invariant 2, and every kind of text that is none of ours."""

from base64 import urlsafe_b64decode, urlsafe_b64encode

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mcp_federator.federation.cursor import (
    MAX_CHARS,
    MAX_PLACES,
    MAX_UPSTREAM_CURSOR,
    CompositeCursor,
    Place,
    Seal,
)
from mcp_federator.model import Method, Scope

SEAL = Seal([b"first secret"])

texts = st.text(st.characters(exclude_categories=["Cs"]))
names = st.from_regex(r"[a-z][a-z0-9-]{0,30}", fullmatch=True)
places = st.builds(
    Place,
    upstream=names,
    identity=st.binary(min_size=4, max_size=4),
    cursor=st.none() | texts,
    carried=st.booleans(),
)
cursors = st.builds(
    CompositeCursor,
    method=st.sampled_from([Method.LIST, Method.TEMPLATES]),
    scope=st.sampled_from(Scope),
    places=st.lists(places, max_size=8).map(tuple),
    waiting=st.lists(names, max_size=8).map(tuple),
)

ONE = CompositeCursor(Method.LIST, Scope.PUBLIC, (Place("alpha", b"\0\1\2\3", ""),), ("beta",))
TEXT = SEAL.encode(ONE)


def refused(text: str) -> bool:
    """Whether the text is no cursor of ours; anything but ValueError is a mistake."""
    try:
        SEAL.decode(text, Method.LIST)
    except ValueError:
        return True
    return False


@given(cursors)
def test_invariant_2_decode_is_the_inverse_of_encode(cursor: CompositeCursor) -> None:
    """Any walk comes back as it was written, `""` and None apart."""
    text = SEAL.encode(cursor)

    assert cursor == SEAL.decode(text, cursor.method)
    assert text.isascii()
    assert "=" not in text


@given(st.text())
def test_invariant_2_any_other_text_is_refused(text: str) -> None:
    """Text that we did not write raises ValueError and nothing else."""
    assert refused(text)


@given(st.integers(0, len(TEXT) - 1), st.characters())
def test_H09b_one_changed_character_is_refused(at: int, other: str) -> None:
    """No character of a cursor can be changed, not even one whose bits base64 ignores."""
    text = TEXT[:at] + other + TEXT[at + 1 :]
    assert refused(text) is (text != TEXT)


@given(st.integers(0, 8 * len(urlsafe_b64decode(TEXT + "=" * (-len(TEXT) % 4))) - 1))
def test_H09b_one_flipped_bit_is_refused(bit: int) -> None:
    """Version, seal and content are all covered."""
    raw = bytearray(urlsafe_b64decode(TEXT + "=" * (-len(TEXT) % 4)))
    raw[bit // 8] ^= 1 << bit % 8

    assert refused(urlsafe_b64encode(raw).rstrip(b"=").decode())


@pytest.mark.parametrize(
    "text",
    [
        pytest.param("", id="empty"),
        pytest.param("bogus", id="H09a-bogus"),
        pytest.param("A" * 1_000_000, id="H09e-1MB"),
        pytest.param(TEXT + "=", id="padded"),
        pytest.param(TEXT + "\n", id="newline"),
        pytest.param(" " + TEXT, id="blank"),
        pytest.param(TEXT[:-1], id="cut"),
        pytest.param(TEXT + "A", id="longer"),
        pytest.param(TEXT + TEXT, id="twice"),
        pytest.param("é" + TEXT, id="not-ascii"),
        pytest.param("\ud800", id="surrogate"),
        pytest.param("AQ", id="version-alone"),
    ],
)
def test_H09_text_that_is_no_cursor_of_ours_is_refused(text: str) -> None:
    """Each raises ValueError, whatever is wrong with it."""
    assert refused(text)


def test_H09e_an_oversized_text_is_refused_by_its_length() -> None:
    """Even a correctly sealed text is not decoded beyond the cap."""
    text = SEAL.encode(
        CompositeCursor(Method.LIST, Scope.PUBLIC, (Place("a", b"1234", "x" * MAX_CHARS),), ())
    )

    with pytest.raises(ValueError, match="longer"):
        SEAL.decode(text, Method.LIST)


def test_the_fullest_walk_fits_under_the_cap() -> None:
    """A full window of cursors of full length, and more upstreams waiting than anybody has."""
    full = tuple(
        Place(f"{i:031d}", b"1234", "x" * MAX_UPSTREAM_CURSOR, carried=True) for i in range(MAX_PLACES)
    )
    cursor = CompositeCursor(Method.TEMPLATES, Scope.PRIVATE, full, tuple(f"{i:031d}" for i in range(3500)))

    assert cursor == SEAL.decode(SEAL.encode(cursor), Method.TEMPLATES)


@pytest.mark.parametrize("method", [Method.TEMPLATES, Method.READ, Method.DISCOVER])
def test_H09c_a_cursor_of_another_list_is_refused(method: Method) -> None:
    """A cursor is bound to the list that gave it."""
    with pytest.raises(ValueError, match="another list"):
        SEAL.decode(TEXT, method)


def test_a_cursor_sealed_with_another_secret_is_refused() -> None:
    """Whoever does not know the secret cannot make a cursor."""
    with pytest.raises(ValueError, match="not sealed by us"):
        Seal([b"another secret"]).decode(TEXT, Method.LIST)


def test_the_first_secret_seals_and_all_open() -> None:
    """Secrets are rotated by putting a new one in front."""
    rotated = Seal([b"second secret", b"first secret"])

    assert rotated.decode(TEXT, Method.LIST) == ONE
    assert Seal([b"second secret"]).decode(rotated.encode(ONE), Method.LIST) == ONE


def test_a_cursor_survives_a_restart() -> None:
    """Two seals made of one secret write the same text."""
    assert Seal([b"first secret"]).encode(ONE) == TEXT


@pytest.mark.parametrize("secrets", [[], [b""], [b"one", b""]], ids=["none", "empty", "one-empty"])
def test_a_seal_without_a_secret_is_refused(secrets: list[bytes]) -> None:
    """An empty secret seals nothing."""
    with pytest.raises(ValueError, match="secrets"):
        Seal(secrets)
