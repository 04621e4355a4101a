"""The federator when sources are slow, down or broken, and when askers go away."""

import asyncio
from typing import Any

import pytest

from mcp_federator import federator as room
from mcp_federator.errors import McpError, Reason, UpstreamError
from mcp_federator.model import ANYONE, Hint, Method, Missing, Query, Scope
from tests.instruments.bench import Bench, down, items, now, refused, told
from tests.instruments.scripted import Closed, Kept, Key, Scripted, page
from tests.instruments.virtual_time import run

PUBLIC = Scope.PUBLIC
NEVER = 1e6


def test_H19_a_dead_upstream_spoils_nothing() -> None:
    """The items of alpha at once, beta named and counted, nothing to be kept; after recovery beta is back."""
    beta = Scripted({None: down("beta")})
    bench = Bench({"alpha": Scripted({None: page("a", hint=Hint(300_000, PUBLIC))}), "beta": beta})

    async def main() -> None:
        answer = await bench.page()
        assert items(answer) == ["a"]
        assert answer.incomplete == (Missing("beta", "unreachable"),)
        assert answer.hint.ttl_ms == 0
        assert now() == 0

        beta.script[None] = page("b")
        answer = await bench.page()
        assert items(answer) == ["a", "b"]
        assert answer.incomplete == ()
        assert answer.hint.ttl_ms == 60_000

    run(main())
    assert bench.counted('incomplete_lists_total{reason="unreachable",upstream="beta"}') == 1


def test_H19_a_hung_upstream_costs_the_soft_deadline_once() -> None:
    """The first page goes without beta after 2 s; the second waits until beta's own time-out."""
    beta = Scripted({None: down("beta", Reason.TIMEOUT)}, {None: 10})
    bench = Bench({"alpha": Scripted({None: page("a")}), "beta": beta})

    async def main() -> None:
        first = await bench.page()
        assert (items(first), first.incomplete, first.hint.ttl_ms) == (["a"], (), 0)
        assert now() == pytest.approx(2)

        second = await bench.page(first.next_cursor)
        assert items(second) == []
        assert second.next_cursor is None
        assert second.incomplete == (Missing("beta", "timeout"),)
        assert now() == pytest.approx(2 + 10)

    run(main())
    assert beta.asked == [None, None]


def test_a_late_upstream_is_there_on_the_next_page() -> None:
    """Its first fetch goes on in the background, and what it brought is used."""
    beta = Kept({None: page("b")}, {None: 3})
    bench = Bench({"alpha": Scripted({None: page("a")}), "beta": beta})

    async def main() -> None:
        first = await bench.page()
        await asyncio.sleep(5)
        second = await bench.page(first.next_cursor)
        assert (items(first), items(second)) == (["a"], ["b"])
        assert second.next_cursor is None

    run(main())
    assert beta.asked == [None]


def test_nobody_is_late_while_nobody_answered() -> None:
    """The soft deadline passes; the first answer ends the waiting, whenever it comes."""
    bench = Bench(
        {
            "alpha": Scripted({None: page("a")}, {None: 5}),
            "beta": Scripted({None: page("b")}, {None: 9}),
        }
    )

    async def main() -> None:
        answer = await bench.page()
        assert items(answer) == ["a"]
        assert answer.next_cursor is not None
        assert now() == pytest.approx(5)
        await bench.federator.close()

    run(main())
    assert bench.sources["beta"].cancelled == 1


def test_a_failure_is_no_answer_to_be_late_behind() -> None:
    """While alpha fails at once, beta is still waited for, or there would be nothing at all."""
    bench = Bench({"alpha": Scripted({None: down("alpha")}), "beta": Scripted({None: page("b")}, {None: 5})})

    answer = run(bench.page())

    assert items(answer) == ["b"]
    assert answer.incomplete == (Missing("alpha", "unreachable"),)


def test_no_round_begins_after_the_soft_deadline() -> None:
    """What waits is opened on the next page."""
    slow: dict[Key, float] = {None: 2.5}
    bench = Bench({"alpha": Scripted({None: page("a")}, slow), "beta": Scripted({None: page("b")})}, window=1)

    assert run(bench.walk()) == [["a"], ["b"]]


def test_request_timeout_bounds_a_list_in_total() -> None:
    """Even who is waited for patiently is named and cancelled then."""
    beta = Scripted({None: page("b")}, {None: NEVER})
    bench = Bench({"alpha": Scripted({None: page("a", then="x"), "x": page("aa")}), "beta": beta})

    async def main() -> None:
        first = await bench.page()
        begun = now()
        second = await bench.page(first.next_cursor)
        assert now() - begun == pytest.approx(30)
        assert items(second) == ["aa"]
        assert second.incomplete == (Missing("beta", "timeout"),)
        await bench.federator.close()

    run(main())
    assert beta.cancelled == 2


def test_request_timeout_bounds_a_read() -> None:
    """Whatever the upstream's own time-out is."""
    alpha = Scripted({}, {"x://1": NEVER})
    bench = Bench({"alpha": alpha}, request_timeout=4)

    async def main() -> McpError:
        with pytest.raises(McpError) as refusal:
            await bench.federator.fetch(Query(Method.READ, uri="alpha+x://1"), ANYONE)
        assert now() == 4
        return refusal.value

    assert told(run(main())) == {"upstream": "alpha", "reason": "timeout"}
    assert alpha.cancelled == 1


def test_request_timeout_with_no_answer_at_all() -> None:
    """An error, at that very time."""
    bench = Bench({"alpha": Scripted({}, {None: NEVER})}, request_timeout=4)

    async def main() -> None:
        with pytest.raises(McpError) as raised:
            await bench.page()
        assert told(raised.value) == {"upstream": "alpha", "reason": "timeout"}
        assert now() == pytest.approx(4)
        await bench.federator.close()

    run(main())


def test_no_round_begins_after_the_request_timeout() -> None:
    """Not even where the soft deadline were later: who waits is met with the next page."""
    beta = Scripted({None: page("b")})
    bench = Bench({"alpha": Scripted({}, {None: NEVER}), "beta": beta}, window=1, request_timeout=1)

    async def main() -> None:
        first = await bench.page()
        assert first.incomplete == (Missing("alpha", "timeout"),)
        assert beta.asked == []
        assert items(await bench.page(first.next_cursor)) == ["b"]
        await bench.federator.close()

    run(main())


def test_H19_a_required_upstream_is_an_error_at_once() -> None:
    """The others are not waited for, and do not go on."""
    bench = Bench(
        {"alpha": Scripted({None: down("alpha")}), "beta": Scripted({None: page("b")}, {None: NEVER})},
        required=("alpha",),
    )

    async def main() -> None:
        with pytest.raises(McpError) as raised:
            await bench.page()
        assert (raised.value.code, told(raised.value)) == (
            -32603,
            {"upstream": "alpha", "reason": "unreachable"},
        )
        assert now() == 0
        await bench.federator.close()

    run(main())
    assert bench.sources["beta"].cancelled == 1


def test_H19_all_failed_is_an_error_that_names_all() -> None:
    """Not an empty list; `upstream` and `reason` are those of the first."""
    bench = Bench(
        {
            "alpha": Scripted({None: down("alpha")}),
            "beta": Scripted({None: UpstreamError("beta", 7001, "no")}),
        }
    )

    error = refused(bench.page())

    assert error.code == -32603
    assert told(error) == {
        "upstream": "alpha",
        "reason": "unreachable",
        "incomplete": [
            {"upstream": "alpha", "reason": "unreachable"},
            {"upstream": "beta", "reason": "refused"},
        ],
    }
    assert "alpha (unreachable), beta (refused)" in error.message


def test_the_error_of_the_only_upstream_is_relayed() -> None:
    """A transparent proxy passes an error that is an answer."""
    error = UpstreamError("alpha", 7001, "no", data=b'{"k":1}')

    assert refused(Bench({"alpha": Scripted({None: error})}).page()) is error


def test_a_source_that_breaks_is_a_bad_reply(caplog: pytest.LogCaptureFixture) -> None:
    """Invariant 12: an error of ours in one upstream is logged, and the list goes on."""
    bench = Bench({"alpha": Scripted({None: RuntimeError("bug")}), "beta": Scripted({None: page("b")})})

    answer = run(bench.page())

    assert items(answer) == ["b"]
    assert answer.incomplete == (Missing("alpha", "bad_reply"),)
    assert "alpha" in caplog.text


def test_a_source_that_was_closed_meanwhile_is_unreachable() -> None:
    """Its cancelled flight does not cancel the list."""
    bench = Bench({"alpha": Closed({}), "beta": Scripted({None: page("b")})})

    assert run(bench.page()).incomplete == (Missing("alpha", "unreachable"),)


def test_whoever_asks_may_go_away() -> None:
    """Cancelling the request cancels what it waits for, and no task is left."""
    alpha = Scripted({None: page("a")}, {None: NEVER})
    bench = Bench({"alpha": alpha})

    async def main() -> None:
        request = asyncio.create_task(bench.page())
        await asyncio.sleep(1)
        request.cancel()
        await asyncio.gather(request, return_exceptions=True)
        await asyncio.sleep(0)
        assert alpha.cancelled == 1
        assert not bench.federator._background

    run(main())


def test_background_fetches_are_bounded_and_end_on_close(monkeypatch: pytest.MonkeyPatch) -> None:
    """The third late fetch finds no room and is cancelled; close cancels the other two."""
    monkeypatch.setattr(room, "BACKGROUND", 2)
    late = {name: Scripted({None: page("x")}, {None: NEVER}) for name in ("b", "c", "d")}
    bench = Bench({"a": Scripted({None: page("a")}), **late})

    async def main() -> None:
        await bench.page()
        await asyncio.sleep(0)
        assert [source.cancelled for source in late.values()] == [0, 0, 1]
        await bench.federator.close()
        assert [source.cancelled for source in late.values()] == [1, 1, 1]

    run(main())


def test_a_background_fetch_that_fails_disturbs_nobody() -> None:
    """Its exception is taken, not reported as overlooked."""
    bench = Bench({"alpha": Scripted({None: page("a")}), "beta": Scripted({None: down("beta")}, {None: 3})})
    reported: list[Any] = []

    async def main() -> None:
        asyncio.get_running_loop().set_exception_handler(lambda _, context: reported.append(context))
        await bench.page()
        await asyncio.sleep(5)

    run(main())
    assert reported == []
