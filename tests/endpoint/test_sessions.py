"""Legacy session ids: who knows them, and until when."""

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mcp_federator.endpoint import sessions
from mcp_federator.endpoint.sessions import LIFE_SECONDS, Session, Sessions
from mcp_federator.federation.cursor import CompositeCursor, Seal
from mcp_federator.model import Method, Scope
from mcp_federator.protocol.vocabulary import LEGACY

KEYS = [b"first secret"]


class Clock:
    def __init__(self) -> None:
        self.now = 1_800_000_000.5

    def __call__(self) -> float:
        return self.now


def found(where: Sessions, text: str) -> Session:
    session = where.find(text)
    assert session is not None
    return session


@pytest.mark.parametrize("version", LEGACY)
def test_every_process_with_the_secret_knows_a_session(version: str) -> None:
    """The id says all there is to it, in visible ASCII, and no two are the same."""
    clock = Clock()
    here, there = Sessions(KEYS, clock), Sessions([b"newer secret", *KEYS], clock)
    text = here.begin(version)
    assert re.fullmatch(r"[!-~]{1,256}", text)
    assert found(there, text) == found(here, text)
    assert found(there, text).version == version
    assert here.begin(version) != text


def test_a_session_of_another_secret_is_unknown() -> None:
    """Nobody without the secret makes one; a cursor sealed under it is none either."""
    assert Sessions([b"other secret"]).find(Sessions(KEYS).begin(LEGACY[0])) is None
    cursor = Seal(KEYS).encode(CompositeCursor(Method.LIST, Scope.PUBLIC, (), ()))
    assert Sessions(KEYS).find(cursor) is None


@given(st.text())
def test_any_other_text_is_no_session(text: str) -> None:
    """Whatever a client sends is looked at without failing."""
    assert Sessions(KEYS).find(text) is None


@given(st.integers(0, 1000), st.characters(codec="ascii"))
def test_one_changed_character_is_no_session(at: int, other: str) -> None:
    """No character can be changed."""
    where = Sessions(KEYS)
    text = where.begin(LEGACY[0])
    at %= len(text)
    changed = text[:at] + other + text[at + 1 :]
    assert (where.find(changed) is None) is (changed != text)


def test_a_long_text_is_not_decoded() -> None:
    """Length is looked at first."""
    assert Sessions(KEYS).find("A" * 1_000_000) is None


def test_a_session_expires() -> None:
    """At its second and not before, everywhere."""
    clock = Clock()
    where = Sessions(KEYS, clock)
    text = where.begin(LEGACY[0])
    expires = found(where, text).expires
    assert clock.now - 1 < expires - LIFE_SECONDS <= clock.now
    clock.now = expires - 0.001
    assert where.find(text) is not None
    clock.now = expires
    assert where.find(text) is None


def test_an_ended_session_is_over_here() -> None:
    """The process that was told knows; another goes on until the session expires."""
    here, there = Sessions(KEYS), Sessions(KEYS)
    text, other = here.begin(LEGACY[0]), here.begin(LEGACY[0])
    here.end(found(here, text))
    assert here.find(text) is None
    assert here.find(other) is not None
    assert there.find(text) is not None


def test_what_is_remembered_of_ended_sessions_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    """Beyond the bound the longest ended goes; what has expired goes first of all."""
    monkeypatch.setattr(sessions, "MAX_ENDED", 3)
    clock = Clock()
    where = Sessions(KEYS, clock)
    texts = [where.begin(LEGACY[0]) for _ in range(4)]
    for text in texts:
        where.end(found(where, text))
    assert [where.find(text) is None for text in texts] == [False, True, True, True]
    clock.now = found(where, texts[0]).expires - 0.001
    fresh = [where.begin(LEGACY[0]) for _ in range(2)]
    where.end(found(where, fresh[0]))
    assert len(where._ended) == 3, "none has expired: the longest ended went"
    clock.now += 0.001
    where.end(found(where, fresh[1]))
    assert len(where._ended) == 2


def test_a_revision_we_no_longer_speak_is_no_session() -> None:
    """What another version of this program agreed on need not hold here."""
    where = Sessions(KEYS)
    assert where.find(where.begin("2024-11-05")) is None
