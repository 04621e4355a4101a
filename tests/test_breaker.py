import pytest
from hypothesis import given
from hypothesis import strategies as st

from mcp_federator.breaker import Breaker, State, Ticket


def breaker(failures: int = 3, *, jitter: float = 0.0) -> Breaker:
    return Breaker(failures, 5.0, 12.0, jitter=lambda: jitter)


def admitted(subject: Breaker, now: float) -> Ticket:
    ticket = subject.admit(now)
    assert ticket is not None
    return ticket


def opened(subject: Breaker, now: float = 0.0) -> Breaker:
    while (ticket := subject.admit(now)) is not None:
        subject.fail(ticket, now)
    return subject


def test_opens_after_so_many_failures_in_a_row() -> None:
    """It opens at the last of `failures` failures, and not before."""
    subject = breaker(3)
    for expected in (State.CLOSED, State.CLOSED, State.OPEN):
        subject.fail(admitted(subject, 0.0), 0.0)
        assert subject.state(0.0) is expected
    assert subject.admit(4.9) is None


def test_an_answer_ends_the_row() -> None:
    """Failures count only in a row."""
    subject = breaker(2)
    for _ in range(5):
        subject.fail(admitted(subject, 0.0), 0.0)
        subject.succeed(admitted(subject, 0.0))
    assert subject.state(0.0) is State.CLOSED


def test_half_open_lets_one_through() -> None:
    """After its time one request is tried, and no other until that one has ended."""
    subject = opened(breaker())
    assert subject.state(5.0) is State.HALF_OPEN
    trial = admitted(subject, 5.0)
    assert subject.admit(5.0) is None
    assert subject.admit(500.0) is None
    subject.succeed(trial)
    assert subject.state(5.0) is State.CLOSED


def test_a_trial_without_a_verdict_is_given_back() -> None:
    """A trial that was cancelled lets the next one try."""
    subject = opened(breaker())
    subject.release(admitted(subject, 5.0))
    assert subject.admit(5.0) is not None


def test_backs_off_up_to_the_limit_and_starts_anew() -> None:
    """Each failed trial doubles the time, up to the most; an answer sets it back."""
    subject = opened(breaker())
    now = 0.0
    for open_for in (5.0, 10.0, 12.0, 12.0):
        assert subject.admit(now + open_for - 0.01) is None
        now += open_for
        subject.fail(admitted(subject, now), now)
    now += 12.0
    subject.succeed(admitted(subject, now))
    opened(subject, now)
    assert subject.admit(now + 4.99) is None
    assert subject.admit(now + 5.0) is not None


@pytest.mark.parametrize("jitter", [0.0, 0.5, 0.999])
def test_jitter_adds_up_to_a_fifth(jitter: float) -> None:
    """Chance makes it longer, never shorter."""
    subject = opened(breaker(jitter=jitter))
    open_for = 5.0 * (1 + jitter / 5)
    assert subject.admit(open_for - 0.001) is None
    assert subject.admit(open_for + 0.001) is not None


def test_results_of_an_earlier_time_do_not_count() -> None:
    """Requests that were on their way when it opened neither open it longer nor close it."""
    subject = breaker(3)
    late = [admitted(subject, 0.0) for _ in range(50)]
    opened(subject)
    for ticket in late[:25]:
        subject.fail(ticket, 1.0)
    for ticket in late[25:]:
        subject.succeed(ticket)
    assert subject.state(4.99) is State.OPEN
    assert subject.state(5.0) is State.HALF_OPEN


def test_releasing_after_a_verdict_changes_nothing() -> None:
    """A ticket may be released always."""
    subject = opened(breaker())
    trial = admitted(subject, 5.0)
    subject.fail(trial, 5.0)
    subject.release(trial)
    assert subject.state(14.9) is State.OPEN


@given(st.lists(st.sampled_from(["fail", "succeed", "release", "wait"]), max_size=60))
def test_is_never_stuck(steps: list[str]) -> None:
    """Whatever happened, once all tickets are back a request is let through in bounded time."""
    subject = breaker(2)
    now = 0.0
    for step in steps:
        ticket = subject.admit(now)
        if ticket is None or step == "wait":
            now += 3.0
        elif step == "fail":
            subject.fail(ticket, now)
        elif step == "succeed":
            subject.succeed(ticket)
        if ticket is not None:
            subject.release(ticket)
    assert subject.admit(now + 12.0 * 1.2) is not None
