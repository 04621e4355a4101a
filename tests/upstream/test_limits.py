import pytest

from mcp_federator.upstream.limits import Budget, FullError, Slots, TooLargeError


def test_slots_are_taken_and_given_back() -> None:
    """So many at once and no more, also after a failure inside."""
    slots = Slots(2)
    with slots:
        with pytest.raises(ZeroDivisionError), slots:
            raise ZeroDivisionError
        with slots, pytest.raises(FullError), slots:
            pass
        assert slots.taken == 1
    assert slots.taken == 0


def test_slots_of_a_share_are_slots_of_the_whole() -> None:
    """Either may be all taken first; one that is refused takes nothing of the other."""
    whole = Slots(3)
    one, other = whole.share(2), whole.share(2)
    with one, one:
        with pytest.raises(FullError, match="2 requests"), one:
            pass
        with other:
            assert (one.taken, other.taken, whole.taken) == (2, 1, 3)
            with pytest.raises(FullError, match="3 requests"), other:
                pass
            assert (other.taken, whole.taken) == (1, 3)
    assert one.taken == other.taken == whole.taken == 0


def test_an_answer_has_a_limit_of_its_own() -> None:
    """The byte beyond an answer's limit is too many."""
    budget = Budget(100)
    with budget.lease(10) as lease:
        lease.take(10)
        with pytest.raises(TooLargeError):
            lease.take(1)
    assert budget.taken == 0


def test_all_answers_share_the_budget() -> None:
    """Two answers, each within its own limit, can be too much together; the end of one makes room."""
    budget = Budget(10)
    with budget.lease(8) as first:
        with budget.lease(8) as second:
            first.take(6)
            with pytest.raises(FullError):
                second.take(6)
        first.take(2)
        with budget.lease(8) as third:
            third.take(2)
    assert budget.taken == 0


def test_one_upstream_leaves_room_for_others() -> None:
    """It may hold half of what there is, or one answer where that is more; all together no more than all."""
    whole = Budget(100)
    first, second, third = whole.share(10), whole.share(80), whole.share(0)
    with first.lease(60) as one, second.lease(80) as other, third.lease(60) as last:
        one.take(50)
        with pytest.raises(FullError):
            one.take(1)
        other.take(49)
        with pytest.raises(FullError):
            last.take(1)
        assert (first.taken, second.taken, third.taken, whole.taken) == (51, 49, 1, 101)
    with second.lease(80) as other:
        other.take(80)
    assert (first.taken, second.taken, third.taken, whole.taken) == (0, 0, 0, 0)
