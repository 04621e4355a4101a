from math import inf

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mcp_federator.cache import generations
from mcp_federator.cache.generations import Generations
from mcp_federator.model import Method, Query


def read(uri: str) -> Query:
    return Query(Method.READ, uri=uri)


CHANGED = "file:///srv/docs/a.md?lang=de#top"


@pytest.mark.parametrize(
    ("uri", "gone"),
    [
        (CHANGED, True),
        ("file:///srv/docs/a.md?lang=de", True),
        ("file:///srv/docs/a.md", True),
        ("file:///srv/docs/", True),
        ("file:///srv/docs", True),
        ("file:///", True),
        ("file:///srv/doc", False),
        ("file:///srv/docs/a", False),
        ("file:///srv/docs/b.md", False),
        ("file:///srv/docs/a.md?lang=de#top/part", False),
        ("File:///srv/docs", False),
        ("", False),
    ],
    ids=str,
)
def test_H31_a_change_reaches_what_the_resource_is_a_part_of(uri: str, gone: bool) -> None:
    """The resource itself and each level above it get a new generation; nothing beside or below does."""
    known = Generations()
    before = known.of(read(uri))
    known.change_resource(CHANGED)
    assert (known.of(read(uri)) != before) is gone


@given(st.text(), st.text())
def test_a_change_never_leaves_a_generation_as_it_was(uri: str, other: str) -> None:
    """Twice changed is twice new, and no generation comes back."""
    known = Generations()
    seen = {known.of(read(uri))}
    for changed in (uri, other, uri, uri + other, uri):
        known.change_resource(changed)
        seen.add(known.of(read(uri)))
    assert len(seen) >= 4


def test_lists_change_apart_from_resources_and_from_each_other() -> None:
    """One generation for each list, whatever the cursor."""
    known = Generations()
    queries = [Query(Method.LIST), Query(Method.LIST, cursor="c"), Query(Method.TEMPLATES), read("x://1")]
    before = [known.of(query) for query in queries]
    assert before[0] == before[1]
    known.change_lists([Method.LIST])
    after = [known.of(query) for query in queries]
    assert [old == new for old, new in zip(before, after, strict=True)] == [False, False, True, True]


def test_what_is_remembered_is_bounded_and_forgetting_only_loses() -> None:
    """When too many resources changed, all get a new generation, changed and unchanged alike."""
    known = Generations()
    known.change_resource("x:first")
    quiet, first = known.of(read("x:quiet")), known.of(read("x:first"))
    for number in range(generations.MAX_CHANGED):
        known.change_resource(f"x:{number}")
        assert len(known._changed) <= generations.MAX_CHANGED
    assert known.of(read("x:quiet")) != quiet
    assert known.of(read("x:first")) != first


def test_a_uri_of_endless_levels_costs_little_and_reaches_everything() -> None:
    """Deeper than `MAX_LEVELS` counts as a change of all."""
    known = Generations()
    before = known.of(read("x:quiet"))
    known.change_resource("x:" + "/" * 1_000_000)
    assert known.of(read("x:quiet")) != before
    assert not known._changed


def test_a_gap_ends_the_epoch_and_leaves_generations_alone() -> None:
    """The end of the last epochs is remembered, of older ones it is as if they had ended for ever."""
    known = Generations()
    generation, first = known.of(read("x://1")), known.epoch
    assert known.epoch_end(first) == inf
    known.gap(5.0)
    assert known.epoch_end(first) == 5.0
    assert known.epoch_end(known.epoch) == inf
    assert known.of(read("x://1")) == generation
    for number in range(generations.MAX_EPOCHS):
        known.gap(6.0 + number)
    assert known.epoch_end(first) == -inf
    assert len(known._ended) == generations.MAX_EPOCHS


@pytest.mark.parametrize("many", [1, generations.MAX_TIES, generations.MAX_TIES + 1])
def test_a_tie_holds_until_a_resource_it_names_changes(many: int) -> None:
    """With more than `MAX_TIES` names the tie is one, to all resources."""
    known = Generations()
    uris = tuple(f"x:{number}" for number in range(many))
    ties = known.ties(uris, known.stamp(read("y:")))
    assert ties is not None
    assert len(ties) <= generations.MAX_TIES
    assert known.hold(ties)
    known.change_lists([Method.LIST])
    known.gap(0.0)
    assert known.hold(ties)
    known.change_resource("z:")
    assert known.hold(ties) is (many <= generations.MAX_TIES)
    known.change_resource("x:0")
    assert not known.hold(ties)


def test_H28_no_tie_is_made_to_what_may_have_changed_during_the_fetch() -> None:
    """Which resources an answer names is known too late, so any change in between forbids the tie."""
    known = Generations()
    stamp = known.stamp(read("x:folder"))
    known.change_resource("y:other")
    assert known.ties(("y:named",), stamp) is None
    assert known.ties((), stamp) == ()
    assert known.ties(("y:named",), known.stamp(read("x:folder"))) is not None
