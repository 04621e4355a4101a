"""The plan of a page, without a loop: rounds, order, scope, and where the walk goes on."""

import pytest

from mcp_federator.errors import McpError, Reason, UpstreamError, UpstreamFailure
from mcp_federator.federation.cursor import MAX_PLACES, MAX_UPSTREAM_CURSOR, CompositeCursor, Place
from mcp_federator.federation.merge import (
    BYTES,
    ITEMS,
    ROUNDS,
    Ask,
    ListScope,
    Merged,
    NoAnswerError,
    Plan,
    RestartError,
)
from mcp_federator.model import Answer, Hint, Method, Missing, Outcome, Scope, Served, Tier
from tests.instruments.plans import NOW, PRIVATE, PUBLIC, Upstream, ask_all, down, items, named, page, scopes


def one_item(ask: Ask) -> Answer:
    return page(ask.upstream)


# Rounds -----------------------------------------------------------------------------------------------


def test_a_window_is_asked_at_once_and_the_next_joins_when_one_ends() -> None:
    """With a window of 2, `a` goes on, and `b` to `d` follow one another beside it."""
    plan = Plan(Method.LIST, named("a", "b", "c", "d"), window=2)

    rounds = ask_all(plan, lambda ask: page(ask.upstream, then="more" if ask.upstream == "a" else None))
    merged = plan.merged(scopes(), NOW)

    assert rounds == [["a", "b"], ["c"], ["d"]]
    assert items(merged) == ["a", "b", "c", "d"]
    assert merged.cursor is not None
    assert merged.cursor.places == (Place("a", b"0123", "more"),)
    assert merged.cursor.waiting == ()


def test_an_upstream_gives_one_page_with_items_at_most() -> None:
    """Whoever has more keeps its place in the window until the next page."""
    plan = Plan(Method.LIST, named("a", "b", "c"), window=2)

    rounds = ask_all(plan, lambda ask: page(ask.upstream, then="more"))

    assert rounds == [["a", "b"]]
    cursor = plan.merged(scopes(), NOW).cursor
    assert cursor is not None
    assert [place.upstream for place in cursor.places] == ["a", "b"]
    assert cursor.waiting == ("c",)


def test_a_page_ends_after_its_rounds() -> None:
    """Twelve upstreams and a window of one: eight are asked, four wait."""
    names = [f"u{i:02}" for i in range(12)]
    plan = Plan(Method.LIST, named(*names), window=1)

    rounds = ask_all(plan, one_item)

    assert len(rounds) == ROUNDS
    cursor = plan.merged(scopes(), NOW).cursor
    assert cursor is not None
    assert cursor.places == ()
    assert cursor.waiting == tuple(names[ROUNDS:])


def test_a_part_that_does_not_fit_is_put_off() -> None:
    """It is asked for again with the next page, first; what is there, and its hits, are of those that fit."""
    hit = Served(Outcome.HIT, Tier.MEMORY)
    large = {name: page(name.ljust(BYTES // 2), then="more", served=hit) for name in "abcd"}
    plan = Plan(Method.LIST, named(*large), window=8)

    rounds = ask_all(plan, lambda ask: large[ask.upstream])
    merged = plan.merged(scopes(), NOW)

    assert rounds == [["a", "b", "c", "d"]]
    assert [part.body[:1] for part in merged.parts] == [b"a", b"b"]
    assert (merged.count, merged.served.hits, merged.served.misses) == (2, 2, 0)
    assert merged.incomplete == ()
    assert merged.hint.ttl_ms == 1000
    assert merged.cursor is not None
    assert [(place.upstream, place.cursor) for place in merged.cursor.places] == [
        ("c", None),
        ("d", None),
        ("a", "more"),
        ("b", "more"),
    ]


def test_a_part_larger_than_a_page_is_a_page() -> None:
    """Whatever its length; the upstream's own limit is `max_response_bytes`."""
    plan = Plan(Method.LIST, named("a", "b", "c"), window=1)

    rounds = ask_all(plan, lambda ask: page(ask.upstream * 2 * BYTES))

    assert rounds == [["a"]]
    assert plan.merged(scopes(), NOW).count == 1


def test_what_is_put_off_tells_its_scope() -> None:
    """A listing does not begin public when a page that was seen and not shown is private."""
    plan = Plan(Method.LIST, named("a", "b"), window=8)
    known = scopes()
    known.observe("b", Method.LIST, PUBLIC, NOW)

    ask_all(plan, lambda ask: page(" " * BYTES, scope=PUBLIC if ask.upstream == "a" else PRIVATE))

    assert plan.merged(known, NOW).hint.scope is PRIVATE


def test_a_full_page_asks_no_further() -> None:
    """A thousand items end the page before the next upstream joins."""
    plan = Plan(Method.LIST, named("a", "b"), window=1)

    rounds = ask_all(plan, lambda ask: page(*[ask.upstream] * ITEMS))

    assert rounds == [["a"]]
    cursor = plan.merged(scopes(), NOW).cursor
    assert cursor is not None
    assert cursor.waiting == ("b",)


def test_an_empty_page_with_a_cursor_is_followed() -> None:
    """The client does not see that a page was empty; the walk inside the request goes on."""
    script = {None: page(then=""), "": page(then="x"), "x": page("r", then="y")}
    plan = Plan(Method.LIST, named("a"), window=8)

    rounds = ask_all(plan, lambda ask: script[ask.cursor])
    merged = plan.merged(scopes(), NOW)

    assert rounds == [["a"], ["a"], ["a"]]
    assert items(merged) == ["r"]
    assert merged.cursor is not None
    assert merged.cursor.places == (Place("a", b"0123", "y"),)


def test_H07_empty_pages_for_ever_stay_bounded() -> None:
    """After the last round an empty page is given with a cursor that goes on where it stopped."""
    plan = Plan(Method.LIST, named("a", "b"), window=8)

    rounds = ask_all(plan, lambda ask: page("r") if ask.upstream == "b" else page(then="x"))
    merged = plan.merged(scopes(), NOW)

    assert rounds == [["a", "b"]] + [["a"]] * (ROUNDS - 1)
    assert items(merged) == ["r"]
    assert merged.cursor is not None
    assert merged.cursor.places == (Place("a", b"0123", "x"),)


def test_H06_empty_string_is_a_cursor() -> None:
    """`""` is asked for as such, and its place is not the place of the first page."""
    plan = Plan(Method.LIST, named("a"), window=8)
    ask_all(plan, lambda _: page("r1", then=""))
    cursor = plan.merged(scopes(), NOW).cursor
    assert cursor is not None

    following = Plan(Method.LIST, named("a"), cursor, window=8)

    assert following.asks() == (Ask("a", ""),)


def test_items_stand_in_configuration_order_whoever_answers_first() -> None:
    """The order of a page is that of the configuration, not that of time."""
    plan = Plan(Method.LIST, named("a", "b", "c"), window=8)

    for ask in reversed(plan.asks()):
        plan.answered(ask, page(ask.upstream))

    assert items(plan.merged(scopes(), NOW)) == ["a", "b", "c"]


# Late, failed, absent ---------------------------------------------------------------------------------


def test_H19_a_late_upstream_is_carried_once_then_waited_for() -> None:
    """Its mark is in the cursor, and the page that had to go without it is not to be kept."""
    plan = Plan(Method.LIST, named("a", "b"), window=8)
    ask_all(plan, lambda ask: page("r") if ask.upstream == "a" else None)
    merged = plan.merged(scopes(), NOW)

    assert items(merged) == ["r"]
    assert merged.hint.ttl_ms == 0
    assert merged.incomplete == ()
    assert merged.cursor is not None
    assert merged.cursor.places == (Place("b", b"0123", None, carried=True),)

    following = Plan(Method.LIST, named("a", "b"), merged.cursor, window=8)
    assert following.asks() == (Ask("b", None, patient=True),)


def test_H19_being_carried_is_remembered_for_the_whole_walk() -> None:
    """Once is once: its later pages are waited for as well, and are as good as any."""
    late = CompositeCursor(Method.LIST, PUBLIC, (Place("a", b"0123", None, carried=True),), ())
    plan = Plan(Method.LIST, named("a"), late, window=8)
    ask_all(plan, lambda _: page("r", then="more"))
    merged = plan.merged(scopes(), NOW)

    assert merged.hint.ttl_ms == 1000
    assert merged.cursor is not None
    assert merged.cursor.places == (Place("a", b"0123", "more", carried=True),)


def test_H19_a_failed_upstream_is_named_and_left_out() -> None:
    """The others' items come, the page is not to be kept, and the walk goes on without it."""
    plan = Plan(Method.LIST, named("a", "b", "c"), window=8)
    refused = UpstreamError("c", 7001, "no")

    for ask in plan.asks():
        if ask.upstream == "a":
            plan.answered(ask, page("r", then="more", ttl=300_000))
        else:
            plan.failed(ask, refused if ask.upstream == "c" else UpstreamFailure("b", Reason.TIMEOUT))
    merged = plan.merged(scopes(), NOW)

    assert items(merged) == ["r"]
    assert merged.hint.ttl_ms == 0
    assert merged.incomplete == (Missing("b", "timeout"), Missing("c", "refused"))
    assert merged.cursor is not None
    assert [place.upstream for place in merged.cursor.places] == ["a"]


def test_a_failed_upstream_gives_its_place_to_the_next() -> None:
    """A window full of dead upstreams does not end the page."""
    plan = Plan(Method.LIST, named("a", "b"), window=1)

    rounds = ask_all(plan, lambda ask: page("r") if ask.upstream == "b" else down("a"))

    assert rounds == [["a"], ["b"]]
    assert items(plan.merged(scopes(), NOW)) == ["r"]


def test_H19_a_required_upstream_fails_the_page() -> None:
    """Its failure is raised as it is."""
    failure = down("b")
    plan = Plan(Method.LIST, {"a": Upstream("a"), "b": Upstream("b", required=True)}, window=8)
    _, ask = plan.asks()

    with pytest.raises(UpstreamFailure) as raised:
        plan.failed(ask, failure)

    assert raised.value is failure


def test_H19_nobody_answered_is_an_error() -> None:
    """Not an empty list; the failures stand in configuration order."""
    plan = Plan(Method.LIST, named("a", "b"), window=8)
    for ask in reversed(plan.asks()):
        plan.failed(ask, down(ask.upstream))

    with pytest.raises(NoAnswerError) as raised:
        plan.merged(scopes(), NOW)

    assert list(raised.value.failures) == ["a", "b"]


def test_H19_a_failure_later_in_a_walk_does_not_spoil_it() -> None:
    """`b` answered on an earlier page, so `a` is named on an empty one; alone, `a` is an error."""
    plan = Plan(Method.LIST, named("a", "b"), at("a"), window=8)
    plan.failed(plan.asks()[0], down("a"))
    merged = plan.merged(scopes(), NOW)

    assert (merged.parts, merged.cursor, merged.hint.ttl_ms) == ((), None, 0)
    assert merged.incomplete == (Missing("a", "unreachable"),)

    alone = Plan(Method.LIST, named("a"), at("a"), window=8)
    alone.failed(alone.asks()[0], down("a"))
    with pytest.raises(NoAnswerError):
        alone.merged(scopes(), NOW)


def test_nobody_answered_but_others_wait() -> None:
    """As long as the walk can go on, an empty page says who is missing."""
    names = [f"u{i:02}" for i in range(ROUNDS + 1)]
    plan = Plan(Method.LIST, named(*names), window=1)
    ask_all(plan, lambda ask: down(ask.upstream))
    merged = plan.merged(scopes(), NOW)

    assert merged.parts == ()
    assert len(merged.incomplete) == ROUNDS
    assert merged.hint == Hint(0, PRIVATE)
    assert merged.cursor is not None
    assert merged.cursor.waiting == (names[-1],)


def test_H08_an_upstream_without_such_a_list_is_not_missed() -> None:
    """It is neither named nor counted: not against the life of the page, and not against its scope."""
    plan = Plan(Method.TEMPLATES, named("a", "b"), window=8)
    first, second = plan.asks()
    plan.answered(first, page("t", ttl=500))
    plan.absent(second)
    merged = plan.merged(scopes(), NOW)

    assert merged.incomplete == ()
    assert merged.hint == Hint(500, PUBLIC)
    assert merged.cursor is None


def test_an_upstream_without_such_a_list_is_known_to_have_nothing_private() -> None:
    """Where it is not met on the first page, it still does not make the listing private."""
    known = scopes()
    known.observe("a", Method.LIST, PUBLIC, NOW)
    absent = Plan(Method.LIST, named("a", "b"), at("b"), window=1)
    absent.absent(absent.asks()[0])
    absent.merged(known, NOW)

    plan = Plan(Method.LIST, named("a", "b"), window=1)
    plan.answered(plan.asks()[0], page("r", then="x"))

    assert plan.merged(known, NOW).hint.scope is PUBLIC


def test_nobody_has_such_a_list() -> None:
    """Then the list is empty, and nobody may keep that."""
    plan = Plan(Method.TEMPLATES, named("a"), window=8)
    plan.absent(plan.asks()[0])

    merged = plan.merged(scopes(), NOW)

    assert merged.parts == ()
    assert merged.hint == Hint(0, PRIVATE)
    assert merged.cursor is None


@pytest.mark.parametrize(
    "bad",
    [
        pytest.param(page("r", then="x" * (MAX_UPSTREAM_CURSOR + 1)), id="cursor-too-long"),
        pytest.param(page("r", then="é" * (MAX_UPSTREAM_CURSOR // 2 + 1)), id="cursor-too-long-in-bytes"),
        pytest.param(page("r", then="\ud800"), id="cursor-no-text"),
        pytest.param(Answer(b"", Hint(0, PRIVATE), interim=True), id="asks-for-input"),
    ],
)
def test_an_unusable_page_is_a_bad_reply(bad: Answer) -> None:
    """It costs that upstream's page and nothing else."""
    plan = Plan(Method.LIST, named("a", "b"), window=8)
    ask_all(plan, lambda ask: bad if ask.upstream == "a" else page("r"))
    merged = plan.merged(scopes(), NOW)

    assert items(merged) == ["r"]
    assert merged.incomplete == (Missing("a", "bad_reply"),)
    assert merged.cursor is None


def test_the_longest_upstream_cursor_is_taken() -> None:
    """4 KiB is the limit, not beyond it."""
    plan = Plan(Method.LIST, named("a"), window=8)
    ask_all(plan, lambda _: page("r", then="x" * MAX_UPSTREAM_CURSOR))

    assert plan.merged(scopes(), NOW).incomplete == ()


# Configuration changes during a walk ------------------------------------------------------------------


def at(*places: str, waiting: tuple[str, ...] = (), scope: Scope = PUBLIC) -> CompositeCursor:
    return CompositeCursor(
        Method.LIST, scope, tuple(Place(name, b"0123", f"{name}-2") for name in places), waiting
    )


@pytest.mark.parametrize(
    ("configured", "cursor", "asked"),
    [
        pytest.param("bc", at("a", "b", waiting=("c",)), [("b", "b-2"), ("c", None)], id="H09d-open-removed"),
        pytest.param("ac", at("a", waiting=("b", "c")), [("a", "a-2"), ("c", None)], id="waiting-removed"),
        pytest.param("a", at("b", waiting=("c",)), [], id="all-removed"),
        pytest.param("axb", at("a", waiting=("b",)), [("a", "a-2"), ("b", None)], id="new-met-on-next-walk"),
        pytest.param(
            "cba", at("a", waiting=("b", "c")), [("a", "a-2"), ("b", None), ("c", None)], id="reordered"
        ),
    ],
)
def test_a_walk_survives_a_changed_configuration(
    configured: str, cursor: CompositeCursor, asked: list[tuple[str, str | None]]
) -> None:
    """Removed upstreams are skipped, and nobody is asked twice or forgotten."""
    plan = Plan(Method.LIST, named(*configured), cursor, window=8)

    assert [(ask.upstream, ask.cursor) for ask in plan.asks()] == asked


def test_all_upstreams_of_a_walk_were_removed() -> None:
    """The walk ends with an empty page that nobody keeps."""
    plan = Plan(Method.LIST, named("a"), at("b"), window=8)
    assert plan.asks() == ()

    merged = plan.merged(scopes(), NOW)

    assert merged.cursor is None
    assert merged.hint.ttl_ms == 0
    assert merged.served.outcome is Outcome.BYPASS


def test_a_name_that_means_another_server_ends_the_walk() -> None:
    """A cursor of the former server never reaches its successor."""
    with pytest.raises(RestartError) as raised:
        Plan(Method.LIST, {"a": Upstream("a", identity=b"9876")}, at("a"), window=8)

    assert raised.value.reason == "identity"


def test_a_smaller_window_still_goes_on_everywhere() -> None:
    """Open upstreams are all asked; none joins until there is room."""
    plan = Plan(Method.LIST, named("a", "b", "c"), at("a", "b", waiting=("c",)), window=1)

    assert [ask.upstream for ask in plan.asks()] == ["a", "b"]


# Hints, scope, members --------------------------------------------------------------------------------


def test_H27_the_least_remaining_life_counts() -> None:
    """A page is as fresh as its oldest part; a followed empty page is a part too."""
    script: dict[tuple[str, str | None], Answer] = {
        ("a", None): page("r", ttl=50_000),
        ("b", None): page(then="x", ttl=5_000),
        ("b", "x"): page("s", ttl=60_000),
    }
    plan = Plan(Method.LIST, named("a", "b"), window=8)
    ask_all(plan, lambda ask: script[ask.upstream, ask.cursor])

    assert plan.merged(scopes(), NOW).hint == Hint(5_000, PUBLIC)


@pytest.mark.parametrize(
    ("configured", "said", "scope"),
    [
        pytest.param("auto", PUBLIC, PUBLIC, id="auto-public"),
        pytest.param("auto", PRIVATE, PRIVATE, id="auto-private"),
        pytest.param("public", PRIVATE, PUBLIC, id="configured-public"),
        pytest.param("private", PUBLIC, PRIVATE, id="configured-private"),
    ],
)
def test_a_listing_is_public_only_if_every_upstream_is(
    configured: ListScope, said: Scope, scope: Scope
) -> None:
    """What is configured counts, else what the pages say; the cursor seals it."""
    members = {"a": Upstream("a", list_scope=configured), "b": Upstream("b")}
    plan = Plan(Method.LIST, members, window=8)
    ask_all(plan, lambda ask: page("r", then="x", scope=said if ask.upstream == "a" else PUBLIC))
    merged = plan.merged(scopes(), NOW)

    assert merged.hint.scope is scope
    assert merged.cursor is not None
    assert merged.cursor.scope is scope


def test_an_upstream_not_met_yet_counts_by_what_is_known_of_it() -> None:
    """The first page speaks for those that wait: private until their pages were seen to be public."""
    known = scopes()

    def first_page() -> Merged:
        plan = Plan(Method.LIST, named("a", "b"), window=1)
        ask = plan.asks()[0]
        plan.answered(ask, page("r", then="x"))
        return plan.merged(known, NOW)

    assert first_page().hint.scope is PRIVATE
    known.observe("b", Method.LIST, PUBLIC, NOW)
    assert first_page().hint.scope is PUBLIC


def test_one_private_page_makes_later_listings_private() -> None:
    """What somebody met is remembered for everybody."""
    known = scopes()
    for said, scope in ((PUBLIC, PUBLIC), (PRIVATE, PRIVATE), (PUBLIC, PRIVATE)):
        plan = Plan(Method.LIST, named("a"), window=8)
        plan.answered(plan.asks()[0], page("r", scope=said))
        assert plan.merged(known, NOW).hint.scope is scope


def test_a_public_listing_that_meets_a_private_page_is_refused() -> None:
    """And the next walk begins private."""
    known = scopes()
    plan = Plan(Method.LIST, named("a"), at("a"), window=8)
    plan.answered(plan.asks()[0], page("r", scope=PRIVATE))

    with pytest.raises(RestartError) as raised:
        plan.merged(known, NOW)

    assert raised.value.reason == "scope"
    assert not known.public("a", Method.LIST, NOW)


def test_a_private_listing_stays_private() -> None:
    """One scope for all pages, even if this one could be public."""
    plan = Plan(Method.LIST, named("a"), at("a", scope=PRIVATE), window=8)
    plan.answered(plan.asks()[0], page("r", then="x"))
    merged = plan.merged(scopes(), NOW)

    assert merged.hint.scope is PRIVATE
    assert merged.cursor is not None
    assert merged.cursor.scope is PRIVATE


def test_a_listing_that_some_may_not_see_whole_is_private() -> None:
    """What is left out for this caller is not left out for others; a public walk is not continued so."""
    plan = Plan(Method.LIST, named("a"), window=8, whole=False)
    plan.answered(plan.asks()[0], page("r"))
    assert plan.merged(scopes(), NOW).hint.scope is PRIVATE

    with pytest.raises(RestartError):
        Plan(Method.LIST, named("a"), at("a"), window=8, whole=False)


def test_a_private_page_counts_although_its_upstream_failed_later() -> None:
    """An empty private page, then nothing: the page still is no public one."""
    plan = Plan(Method.LIST, named("a", "b"), window=8)
    script: dict[tuple[str, str | None], Answer | UpstreamFailure] = {
        ("a", None): page(then="x", scope=PRIVATE),
        ("a", "x"): down("a"),
        ("b", None): page("r"),
    }
    ask_all(plan, lambda ask: script[ask.upstream, ask.cursor])

    assert plan.merged(scopes(), NOW).hint.scope is PRIVATE


def test_result_members_are_kept_for_one_upstream_only() -> None:
    """Of several upstreams nobody could say whose a member is."""
    told = Answer(b"r", Hint(1, PUBLIC), count=1, extra=b'"x-extra":true', meta=b'"com.example/k":1')
    alone, both = Plan(Method.LIST, named("a"), window=8), Plan(Method.LIST, named("a", "b"), window=8)
    for plan in (alone, both):
        ask_all(plan, lambda _: told)

    one, two = alone.merged(scopes(), NOW), both.merged(scopes(), NOW)

    assert (one.extra, one.meta) == (told.extra, told.meta)
    assert (two.extra, two.meta) == (b"", b"")


def test_result_members_come_from_the_page_that_was_followed_to() -> None:
    """Empty pages on the way do not make one upstream two."""
    told = Answer(b"r", Hint(1, PUBLIC), count=1, extra=b'"x-extra":true', meta=b'"com.example/k":1')
    plan = Plan(Method.LIST, named("a"), window=8)
    ask_all(plan, lambda ask: page(then="x") if ask.cursor is None else told)

    merged = plan.merged(scopes(), NOW)

    assert (merged.extra, merged.meta) == (told.extra, told.meta)


HIT = Served(Outcome.HIT, Tier.MEMORY, fresh_for=50)
OLD = Served(Outcome.STALE, Tier.REDIS, fresh_for=-12, detail="breaker")


@pytest.mark.parametrize(
    ("parts", "served"),
    [
        pytest.param([OLD], OLD, id="one-part-speaks-for-itself"),
        pytest.param([HIT, HIT], Served(Outcome.HIT, Tier.MEMORY, fresh_for=50, hits=2), id="all-hits"),
        pytest.param([HIT, Served()], Served(Outcome.MISS, hits=1, misses=1), id="one-miss"),
        pytest.param([HIT, Served(Outcome.COALESCED)], Served(hits=1, misses=1), id="coalesced-is-no-copy"),
        pytest.param([HIT, None], Served(hits=1, misses=1), id="a-failure-is-no-copy"),
        pytest.param(
            [HIT, OLD], Served(Outcome.STALE, Tier.REDIS, -12, detail="breaker", hits=2), id="stale"
        ),
        pytest.param(
            [Served(refreshed=True), Served(refreshed=True)], Served(refreshed=True, misses=2), id="refreshed"
        ),
    ],
)
def test_a_page_is_a_hit_only_if_all_its_parts_are(parts: list[Served | None], served: Served) -> None:
    """What each part was adds up."""
    by_name = {f"u{i}": part for i, part in enumerate(parts)}
    plan = Plan(Method.LIST, named(*by_name), window=8)
    for ask in plan.asks():
        part = by_name[ask.upstream]
        if part is None:
            plan.failed(ask, down(ask.upstream))
        else:
            plan.answered(ask, page("r", served=part))

    assert plan.merged(scopes(), NOW).served == served


def test_mcp_errors_of_a_required_upstream_are_raised_as_they_are() -> None:
    """An answer that is an error stays that error."""
    plan = Plan(Method.LIST, {"a": Upstream("a", required=True)}, window=8)
    error = UpstreamError("a", 7001, "no")

    with pytest.raises(McpError) as raised:
        plan.failed(plan.asks()[0], error)

    assert raised.value is error


def test_a_window_is_never_wider_than_a_cursor_can_carry() -> None:
    """However large it is configured, a walk opens as many upstreams as fit into a composite cursor."""
    plan = Plan(Method.LIST, named(*(f"u{i}" for i in range(MAX_PLACES + 1))), window=1000)

    assert len(plan.asks()) == MAX_PLACES
