import pytest

from mcp_federator.cache import outbox
from mcp_federator.cache.notice import ALL, Kind, Notice
from mcp_federator.cache.outbox import MAX_WAITING, MEMORY, Outbox

LIST = Notice(Kind.LIST)


def resource(number: int) -> Notice:
    return Notice(Kind.RESOURCE, f"x://{number}")


def waiting(box: Outbox) -> list[tuple[str, Notice, bool]]:
    return [(one.upstream, one.notice, one.tell) for one in box.batch(10_000)]


def test_a_change_waits_until_it_is_written() -> None:
    """It holds up its own upstream and no other."""
    box = Outbox()
    box.put("a", LIST, 0.0)
    assert (box.waits("a"), box.waits("b"), bool(box)) == (True, False, True)
    box.written(box.batch(10))
    assert (box.waits("a"), bool(box)) == (False, False)


def test_a_change_that_came_again_while_it_was_written_waits_on() -> None:
    """What was written was the earlier one."""
    box = Outbox()
    box.put("a", LIST, 0.0)
    batch = box.batch(10)
    box.put("a", LIST, 0.1)
    box.written(batch)
    assert box.waits("a")
    box.written(box.batch(10))
    assert not box


def test_what_waits_is_bounded() -> None:
    """Too many changes of one upstream are one of all of it; others keep theirs."""
    box = Outbox()
    box.put("b", LIST, 0.0)
    for number in range(MAX_WAITING + 1):
        box.put("a", resource(number), 0.0)
    assert waiting(box) == [("b", LIST, True), ("a", ALL, True)]
    box.put("a", LIST, 0.0)
    assert len(waiting(box)) == 3


@pytest.mark.parametrize("age", [0.0, MEMORY, MEMORY + 1])
def test_what_was_written_lately_is_written_again_but_not_told(age: float) -> None:
    """Others have heard it; what they declared is written again too."""
    box = Outbox()
    box.put("a", LIST, 0.0)
    box.written(box.batch(10))
    box.hear("a", resource(1), 0.0)
    box.again(age)
    lately = age <= MEMORY
    assert waiting(box) == ([("a", LIST, False), ("a", resource(1), False)] if lately else [])
    assert bool(box._lately) is lately


def test_what_nobody_has_heard_is_told_although_it_is_written_again() -> None:
    """Writing again takes nothing back."""
    box = Outbox()
    box.put("a", LIST, 0.0)
    box.again(1.0)
    assert waiting(box) == [("a", LIST, True)]


def test_what_is_remembered_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    """In number, then by all of the upstream; and in time."""
    monkeypatch.setattr(outbox, "MAX_WAITING", 5)
    box = Outbox()
    for number in range(6):
        box.hear("a", resource(number), 0.0)
    box.again(1.0)
    assert waiting(box) == [("a", ALL, False)]
    box = Outbox()
    box.hear("a", LIST, 0.0)
    box.hear("a", resource(1), MEMORY + 1)
    assert list(box._lately["a"]) == [resource(1)]


def test_a_batch_is_no_larger_than_asked_for() -> None:
    """The rest comes with the next."""
    box = Outbox()
    for number in range(5):
        box.put("a", resource(number), 0.0)
    assert [one.notice for one in box.batch(3)] == [resource(0), resource(1), resource(2)]
