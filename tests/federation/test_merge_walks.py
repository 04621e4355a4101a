"""Whole walks, page after page, over any structure of pages: invariants 4 and 10."""

from dataclasses import dataclass, field
from unittest.mock import patch

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mcp_federator.errors import UpstreamFailure
from mcp_federator.federation import merge
from mcp_federator.federation.cursor import CompositeCursor, Seal
from mcp_federator.federation.merge import BYTES, Ask, NoAnswerError, Plan
from mcp_federator.model import Answer, Method, Scope
from tests.instruments.plans import NOW, PRIVATE, PUBLIC, ask_all, down, items, named, page, scopes


@dataclass
class Script:
    """A list of pages, each with its items, what it hints, and the cursor that leads to it."""

    name: str
    pages: list[tuple[int, int]]
    cursors: list[str]
    scope: Scope
    fails_at: int | None
    late_at: int | None
    asked: list[str | None] = field(default_factory=list)

    def items(self, number: int) -> list[str]:
        return [f"{self.name}.{number}.{i}" for i in range(self.pages[number][0])]

    def reply(self, ask: Ask) -> Answer | UpstreamFailure | None:
        self.asked.append(ask.cursor)
        number = 0 if ask.cursor is None else self.cursors.index(ask.cursor) + 1
        if number == self.fails_at:
            return down(self.name)
        if number == self.late_at and not ask.patient:
            return None
        then = self.cursors[number] if number + 1 < len(self.pages) else None
        return page(*self.items(number), then=then, ttl=self.pages[number][1], scope=self.scope)


@st.composite
def scripts(draw: st.DrawFn) -> list[Script]:
    """Up to twelve upstreams; `""` is among their cursors, and pages may be empty, fail, or come late."""
    made = []
    for i in range(draw(st.integers(1, 12))):
        pages = draw(st.lists(st.tuples(st.integers(0, 3), st.integers(0, 9)), min_size=1, max_size=5))
        cursors = draw(
            st.lists(st.text("ab", max_size=2), min_size=len(pages) - 1, max_size=len(pages) - 1, unique=True)
        )
        number = st.none() | st.integers(0, len(pages) - 1)
        made.append(
            Script(f"u{i:02}", pages, cursors, draw(st.sampled_from(Scope)), draw(number), draw(number))
        )
    return made


@given(scripts(), st.integers(1, 9), st.sampled_from([BYTES, 40, 20, 1]))
def test_invariants_4_and_10_over_any_walk(upstreams: list[Script], window: int, room: int) -> None:
    """Every page of every upstream once and in order, and no hint better than any part's.

    Also: a cursor never reaches another upstream (`Script.reply` knows its own alone), who failed is named
    once, no page is longer than `room` and one part more, and the walk ends.
    """
    with patch.object(merge, "BYTES", room):
        walk(upstreams, window, room)


def walk(upstreams: list[Script], window: int, room: int) -> None:
    members, known, seal = named(*(script.name for script in upstreams)), scopes(), Seal([b"secret"])
    by_name = {script.name: script for script in upstreams}
    cursor: CompositeCursor | None = None
    seen: list[str] = []
    missing: list[str] = []
    for _ in range(100):
        plan = Plan(Method.LIST, members, cursor, window=window)

        def reply(ask: Ask, plan: Plan = plan) -> Answer | UpstreamFailure | None:
            answer = by_name[ask.upstream].reply(ask)
            # Nobody is late before somebody answered; who asks again gets the page.
            return (
                answer
                if answer is not None or plan.has_answers
                else by_name[ask.upstream].reply(Ask(ask.upstream, ask.cursor, patient=True))
            )

        ask_all(plan, reply)
        try:
            merged = plan.merged(known, NOW)
        except NoAnswerError as error:
            missing += error.failures
            break
        got = items(merged)
        assert got == sorted(got)
        sizes = [len(part.body) for part in merged.parts]
        assert sum(sizes) <= room + max(sizes, default=0)
        assert merged.count == len(got)
        assert all(merged.hint.ttl_ms <= part.hint.ttl_ms for part in merged.parts)
        assert merged.hint.scope is PRIVATE or all(part.hint.scope is PUBLIC for part in merged.parts)
        assert not merged.incomplete or merged.hint.ttl_ms == 0
        seen += got
        missing += [one.upstream for one in merged.incomplete]
        if merged.cursor is None:
            break
        cursor = seal.decode(seal.encode(merged.cursor), Method.LIST)
        assert cursor.scope is merged.hint.scope
    else:
        pytest.fail("the walk does not end")

    for script in upstreams:
        expected = [
            item
            for number in range(len(script.pages) if script.fails_at is None else script.fails_at)
            for item in script.items(number)
        ]
        assert [item for item in seen if item.startswith(script.name)] == expected
        assert missing.count(script.name) == (script.fails_at is not None)


def test_no_upstream_keeps_another_from_its_turn() -> None:
    """`a` never ends and always answers first; all pages are too long to stand together."""
    members, known = named("a", "b", "c"), scopes()
    cursor: CompositeCursor | None = None
    seen: list[str] = []

    def reply(ask: Ask) -> Answer:
        number = int(ask.cursor or 0)
        ends = ask.upstream != "a" and number == 3
        item = f"{ask.upstream}{number}".ljust(BYTES // 2 + 1)
        return page(item, then=None if ends else str(number + 1))

    for _ in range(9):
        plan = Plan(Method.LIST, members, cursor, window=8)
        for ask in sorted(plan.asks(), key=lambda ask: ask.upstream):
            plan.answered(ask, reply(ask))
        assert plan.asks() == ()
        merged = plan.merged(known, NOW)
        assert sum(len(part.body) for part in merged.parts) <= 2 * BYTES
        assert merged.hint.ttl_ms == 1000
        seen += [item.strip() for item in items(merged)]
        cursor = merged.cursor

    assert [item for item in seen if item[0] == "b"] == ["b0", "b1", "b2", "b3"]
    assert [item for item in seen if item[0] == "c"] == ["c0", "c1", "c2", "c3"]


def test_H08_all_pages_of_all_upstreams() -> None:
    """Three pages of two and two pages of three: twelve items, each once."""
    pages: dict[str, dict[str | None, Answer]] = {
        "alpha": {
            None: page("a1", "a2", then="A2"),
            "A2": page("a3", "a4", then="A3"),
            "A3": page("a5", "a6"),
        },
        "beta": {None: page("b1", "b2", "b3", then="B2"), "B2": page("b4", "b5", "b6")},
    }
    cursor: CompositeCursor | None = None
    got = []
    for _ in range(3):
        plan = Plan(Method.LIST, named("alpha", "beta", "gamma"), cursor, window=8)
        for ask in plan.asks():
            if ask.upstream == "gamma":
                plan.absent(ask)
            else:
                plan.answered(ask, pages[ask.upstream][ask.cursor])
        merged = plan.merged(scopes(), NOW)
        got.append(items(merged))
        cursor = merged.cursor

    assert got == [["a1", "a2", "b1", "b2", "b3"], ["a3", "a4", "b4", "b5", "b6"], ["a5", "a6"]]
    assert cursor is None
