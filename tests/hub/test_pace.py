import asyncio
from collections.abc import Callable

import pytest

from mcp_federator.hub import pace as paces
from mcp_federator.hub.pace import Contexts, Pace
from tests.instruments.virtual_time import run

Acts = list[tuple[float, str, Contexts]]


def paced(body: Callable[[Pace[str]], None], until: float = 10.0) -> Acts:
    """What was done, and when; `body` may call things later on the loop."""
    acts: Acts = []
    troubles: list[object] = []

    async def check() -> int:
        loop = asyncio.get_running_loop()
        loop.set_exception_handler(lambda _, context: troubles.append(context))
        pace: Pace[str] = Pace(
            lambda subject, heard: acts.append((round(loop.time(), 3), subject, heard)), "rest"
        )
        body(pace)
        await asyncio.sleep(until)
        return len(pace)

    assert run(check()) == 0
    assert troubles == []
    return acts


def at(*times: float, subject: str = "a", context: bytes | None = None) -> Callable[[Pace[str]], None]:
    """Changes at these times."""

    def body(pace: Pace[str]) -> None:
        loop = asyncio.get_running_loop()
        for time in times:
            loop.call_at(time, pace.come, subject, context)

    return body


@pytest.mark.parametrize(
    ("times", "acted"),
    [
        ([0], [0]),
        ([0, 0], [0, 0.25]),
        ([0, 0.1], [0, 0.35]),
        ([0, 0.1, 0.2], [0, 0.45]),
        ([0, 0.249], [0, 0.499]),
        ([0, 0.251], [0, 0.251]),
        ([0, 5], [0, 5]),
        ([0, 0.1, 0.36], [0, 0.35, 0.61]),
        ([n / 500 for n in range(500)], [0, 1.0]),
        ([n / 100 for n in range(300)], [0, 1.0, 2.0, 3.0]),
        ([n / 5 for n in range(8)], [0, 1.0, 1.65]),
    ],
    ids=str,
)
def test_H32_a_storm_is_few_acts_and_the_last_change_is_among_them(
    times: list[float], acted: list[float]
) -> None:
    """The first at once, then when it is quiet or has been long; never two within a quarter of a second."""
    acts = [time for time, _, _ in paced(at(*times))]
    assert acts == acted
    assert acts[-1] >= times[-1]


def test_subjects_have_a_pace_of_their_own() -> None:
    """A storm about one keeps no other waiting."""

    def body(pace: Pace[str]) -> None:
        at(*(n / 100 for n in range(100)))(pace)
        at(0.5, subject="b")(pace)

    assert [(time, subject) for time, subject, _ in paced(body)] == [(0, "a"), (0.5, "b"), (1.0, "a")]


def test_where_it_was_heard_is_gathered() -> None:
    """An act concerns all contexts of the changes since the last, and everyone where one did."""

    def body(pace: Pace[str]) -> None:
        for context in (b"1", b"2", b"3"):
            pace.come("some", context)
        for heard in (b"1", None, b"2"):
            pace.come("all", heard)

    assert paced(body) == [
        (0, "some", frozenset({b"1"})),
        (0, "all", frozenset({b"1"})),
        (0.25, "some", frozenset({b"2", b"3"})),
        (0.25, "all", None),
    ]


def test_subjects_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    """One too many counts as a change of the rest; those that are watched go on."""
    monkeypatch.setattr(paces, "MAX_SUBJECTS", 2)

    def body(pace: Pace[str]) -> None:
        for subject in ("a", "b", "c", "d", "a"):
            pace.come(subject, None)
        assert len(pace) == 3

    acts = [(time, subject) for time, subject, _ in paced(body)]
    assert acts == [(0, "a"), (0, "b"), (0, "rest"), (0.25, "a"), (0.25, "rest")]


def test_what_was_gathered_is_done_at_the_end() -> None:
    """Nothing is lost, and nothing is left to be looked at."""

    def body(pace: Pace[str]) -> None:
        for context in (b"1", b"2"):
            pace.come("a", context)
        pace.come("b", None)
        pace.flush()
        assert len(pace) == 0

    assert paced(body) == [(0, "a", frozenset({b"1"})), (0, "b", None), (0, "a", frozenset({b"2"}))]
