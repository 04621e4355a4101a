from mcp_federator.upstream.restarts import CALM, FIRST, LONGEST, Restarts


def test_each_early_end_doubles_the_wait() -> None:
    """Up to a limit, and after any number of them."""
    restarts = Restarts(jitter=lambda: 0.0)
    now, waits = 1000.0, []
    for _ in range(2000):
        restarts.ended(0.0, now)
        waits.append(restarts.wait(now))
        now += waits[-1]
        assert restarts.wait(now) == 0
    assert waits[:4] == [FIRST, 2 * FIRST, 4 * FIRST, 8 * FIRST]
    assert waits[-1] == max(waits) == LONGEST


def test_a_process_that_ran_for_a_while_is_not_waited_for() -> None:
    """Its end is the first one again."""
    restarts = Restarts(jitter=lambda: 0.0)
    for _ in range(5):
        restarts.ended(0.0, 0.0)
    restarts.ended(CALM, 1000.0)
    assert restarts.wait(1000.0) == 0
    restarts.ended(CALM - 1, 1000.0)
    assert restarts.wait(1000.0) == FIRST


def test_jitter_lengthens_a_wait_by_a_fifth_at_most() -> None:
    """And never shortens one."""
    restarts = Restarts(jitter=lambda: 1.0)
    restarts.ended(0.0, 0.0)
    assert restarts.wait(0.0) == FIRST * 1.2
