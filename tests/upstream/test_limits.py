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
