import pytest
from hypothesis import given
from hypothesis import strategies as st

from mcp_federator.cache import notice
from mcp_federator.cache.notice import Asked, Heard, Kind, Landed, Message, Notice, Told, Verdict
from mcp_federator.model import Change, Event, Method


@pytest.mark.parametrize(
    "message",
    [
        *(Told(b"by", "alpha.00", kind) for kind in Kind),
        Told(b"by", "alpha.00", Kind.RESOURCE, "x://ü"),
        *(Landed(b"lane", verdict) for verdict in Verdict),
        Asked(b"by", 7),
        Heard(b"by", 7),
    ],
    ids=str,
)
def test_what_is_said_is_heard(message: Message) -> None:
    """Each message, whole; cut short or from another version it is none."""
    said = notice.write(message)
    assert notice.read(said) == message
    assert all(notice.read(said[:end]) is None for end in range(len(said)))
    assert notice.read(b"2" + said[1:]) is None


@given(st.binary(max_size=200) | st.binary(max_size=200).map(lambda rest: b"1" + rest))
def test_whatever_is_said_hearing_never_raises(payload: bytes) -> None:
    """Others may speak on the channel."""
    notice.read(payload)


@pytest.mark.parametrize("payload", [None, "1", 1, [], b"1" + bytes(2 << 20), b"1" + b"\x91" * 100_000])
def test_what_is_no_message_is_none(payload: object) -> None:
    """Of another type, too long, or too deep."""
    assert notice.read(payload) is None


@pytest.mark.parametrize(
    ("event", "declared"),
    [
        (Event("a", Change.LIST), (Notice(Kind.LIST), Notice(Kind.TEMPLATES))),
        (Event("a", Change.RESOURCE, "x://1"), (Notice(Kind.RESOURCE, "x://1"),)),
        (Event("a", Change.RESOURCE), (Notice(Kind.RESOURCES),)),
        (Event("a", Change.GAP), (Notice(Kind.GAP),)),
    ],
    ids=str,
)
def test_each_event_is_declared(event: Event, declared: tuple[Notice, ...]) -> None:
    """As it is declared to `Generations`."""
    assert notice.notices(event) == declared


def test_one_list_can_be_forgotten_alone() -> None:
    """The other keeps its pages."""
    assert [notice.pages(method).kind for method in (Method.LIST, Method.TEMPLATES)] == [
        Kind.LIST,
        Kind.TEMPLATES,
    ]
