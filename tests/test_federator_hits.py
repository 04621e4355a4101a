"""The federator when all that it needs is kept: no task, no waiting, no joining anew."""

import asyncio

import pytest

from mcp_federator.federation.cursor import MAX_UPSTREAM_CURSOR
from mcp_federator.model import ANYONE, Caller, Hint, Method, Missing, Outcome, Query, Scope, Served, Tier
from tests.instruments.bench import Bench, items, now
from tests.instruments.scripted import Kept, Scripted, page
from tests.instruments.virtual_time import run

PUBLIC, PRIVATE = Scope.PUBLIC, Scope.PRIVATE
LIST = Method.LIST


def test_a_read_hit_creates_no_task_and_does_not_wait() -> None:
    """A copy is there in one step, and the source is not asked again."""
    bench = Bench({"alpha": Kept({"x://1": page("text")})})
    query = Query(Method.READ, uri="alpha+x://1")

    async def main() -> None:
        await bench.federator.fetch(query, ANYONE)
        with pytest.raises(StopIteration) as stopped:
            bench.federator.fetch(query, ANYONE).send(None)
        assert stopped.value.value.served.outcome is Outcome.HIT

    run(main())
    assert bench.calls == 1


def test_a_list_hit_creates_no_task_and_does_not_wait() -> None:
    """Eight upstreams with copies: one step from question to answer, and again from the memo."""
    bench = Bench({f"u{i}": Kept({None: page(f"r{i}", f"s{i}")}) for i in range(8)})

    async def main() -> None:
        await bench.page()
        for _ in range(3):
            with pytest.raises(StopIteration) as stopped:
                bench.page().send(None)
            answer = stopped.value.value
            assert answer.count == 16
            assert answer.served == Served(Outcome.HIT, Tier.MEMORY, fresh_for=60, hits=8)

    run(main())
    assert bench.calls == 8


def test_joined_bytes_are_remembered_while_the_copies_are_the_same() -> None:
    """The same object comes again, until one part is another."""
    alpha, beta = Kept({None: page("a")}), Kept({None: page("b")})
    bench = Bench({"alpha": alpha, "beta": beta})

    async def main() -> None:
        await bench.page()
        first, second = await bench.page(), await bench.page()
        assert first.body == b"a,b"
        assert second.body is first.body
        assert (alpha.peeks, beta.peeks) == (2, 2)

        beta.script[None] = page("B", then="more")
        await beta.fetch(Query(LIST), ANYONE)
        third = await bench.page()
        assert third.body == b"a,B"
        assert third.next_cursor is not None
        # What was found before the difference was seen is used, not looked up again.
        assert (alpha.peeks, beta.peeks) == (3, 3)

    run(main())
    assert alpha.asked == [None]


def test_a_remembered_page_is_left_when_a_copy_has_gone() -> None:
    """The part without a copy is fetched, the others are not asked."""
    alpha, beta = Kept({None: page("a")}), Kept({None: page("b", hint=Hint(5_000, PUBLIC))})
    bench = Bench({"alpha": alpha, "beta": beta})

    async def main() -> None:
        for _ in range(3):
            await bench.page()
        await asyncio.sleep(6)
        answer = await bench.page()
        assert items(answer) == ["a", "b"]
        assert answer.served == Served(Outcome.MISS, hits=1, misses=1)

    run(main())
    assert (alpha.asked, beta.asked) == ([None], [None, None])


def test_a_page_with_a_part_that_is_no_copy_is_not_remembered() -> None:
    """Who has no copies is asked each time, and what he says now is what is shown."""
    alpha, beta = Kept({None: page("a")}), Scripted({None: page("b")})
    bench = Bench({"alpha": alpha, "beta": beta})

    async def main() -> None:
        for item in ("b", "c", "d"):
            beta.script[None] = page(item)
            assert items(await bench.page()) == ["a", item]

    run(main())
    assert (len(alpha.queries), len(beta.queries)) == (1, 3)


def test_an_incomplete_page_is_not_remembered() -> None:
    """A copy that cannot be used is named each time."""
    bench = Bench(
        {
            "alpha": Kept({None: page("a")}),
            "beta": Kept({None: page("b", then="x" * (MAX_UPSTREAM_CURSOR + 1))}),
        }
    )

    async def main() -> None:
        for _ in range(3):
            answer = await bench.page()
            assert answer.incomplete == (Missing("beta", "bad_reply"),)
            assert answer.hint.ttl_ms == 0

    run(main())


def test_H27_a_mixed_page_lives_as_long_as_its_oldest_part() -> None:
    """And its told life falls with age, remembered or not."""
    bench = Bench(
        {
            "alpha": Kept({None: page("a", hint=Hint(50_000, PUBLIC))}),
            "beta": Kept({None: page("b", hint=Hint(5_000, PUBLIC))}),
        }
    )

    async def main() -> None:
        lives = []
        for _ in range(4):
            lives.append((await bench.page()).hint.ttl_ms)
            await asyncio.sleep(1)
        assert lives == [5_000, 4_000, 3_000, 2_000]

    run(main())
    assert bench.calls == 2


def test_a_remembered_page_turns_private_with_its_list() -> None:
    """One private page, met by anybody, ends what was remembered as public."""
    bench = Bench({"alpha": Kept({None: page("a", "b")})})

    async def main() -> None:
        for _ in range(3):
            assert (await bench.page()).hint.scope is PUBLIC
        bench.scopes.observe("alpha", LIST, PRIVATE, now())
        assert (await bench.page()).hint.scope is PRIVATE

    run(main())


def test_hits_alone_keep_a_list_public() -> None:
    """While a listing is served from copies for more than an hour, its pages go on being observed."""
    bench = Bench({"alpha": Kept({None: page("a", "b", hint=Hint(86_400_000, PUBLIC))})})

    async def main() -> None:
        for _ in range(5):
            assert (await bench.page()).hint.scope is PUBLIC
            await asyncio.sleep(1800)

    run(main())
    assert bench.calls == 1


def test_callers_who_see_other_upstreams_share_no_page() -> None:
    """What is remembered is remembered for those who may see the same."""
    bench = Bench({"alpha": Kept({None: page("a")}), "beta": Kept({None: page("b")})})
    some = Caller(upstreams=frozenset({"alpha"}))

    async def main() -> None:
        for _ in range(3):
            assert items(await bench.page()) == ["a", "b"]
            assert items(await bench.page(caller=some)) == ["a"]

    run(main())


def test_empty_copies_are_told_apart_by_their_cursors() -> None:
    """All empty bodies are one object; the cursor says that it is another page."""
    alpha = Kept({None: page(then="x"), "x": page("1"), "y": page("2")})
    bench = Bench({"alpha": alpha})

    async def main() -> None:
        for _ in range(3):
            assert items(await bench.page()) == ["1"]
        alpha.script[None] = page(then="y")
        await alpha.fetch(Query(LIST), ANYONE)
        assert items(await bench.page()) == ["2"]

    run(main())
