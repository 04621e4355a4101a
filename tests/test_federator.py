"""The federator over scripted sources: what they are asked, and what the asker is told."""

import asyncio
import json
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mcp_federator.config import Lists
from mcp_federator.errors import ConfigError, McpError, Reason, UpstreamError, UpstreamFailure
from mcp_federator.federation.cursor import MAX_UPSTREAM_CURSOR, Seal
from mcp_federator.federation.prefix import Mapping as Names
from mcp_federator.federation.scopes import ListScopes
from mcp_federator.federator import DROP_AGAIN, Federator, Member
from mcp_federator.metrics import Metrics
from mcp_federator.model import ANYONE, Answer, Caller, Completion, Hint, Method, Missing, Query, Scope
from tests.instruments.bench import Bench, items, refused, told
from tests.instruments.scripted import MINUTE, Kept, Key, Reply, Scripted, page
from tests.instruments.virtual_time import run

PUBLIC, PRIVATE = Scope.PUBLIC, Scope.PRIVATE
LIST, TEMPLATES, READ = Method.LIST, Method.TEMPLATES, Method.READ
NEVER = 1e6


def test_a_read_goes_to_the_one_with_its_prefix() -> None:
    """With the native URI, and with all else that the query says; nobody else is asked."""
    answer = Answer(b'"contents":[]', MINUTE)
    bench = Bench({"alpha": Scripted({}), "beta": Scripted({"x://1": answer})})

    got = run(bench.federator.fetch(Query(READ, uri="beta+x://1", refresh=True), ANYONE))

    assert got is answer
    assert bench.sources["beta"].queries == [Query(READ, uri="x://1", refresh=True)]
    assert bench.sources["alpha"].queries == []


@pytest.mark.parametrize("uri", ["nope+x://1", "x://1", "", "alpha", "app-admin+x://y"])
def test_H05_an_unknown_prefix_is_no_resource(uri: str) -> None:
    """-32602 with the URI as asked, and no upstream is asked."""
    bench = Bench({"alpha": Scripted({}), "app": Scripted({})})

    error = refused(bench.federator.fetch(Query(READ, uri=uri), ANYONE))

    assert (error.code, error.status, told(error)) == (-32602, 200, {"uri": uri})
    assert bench.calls == 0


def test_H05_prefixes_that_begin_another_are_refused_at_start() -> None:
    """The router's refusal is ours."""
    with pytest.raises(ConfigError):
        Federator(
            [
                Member("a", Scripted({}), Names("a", "docs:"), b""),
                Member("b", Scripted({}), Names("b", "docs:x"), b""),
            ],
            lists=Lists(),
            request_timeout=1,
            seals=Seal([b"s"]),
            scopes=ListScopes(1),
            metrics=Metrics("0"),
            clock=float,
        )


NOT_FOUND = {"uri": "alpha+x://1"}


@pytest.mark.parametrize(
    ("asked", "data", "not_found", "expected"),
    [
        pytest.param("alpha+x://1", NOT_FOUND, True, NOT_FOUND, id="as-it-is"),
        pytest.param("ALPHA+x://1", NOT_FOUND, True, {"uri": "ALPHA+x://1"}, id="spelt-otherwise"),
        pytest.param("alpha+x://1", {"uri": "alpha+X://1"}, True, NOT_FOUND, id="upstream-rewrote-it"),
        pytest.param("alpha+x://1", None, True, NOT_FOUND, id="no-data"),
        pytest.param("alpha+x://1", "text", True, NOT_FOUND, id="data-no-object"),
        pytest.param("alpha+x://1", {"uri": 7, "k": 1}, True, NOT_FOUND, id="uri-no-text"),
        pytest.param(
            "ALPHA+x://1", {"k": 1, **NOT_FOUND}, True, {"k": 1, "uri": "ALPHA+x://1"}, id="others-stay"
        ),
        pytest.param("ALPHA+x://1", {"k": 1}, False, {"k": 1}, id="another-error"),
        pytest.param("ALPHA+x://1", NOT_FOUND, False, {"uri": "ALPHA+x://1"}, id="another-error-of-that-uri"),
        pytest.param("alpha+x://1", {"uri": "y"}, False, {"uri": "y"}, id="another-error-of-another-uri"),
        pytest.param("alpha+x://1", [1], False, [1], id="another-error-with-odd-data"),
        pytest.param("alpha+x://1", None, False, None, id="another-error-without-data"),
    ],
)
def test_H22_data_uri_is_the_uri_as_asked(asked: str, data: Any, *, not_found: bool, expected: Any) -> None:
    """Whatever the upstream made of it; what else it says stays, and so does the error itself."""
    raw = None if data is None else json.dumps(data).encode()
    error = UpstreamError("alpha", 7001, "no", data=raw, status=400, not_found=not_found)
    bench = Bench({"alpha": Scripted({"x://1": error})})

    got = refused(bench.federator.fetch(Query(READ, uri=asked), ANYONE))

    assert isinstance(got, UpstreamError)
    assert (got.code, got.message, got.status, got.not_found) == (7001, "no", 400, not_found)
    assert told(got) == expected
    assert error.data == raw


@pytest.mark.parametrize("reason", list(Reason))
def test_H19_a_failed_read_says_whose_fault_it_is(reason: Reason) -> None:
    """-32603 with upstream and reason; nothing of the upstream's own words."""
    bench = Bench({"alpha": Scripted({"x": UpstreamFailure("alpha", reason, "secret detail", code=-32050)})})

    error = refused(bench.federator.fetch(Query(READ, uri="alpha+x"), ANYONE))

    assert (error.code, error.status) == (-32603, 200)
    assert told(error) == {"upstream": "alpha", "reason": reason.value, "code": -32050}
    assert "alpha" in error.message
    assert "secret" not in error.message


def test_a_caller_reads_only_what_he_may_see() -> None:
    """To him the other upstreams' prefixes do not exist."""
    bench = Bench({"alpha": Scripted({}), "beta": Scripted({})})

    error = refused(bench.federator.fetch(Query(READ, uri="beta+x"), Caller(upstreams=frozenset({"alpha"}))))

    assert (error.code, told(error)) == (-32602, {"uri": "beta+x"})
    assert bench.calls == 0


ABOUT = Completion(b'{"name":"a","value":""}', b"{}")


def completing(uri: str | None) -> Query:
    return Query(Method.COMPLETE, uri, completion=ABOUT)


@pytest.mark.parametrize(
    ("uri", "native"),
    [
        ("beta+x://{a}", "x://{a}"),
        ("BETA+x://1", "x://1"),
        ("beta+{+any}", "{+any}"),
        ("ui://beta/{x}", "ui://{x}"),
        ("beta+ui://{x}", "ui://{x}"),
    ],
)
def test_a_completion_goes_to_the_one_with_its_prefix(uri: str, native: str) -> None:
    """As a read does, template or URI, for this caller alone."""
    answer = Answer(b'"completion":{"values":[]}', MINUTE)
    bench = Bench({"alpha": Scripted({}), "beta": Scripted({None: answer})}, completes={"beta": True})

    assert run(bench.federator.fetch(completing(uri), ANYONE)) is answer

    assert bench.sources["beta"].queries == [Query(Method.COMPLETE, native, alone=True, completion=ABOUT)]
    assert bench.sources["alpha"].queries == []


@pytest.mark.parametrize("completes", [True, None], ids=["declared", "not probed yet"])
@pytest.mark.parametrize(
    ("uri", "caller", "data"),
    [
        ("nope+x://{a}", ANYONE, {"uri": "nope+x://{a}"}),
        ("alpha+x", Caller(upstreams=frozenset({"beta"})), {"uri": "alpha+x"}),
        (None, ANYONE, None),
    ],
    ids=["unknown prefix", "not his", "prompt"],
)
def test_what_cannot_be_completed(uri: str | None, caller: Caller, data: Any, completes: bool | None) -> None:
    """-32602, and nobody is asked."""
    bench = Bench({"alpha": Scripted({})}, completes={"alpha": completes})

    error = refused(bench.federator.fetch(completing(uri), caller))

    assert (error.code, error.status, told(error)) == (-32602, 200, data)
    assert ("prompts" in error.message) == (uri is None)
    assert bench.calls == 0


@pytest.mark.parametrize("completes", [{"alpha": False, "beta": False}, {}])
@pytest.mark.parametrize("uri", ["alpha+x://{a}", "nope+x", None])
def test_a_method_that_no_upstream_declares_is_not_there(uri: str | None, completes: dict[str, bool]) -> None:
    """404 and -32601, whatever is referred to."""
    bench = Bench({"alpha": Scripted({}), "beta": Scripted({})}, completes=completes)

    error = refused(bench.federator.fetch(completing(uri), ANYONE))

    assert (error.code, error.status) == (-32601, 404)
    assert bench.calls == 0


def test_H19_a_failed_completion_says_whose_fault_it_is() -> None:
    """-32603 with upstream and reason, also where our own time is up."""
    slow = Scripted({None: page()}, delays={None: 60})
    bench = Bench(
        {"alpha": Scripted({None: UpstreamFailure("alpha", Reason.REFUSED)}), "slow": slow},
        completes={"alpha": True, "slow": True},
    )

    for uri, name, reason in (("alpha+x", "alpha", "refused"), ("slow+x", "slow", "timeout")):
        error = refused(bench.federator.fetch(completing(uri), ANYONE))
        assert (error.code, told(error)) == (-32603, {"upstream": name, "reason": reason})


def test_discover_is_not_answered_here() -> None:
    """Only reads and lists have upstreams to go to."""
    assert refused(Bench({}).federator.fetch(Query(Method.DISCOVER), ANYONE)).code == -32601


def test_H06_empty_string_is_a_cursor() -> None:
    """`alpha` goes on with `""`, `beta` has one page; all is seen once, and `""` is what alpha gets."""
    bench = Bench(
        {
            "alpha": Scripted({None: page("r1", then=""), "": page("r2")}),
            "beta": Scripted({None: page("r3")}),
        }
    )

    assert run(bench.walk()) == [["r1", "r3"], ["r2"]]
    assert bench.sources["alpha"].asked == [None, ""]
    assert bench.sources["beta"].asked == [None]


def test_H07_a_listing_that_never_ends_is_walked_as_far_as_one_likes() -> None:
    """Each request costs one call, and beta's items come with the first."""
    bench = Bench(
        {
            "alpha": Scripted({None: page("r1", then="x"), "x": page("r1", then="x")}),
            "beta": Scripted({None: page("b")}),
        }
    )

    async def main() -> None:
        answer = await bench.page()
        assert items(answer) == ["r1", "b"]
        for _ in range(1000):
            answer = await bench.page(answer.next_cursor)
            assert items(answer) == ["r1"]

    run(main())
    assert bench.calls == 1002


def test_H07_empty_pages_for_ever_are_bounded() -> None:
    """One request follows them for eight rounds."""
    bench = Bench({"alpha": Scripted({None: page(then="x"), "x": page(then="x")})})

    answer = run(bench.page())

    assert items(answer) == []
    assert answer.next_cursor is not None
    assert bench.calls == 8


@pytest.mark.parametrize("method", [LIST, TEMPLATES])
def test_H08_all_pages_are_federated(method: Method) -> None:
    """Twelve items, each once; a cursor of alpha never reaches beta; gamma has no such list."""
    gamma = UpstreamError("gamma", -32601, "Method not found")
    bench = Bench(
        {
            "alpha": Scripted(
                {None: page("1", "2", then="A"), "A": page("3", "4", then="B"), "B": page("5", "6")}
            ),
            "beta": Scripted({None: page("7", "8", "9", then="Z"), "Z": page("10", "11", "12")}),
            "gamma": Scripted({None: gamma}),
        }
    )

    pages = run(bench.walk(method))

    assert pages == [["1", "2", "7", "8", "9"], ["3", "4", "10", "11", "12"], ["5", "6"]]
    assert bench.sources["alpha"].asked == [None, "A", "B"]
    assert bench.sources["beta"].asked == [None, "Z"]
    assert bench.sources["gamma"].asked == [None]


def sealed(method: Method = LIST, secret: bytes = b"secret") -> str:
    async def first() -> str:
        bench = Bench({"alpha": Scripted({None: page("r", then="x")})})
        bench.federator._seals = Seal([secret])
        return (await bench.page(method=method)).next_cursor or ""

    return run(first())


@pytest.mark.parametrize(
    "forge",
    [
        pytest.param(lambda: "", id="H06-empty"),
        pytest.param(lambda: "bogus", id="a"),
        pytest.param(lambda: sealed().replace(sealed()[9], chr(ord(sealed()[9]) ^ 1), 1), id="b"),
        pytest.param(lambda: sealed(TEMPLATES), id="c"),
        pytest.param(lambda: "A" * 1_000_000, id="e"),
        pytest.param(lambda: "x", id="an-upstreams-own"),
        pytest.param(lambda: sealed(secret=b"another"), id="of-another-house"),
    ],
)
def test_H09_a_cursor_that_is_none_of_ours(forge: Callable[[], str]) -> None:
    """-32602 and no upstream call."""
    cursor = forge()
    bench = Bench({"alpha": Scripted({None: page("r", then="x"), "x": page("s")})})

    error = refused(bench.page(cursor))

    assert (error.code, error.status) == (-32602, 400)
    assert bench.calls == 0


def test_H09d_a_removed_upstream_is_skipped() -> None:
    """The walk goes on with those that are left."""
    script: dict[Key, Reply] = {None: page("1", then="x"), "x": page("2")}
    before = Bench({"alpha": Scripted(script), "beta": Scripted(script)})
    cursor = run(before.page()).next_cursor
    after = Bench({"alpha": Scripted(script)})

    answer = run(after.page(cursor))

    assert items(answer) == ["2"]
    assert answer.next_cursor is None
    assert after.sources["alpha"].asked == ["x"]


def test_a_name_that_means_another_server_now() -> None:
    """The walk is refused and counted; the new server is not asked."""
    script: dict[Key, Reply] = {None: page("1", then="x"), "x": page("2")}
    cursor = run(Bench({"alpha": Scripted(script)}).page()).next_cursor
    bench = Bench({"alpha": Scripted(script)}, identity=b"another".ljust(32))

    error = refused(bench.page(cursor))

    assert (error.code, error.status) == (-32602, 400)
    assert bench.calls == 0
    assert bench.counted('listing_restarts_total{reason="identity"}') == 1


def test_an_upstream_refuses_its_own_cursor() -> None:
    """The walk is refused and counted, and that upstream's pages of that list are dropped."""
    bench = Bench(
        {
            "alpha": Scripted({None: page("1", then="x"), "x": UpstreamError("alpha", -32602, "bad cursor")}),
            "beta": Scripted({None: page("2", then="y"), "y": page("3")}, {"y": NEVER}),
        }
    )
    cursor = run(bench.page()).next_cursor

    error = refused(bench.page(cursor))

    assert (error.code, error.status) == (-32602, 400)
    assert bench.dropped == [("alpha", LIST)]
    assert bench.counted('listing_restarts_total{reason="cursor"}') == 1
    assert bench.sources["beta"].cancelled == 1


def test_an_old_cursor_drops_pages_once_in_a_while() -> None:
    """However often it comes back: others' pages are theirs meanwhile.  Each list has its own time."""
    script: dict[Key, Reply] = {None: page("1", then="x"), "x": UpstreamError("alpha", -32602, "bad cursor")}
    bench = Bench({"alpha": Scripted(script)})

    async def main() -> None:
        cursors = {method: (await bench.page(method=method)).next_cursor for method in (LIST, TEMPLATES)}
        for expected in (1, 2):
            for method, cursor in [*cursors.items()] * 10:
                with pytest.raises(McpError):
                    await bench.page(cursor, method=method)
            assert bench.dropped == [("alpha", LIST), ("alpha", TEMPLATES)] * expected
            await asyncio.sleep(DROP_AGAIN)

    run(main())
    assert bench.counted('listing_restarts_total{reason="cursor"}') == 40


def test_an_invalid_params_error_without_a_cursor_is_a_failure_like_others() -> None:
    """There was no cursor to refuse."""
    bench = Bench(
        {"alpha": Scripted({None: UpstreamError("alpha", -32602, "no")}), "beta": Scripted({None: page("1")})}
    )

    answer = run(bench.page())

    assert answer.incomplete == (Missing("alpha", "refused"),)
    assert bench.dropped == []


def test_a_listing_that_began_public_meets_a_private_page() -> None:
    """The cursor is refused and counted; begun anew, the listing is private from its first page on."""
    private = Hint(60_000, PRIVATE)
    bench = Bench({"alpha": Scripted({None: page("1", then="x"), "x": page("2", hint=private)})})

    async def main() -> None:
        first = await bench.page()
        assert first.hint.scope is PUBLIC
        with pytest.raises(McpError) as raised:
            await bench.page(first.next_cursor)
        assert (raised.value.code, raised.value.status) == (-32602, 400)
        again = await bench.page()
        assert again.hint.scope is PRIVATE
        assert items(await bench.page(again.next_cursor)) == ["2"]

    run(main())
    assert bench.counted('listing_restarts_total{reason="scope"}') == 1


def test_configured_scopes_overrule_the_pages() -> None:
    """`list_scope: public` holds although the pages say private."""
    bench = Bench({"alpha": Scripted({None: page("1", hint=Hint(1, PRIVATE))})}, list_scope="public")

    assert run(bench.page()).hint == Hint(1, PUBLIC)


def test_an_upstream_cursor_beyond_the_limit() -> None:
    """That upstream gave a bad reply; the others' items come."""
    bench = Bench(
        {
            "alpha": Scripted({None: page("1", then="x" * (MAX_UPSTREAM_CURSOR + 1))}),
            "beta": Scripted({None: page("2")}),
        }
    )

    answer = run(bench.page())

    assert items(answer) == ["2"]
    assert answer.incomplete == (Missing("alpha", "bad_reply"),)
    assert answer.next_cursor is None


def test_a_caller_lists_only_what_he_may_see() -> None:
    """The others are not asked, not named, and the listing is his alone."""
    bench = Bench({"alpha": Scripted({None: page("1")}), "beta": Scripted({None: page("2")})})

    answer = run(bench.page(caller=Caller(upstreams=frozenset({"beta", "unknown"}))))

    assert items(answer) == ["2"]
    assert answer.incomplete == ()
    assert answer.hint == Hint(60_000, PRIVATE)
    assert bench.sources["alpha"].queries == []


@pytest.mark.parametrize("caller", [ANYONE, Caller(upstreams=frozenset())], ids=["none", "none-visible"])
def test_nothing_to_list(caller: Caller) -> None:
    """An empty federation is empty; that is no failure."""
    answer = run(Bench({}).page(caller=caller))

    assert (items(answer), answer.next_cursor, answer.hint) == ([], None, Hint(0, PRIVATE))


def test_a_refresh_goes_to_every_part() -> None:
    """No copy is looked for here; the cache below decides whether it may."""
    kept = Kept({None: page("1")})
    bench = Bench({"alpha": kept})

    async def main() -> None:
        await bench.page()
        await bench.federator.fetch(Query(LIST, refresh=True), ANYONE)

    run(main())
    assert kept.queries == [Query(LIST), Query(LIST, refresh=True)]
    assert kept.peeks == 0


def test_result_members_of_a_single_upstream_are_kept() -> None:
    """A transparent proxy loses nothing."""
    one = Answer(b'{"uri":"1"}', MINUTE, count=1, extra=b'"x-extra":true', meta=b'"k":[null]')

    answer = run(Bench({"alpha": Scripted({None: one})}).page())

    assert (answer.extra, answer.meta) == (one.extra, one.meta)


@st.composite
def structures(draw: st.DrawFn) -> dict[str, list[tuple[int, str, float]]]:
    """For up to six upstreams their pages: number of items, the cursor to it, seconds it takes."""
    upstreams = {}
    for i in range(draw(st.integers(1, 6))):
        cursors = draw(st.lists(st.text("ab", max_size=2), max_size=4, unique=True))
        upstreams[f"u{i}"] = [
            (draw(st.integers(0, 3)), cursor, draw(st.sampled_from([0.0, 0.0, 1.0, 3.0])))
            for cursor in ["first", *cursors]
        ]
    return upstreams


@settings(deadline=None)
@given(upstreams=structures(), window=st.integers(1, 7), kept=st.booleans())
def test_invariant_10_every_item_once_and_in_order(
    upstreams: dict[str, list[tuple[int, str, float]]], window: int, *, kept: bool
) -> None:
    """Whatever the pages are and however long they take, with and without copies: walk twice, compare."""
    sources: dict[str, Scripted] = {}
    expected: dict[str, list[str]] = {}
    for name, pages in upstreams.items():
        script: dict[Key, Reply] = {}
        delays: dict[Key, float] = {}
        expected[name] = []
        for number, (count, cursor, delay) in enumerate(pages):
            mine = [f"{name}.{number}.{i}" for i in range(count)]
            expected[name] += mine
            key = cursor if number else None
            script[key] = page(*mine, then=pages[number + 1][1] if number + 1 < len(pages) else None)
            delays[key] = delay
        sources[name] = (Kept if kept else Scripted)(script, delays)
    bench = Bench(sources, window=window)

    async def main() -> None:
        for _ in range(2):
            pages = await bench.walk()
            assert all(page == sorted(page) for page in pages)
            seen = [item for page in pages for item in page]
            for name, mine in expected.items():
                assert [item for item in seen if item.startswith(name)] == mine
        await bench.federator.close()

    run(main())
