"""The memory of scopes, with time as a value."""

import pytest

from mcp_federator.federation.scopes import TELL_AGAIN, ListScopes
from mcp_federator.model import Method, Scope

PUBLIC, PRIVATE = Scope.PUBLIC, Scope.PRIVATE
HOUR, DAY = 3600.0, 86400.0


@pytest.mark.parametrize(
    ("pages", "now", "public"),
    [
        pytest.param([], 0.0, False, id="no-page-was-seen"),
        pytest.param([(PUBLIC, 0.0)], 0.0, True, id="public-at-once"),
        pytest.param([(PUBLIC, 0.0)], HOUR - 1, True, id="public-for-an-hour"),
        pytest.param([(PUBLIC, 0.0)], HOUR, False, id="then-not-known-any-more"),
        pytest.param([(PUBLIC, 0.0), (PUBLIC, 10.0)], HOUR, True, id="the-last-page-counts"),
        pytest.param([(PRIVATE, 0.0)], 0.0, False, id="private-at-once"),
        pytest.param([(PUBLIC, 0.0), (PRIVATE, 1.0)], 2.0, False, id="one-private-page-is-enough"),
        pytest.param([(PRIVATE, 0.0), (PUBLIC, 1.0)], 2.0, False, id="in-any-order"),
        pytest.param([(PRIVATE, 0.0), (PUBLIC, DAY - 1)], DAY - 1, False, id="private-for-max-ttl"),
        pytest.param([(PRIVATE, 0.0), (PUBLIC, DAY - 1)], DAY, True, id="and-no-longer"),
        pytest.param([(PRIVATE, 0.0), (PRIVATE, 5.0), (PUBLIC, DAY)], DAY, False, id="from-the-last-one-on"),
    ],
)
def test_a_list_counts_as_public(pages: list[tuple[Scope, float]], now: float, *, public: bool) -> None:
    """All pages of the last hour were public, and none was private within `max_ttl`."""
    scopes = ListScopes(max_ttl=DAY)
    for scope, at in pages:
        scopes.observe("alpha", Method.LIST, scope, at)

    assert public is scopes.public("alpha", Method.LIST, now)


def test_a_short_max_ttl_does_not_shorten_the_hour() -> None:
    """A private page of the last hour makes the list private even where nothing is kept that long."""
    scopes = ListScopes(max_ttl=60)
    scopes.observe("alpha", Method.LIST, PRIVATE, 0.0)
    scopes.observe("alpha", Method.LIST, PUBLIC, HOUR - 1)

    assert not scopes.public("alpha", Method.LIST, HOUR - 1)
    assert scopes.public("alpha", Method.LIST, HOUR)


def test_upstreams_and_lists_are_told_apart() -> None:
    """What one list says is said of that list alone."""
    scopes = ListScopes(max_ttl=DAY)
    scopes.observe("alpha", Method.LIST, PUBLIC, 0.0)
    scopes.observe("alpha", Method.TEMPLATES, PRIVATE, 0.0)

    assert scopes.public("alpha", Method.LIST, 1.0)
    assert not scopes.public("alpha", Method.TEMPLATES, 1.0)
    assert not scopes.public("beta", Method.LIST, 1.0)


def test_changes_grow_when_a_list_turns_private() -> None:
    """What was remembered of a public listing ends with the first private page, not with each."""
    scopes = ListScopes(max_ttl=DAY)
    scopes.observe("alpha", Method.LIST, PUBLIC, 0.0)
    assert scopes.changes == 0

    scopes.observe("alpha", Method.LIST, PRIVATE, 1.0)
    scopes.observe("alpha", Method.LIST, PRIVATE, 2.0)
    assert scopes.changes == 1

    scopes.observe("alpha", Method.LIST, PRIVATE, DAY + 2.0)
    assert scopes.changes == 2


def test_a_private_page_is_told_once_a_minute() -> None:
    """With the time for which it counts; a public one is not."""
    told: list[tuple[str, Method, float]] = []
    scopes = ListScopes(DAY, lambda *what: told.append(what))
    scopes.observe("alpha", Method.LIST, PUBLIC, 0.0)
    for at in (0.0, 1.0, TELL_AGAIN - 1):
        scopes.observe("alpha", Method.LIST, PRIVATE, at)
    assert told == [("alpha", Method.LIST, DAY)]
    scopes.observe("alpha", Method.TEMPLATES, PRIVATE, 1.0)
    scopes.observe("alpha", Method.LIST, PRIVATE, TELL_AGAIN)
    assert told[1:] == [("alpha", Method.TEMPLATES, DAY), ("alpha", Method.LIST, DAY)]


def test_what_another_process_saw_counts_as_long_as_it_says() -> None:
    """It shortens nothing that is known here, ends what was remembered once, and is not told on."""
    told: list[object] = []
    scopes = ListScopes(DAY, lambda *what: told.append(what))
    scopes.observe("alpha", Method.LIST, PUBLIC, 0.0)
    for _ in range(2):
        scopes.hear("alpha", Method.LIST, 100, 0.0)
        assert scopes.changes == 1
    scopes.hear("alpha", Method.LIST, 50, 1.0)
    assert not scopes.public("alpha", Method.LIST, 99)
    assert scopes.public("alpha", Method.LIST, 100)
    assert not told
