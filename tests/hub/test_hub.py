import asyncio
from collections.abc import Coroutine
from typing import Any

import pytest
from msgspec.structs import replace

from mcp_federator.hub import hub as hubs
from mcp_federator.model import Caller, Change, Event, Offers, Wanted
from tests.hub.speaker import BOTH, Speaker, bearer, hub_of, listening, turn
from tests.instruments.virtual_time import run

LIST, RESOURCE, GAP = Change.LIST, Change.RESOURCE, Change.GAP


def wanted(*uris: str, lists: bool = False) -> Wanted:
    return Wanted(lists, frozenset(uris))


def after(body: Coroutine[Any, Any, None]) -> None:
    """Run a test, and what it left to be looked at later."""

    async def check() -> None:
        await body
        await asyncio.sleep(2)

    run(check())


@pytest.mark.parametrize(
    ("asked", "change", "uri", "told"),
    [
        (wanted(lists=True), LIST, None, [None]),
        (wanted(lists=True), RESOURCE, "x://1", []),
        (wanted("docs+x://1"), LIST, None, []),
        (wanted("docs+x://1"), RESOURCE, "x://1", ["docs+x://1"]),
        (wanted("DOCS+x://1"), RESOURCE, "x://1", ["DOCS+x://1"]),
        (wanted("docs+x://1"), RESOURCE, "x://1/a", ["docs+x://1/a"]),
        (wanted("docs+x://1"), RESOURCE, "x://1#a", ["docs+x://1#a"]),
        (wanted("docs+x://1"), RESOURCE, "x://2", []),
        (wanted("docs+x://1/a"), RESOURCE, "x://1", []),
        (wanted("docs+ui://app"), RESOURCE, "ui://app/a", ["ui://docs/app/a"]),
        (wanted("docs+x://1"), RESOURCE, None, ["docs+x://1"]),
        (wanted("docs+x://1"), GAP, None, ["docs+x://1"]),
        (wanted(lists=True), GAP, None, [None]),
        (wanted("docs+x://1", lists=True), GAP, None, [None, "docs+x://1"]),
        (wanted("more+x://1"), RESOURCE, "x://1", []),
        (wanted("more+x://1"), GAP, None, []),
        (wanted(), GAP, None, []),
    ],
    ids=str,
)
def test_H31_who_listens_is_told_of_what_he_asked_for(
    asked: Wanted, change: Change, uri: str | None, told: list[str | None]
) -> None:
    """In his own spelling, or of a part of it in public form; of nothing else."""

    async def check() -> None:
        docs = Speaker()
        hub = hub_of(docs, Speaker("more"))
        listener = listening(hub, *asked.uris, lists=asked.lists)
        docs.say(hub, change, uri)
        assert listener.take() == told
        assert docs.invalidated == [Event("docs", change, uri)]

    after(check())


@pytest.mark.parametrize("change", list(Change))
def test_invalidate_before_relay(change: Change) -> None:
    """Invariant 5: when a listener is told, the cache was, each time."""

    async def check() -> None:
        steps: list[object] = []
        docs = Speaker(steps=steps)
        hub = hub_of(docs)
        lists, uri = change is LIST, "x://1" if change is RESOURCE else None
        listening(hub, *(() if lists else ("docs+x://1",)), lists=lists, steps=steps)
        for _ in range(2):
            docs.say(hub, change, uri)
        await asyncio.sleep(1)
        assert steps == [Event("docs", change, uri), None if lists else "docs+x://1"] * 2

    run(check())


@pytest.mark.parametrize("answers", [True, False])
def test_other_processes_hear_before_listeners_are_told(answers: bool) -> None:
    """Not for long where they do not answer; who listens to nothing that changed keeps nobody waiting."""

    async def check() -> None:
        loop = asyncio.get_running_loop()
        steps: list[object] = []

        async def settle() -> None:
            steps.append("telling")
            await asyncio.sleep(0.1 if answers else 60)
            steps.append("heard")

        docs = Speaker(steps=steps)
        voice = replace(docs.voice, settle=settle)
        hub = hub_of()
        hub.adopt([voice])
        event = Event("docs", LIST)
        hub.heard(voice, event)
        assert steps == [event]
        await asyncio.sleep(1)
        begun = loop.time()
        woken = asyncio.Event()
        listener = hub.open(wanted(lists=True), Caller(), woken.set)
        hub.heard(voice, event)
        await turn()
        assert steps == [event, event, "telling"]
        assert listener.take() == []
        await woken.wait()
        assert listener.take() == [None]
        assert loop.time() - begun == pytest.approx(0.1 if answers else hubs.TELL_SECONDS)
        assert ("heard" in steps) is answers
        hub.heard(voice, event)
        await hub.end()
        assert listener.over

    after(check())


def test_what_another_process_heard_is_told_here_too() -> None:
    """At its pace; the cache has been told already.  What was heard here as well is told once."""

    async def check() -> None:
        docs = Speaker()
        hub = hub_of(docs)
        steps: list[object] = []
        listening(hub, "docs+x://1", lists=True, steps=steps)
        for _ in range(100):
            hub.heard_elsewhere(docs.voice, Event("docs", LIST))
        assert steps == [None]
        await asyncio.sleep(2)
        assert steps == [None, None]
        assert docs.invalidated == []
        event = Event("docs", RESOURCE, "x://1")
        hub.heard(docs.voice, event)
        hub.heard_elsewhere(docs.voice, event)
        await asyncio.sleep(2)
        assert steps == [None, None, "docs+x://1"]
        hub.heard_elsewhere(Speaker().voice, event)
        assert len(steps) == 3

    after(check())


def test_H32_a_storm_costs_little_and_its_last_change_is_told() -> None:
    """500 changes in a second are at most five invalidations, and as many notices for each listener."""

    async def check() -> None:
        docs, quiet = Speaker(), Speaker("quiet")
        hub = hub_of(docs, quiet)
        steps: list[list[object]] = [[] for _ in range(50)]
        for number, taken in enumerate(steps):
            listening(hub, "docs+x://1", lists=number % 2 == 0, steps=taken)
        for _ in range(500):
            docs.say(hub)
            await asyncio.sleep(1 / 500)
        before = len(docs.invalidated)
        await asyncio.sleep(1)
        assert before <= len(docs.invalidated) <= 5
        assert quiet.invalidated == []
        for number, taken in enumerate(steps):
            assert taken == ([None] * len(docs.invalidated) if number % 2 == 0 else [])

    run(check())


def test_the_last_change_is_told_after_it() -> None:
    """What changes again while it is quietened is told once more, later than the last change."""

    async def check() -> None:
        docs = Speaker()
        hub = hub_of(docs)
        steps: list[object] = []
        listening(hub, lists=True, steps=steps)
        for _ in range(3):
            docs.say(hub)
        assert steps == [None]
        await asyncio.sleep(0.3)
        assert steps == [None, None]
        await asyncio.sleep(5)
        assert steps == [None, None]

    run(check())


def test_an_upstream_is_told_the_union_of_all_wishes() -> None:
    """The whole of it, when it became another one, and once for all that happened at once."""

    async def check() -> None:
        docs, more = Speaker(), Speaker("more")
        hub = hub_of(docs, more)
        one = listening(hub, "docs+x://1", "more+y://1")
        two = listening(hub, "docs+x://1", "DOCS+x://2")
        await turn()
        assert docs.wanted == [(b"", wanted("x://1", "x://2"))]
        assert more.wanted == [(b"", wanted("y://1"))]
        three = listening(hub, lists=True)
        await turn()
        assert (docs.wants, more.wants) == (
            {b"": wanted("x://1", "x://2", lists=True)},
            {b"": wanted("y://1", lists=True)},
        )
        calls = len(docs.wanted)
        four = listening(hub, "docs+x://1")
        await turn()
        assert len(docs.wanted) == calls
        for listener in (three, two, four):
            hub.close(listener)
        await turn()
        assert docs.wanted[calls:] == [(b"", wanted("x://1"))]
        hub.close(one)
        await turn()
        assert (docs.wanted[-1], more.wanted[-1]) == ((b"", Wanted()), (b"", Wanted()))
        hub.close(one)
        assert len(hub) == 0

    run(check())


def test_a_wish_that_comes_and_goes_at_once_is_told_nobody() -> None:
    """What was wanted and is wanted no more within one turn costs the upstream nothing."""

    async def check() -> None:
        docs = Speaker()
        hub = hub_of(docs)
        hub.close(listening(hub, "docs+x://1"))
        await turn()
        assert docs.wanted == []

    run(check())


def test_what_one_context_hears_is_told_in_it_alone() -> None:
    """An event says whose stream it was heard on; one without concerns everyone."""

    async def check() -> None:
        docs = Speaker(forwards=True)
        hub = hub_of(docs)
        mine, again, others = (
            listening(hub, "docs+x://1", lists=True, caller=bearer(token)) for token in ("A", "A", "B")
        )
        await turn()
        assert docs.wants == dict.fromkeys((b"A", b"B"), wanted("x://1", lists=True))
        docs.say(hub, RESOURCE, "x://1", b"A")
        assert (mine.take(), again.take(), others.take()) == (["docs+x://1"], ["docs+x://1"], [])
        docs.say(hub, LIST, None, b"B")
        assert (mine.take(), again.take(), others.take()) == ([], [], [None])
        docs.say(hub, RESOURCE, "x://1/2", None)
        assert (mine.take(), others.take()) == (["docs+x://1/2"], ["docs+x://1/2"])
        docs.say(hub, RESOURCE, "x://1", b"C")
        await asyncio.sleep(1)
        assert (mine.take(), others.take()) == ([], [])
        hub.close(others)
        await turn()
        assert docs.wanted[-1] == (b"B", Wanted())
        assert docs.wants == {b"A": wanted("x://1", lists=True)}

    after(check())


def test_a_caller_hears_nothing_of_upstreams_it_may_not_see() -> None:
    """Neither on its behalf is anything wanted of them."""

    async def check() -> None:
        docs, more = Speaker(), Speaker("more")
        hub = hub_of(docs, more)
        caller = Caller(upstreams=frozenset({"more"}))
        assert await hub.offered(wanted("docs+x://1", "more+x://1", lists=True), caller) == wanted(
            "more+x://1", lists=True
        )
        listener = listening(hub, "docs+x://1", "more+x://1", lists=True, caller=caller)
        await turn()
        assert docs.wants == {}
        docs.say(hub, GAP)
        assert listener.take() == []

    after(check())


@pytest.mark.parametrize(
    ("asked", "docs", "more", "granted"),
    [
        (wanted(lists=True), BOTH, BOTH, wanted(lists=True)),
        (wanted(lists=True), Offers(resources=True), Offers(lists=True), wanted(lists=True)),
        (wanted(lists=True), Offers(resources=True), Offers(), wanted()),
        (wanted("docs+x://1", "more+x://1"), BOTH, Offers(lists=True), wanted("docs+x://1")),
        (wanted("docs+x://1", "nope+x://1"), BOTH, BOTH, wanted("docs+x://1")),
        (wanted("DOCS+x://1", "docs+x://1"), BOTH, BOTH, wanted("DOCS+x://1", "docs+x://1")),
        (wanted(), BOTH, BOTH, wanted()),
    ],
    ids=str,
)
def test_H31_a_wish_is_granted_as_far_as_upstreams_tell(
    asked: Wanted, docs: Offers, more: Offers, granted: Wanted
) -> None:
    """What an upstream does not tell of, and what none has the prefix of, is left out; nobody is asked."""

    async def check() -> None:
        speakers = Speaker(offers=docs), Speaker("more", more)
        assert await hub_of(*speakers).offered(asked, Caller()) == granted
        assert [speaker.asked for speaker in speakers] == [0, 0]

    run(check())


@pytest.mark.parametrize("found", [True, False])
def test_an_unknown_upstream_is_waited_for_a_second(found: bool) -> None:
    """Then what was asked of it is left out; what became known meanwhile is granted at once."""

    async def check() -> None:
        loop = asyncio.get_running_loop()
        docs, more = Speaker(offers=None), Speaker("more")
        hub = hub_of(docs, more)
        if found:
            loop.call_later(0.5, docs.found.set)
        granted = await hub.offered(wanted("docs+x://1", "more+x://1"), Caller())
        assert granted == (wanted("docs+x://1", "more+x://1") if found else wanted("more+x://1"))
        assert loop.time() == (0.5 if found else hubs.KNOW_SECONDS)
        assert docs.asked == 1

    run(check())


@pytest.mark.parametrize(("docs", "asked"), [(None, 0), (Offers(), 1)], ids=["known", "unknown"])
def test_lists_wait_for_nobody_where_somebody_is_known_to_tell(docs: Offers | None, asked: int) -> None:
    """Only where no known upstream tells of its lists those that are unknown are asked."""

    async def check() -> None:
        more = Speaker("more", BOTH if docs is None else None)
        less = Speaker(offers=docs)
        more.found.set()
        assert await hub_of(less, more).offered(wanted(lists=True), Caller()) == wanted(lists=True)
        assert (less.asked, more.asked) == (0, asked)

    run(check())


def test_an_upstream_that_cannot_be_asked_is_left_out() -> None:
    """Its failure is nobody's error."""

    async def check() -> None:
        docs = Speaker(offers=None)

        async def fail(_: Caller) -> None:
            raise ConnectionError

        voice = replace(docs.voice, know=fail)
        hub = hub_of()
        hub.adopt([voice])
        assert await hub.offered(wanted("docs+x://1"), Caller()) == wanted()

    run(check())


def test_what_waits_for_a_listener_is_bounded_and_nothing_is_lost() -> None:
    """Where parts become too many, what was asked for stands for the rest of them; nobody else notices."""

    async def check() -> None:
        docs = Speaker()
        hub = hub_of(docs)
        slow = listening(hub, "docs+x://", "docs+y://", lists=True)
        steps: list[object] = []
        listening(hub, "docs+x://", steps=steps)
        for number in range(1200):
            docs.say(hub, RESOURCE, f"x://{number}")
            await asyncio.sleep(1)
        docs.say(hub, RESOURCE, "y://1")
        docs.say(hub)
        parts: list[str | None] = [f"docs+x://{number}" for number in range(1024)]
        assert slow.take() == [*parts, "docs+x://", "docs+y://", None]
        assert len(steps) == 1200
        assert slow.take() == []

    after(check())


def test_a_listener_may_change_what_it_wants() -> None:
    """What it has not taken of what it wants no more is forgotten."""

    async def check() -> None:
        docs = Speaker()
        hub = hub_of(docs)
        wakes: list[int] = []
        listener = hub.open(wanted("docs+x://1"), Caller(), lambda: wakes.append(1))
        docs.say(hub, RESOURCE, "x://1")
        hub.change(listener, wanted("docs+x://2"))
        assert listener.take() == []
        for uri in ("x://1", "x://2"):
            docs.say(hub, RESOURCE, uri)
        assert listener.take() == ["docs+x://2"]
        assert wakes == [1, 1]
        await turn()
        assert docs.wanted == [(b"", wanted("x://2"))]
        hub.close(listener)
        assert hub._weight == 0

    after(check())


def test_wishes_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    """All together; there is room again when one has ended."""

    async def check() -> None:
        hub = hub_of(Speaker())
        monkeypatch.setattr(hubs, "MAX_WEIGHT", 600)
        assert hub.has_room(wanted("docs+x://1", "docs+x://2"))
        listener = listening(hub, "docs+x://1")
        assert hub.has_room(wanted("docs+x://2"))
        assert not hub.has_room(wanted("docs+x://2", "docs+x://3"))
        assert hub.has_room(wanted(lists=True))
        hub.close(listener)
        hub.close(listener)
        assert hub.has_room(wanted("docs+x://1", "docs+x://2"))

    run(check())


def test_listeners_follow_a_reload() -> None:
    """The upstreams in force now are told what is wanted of them, those that left are released."""

    async def check() -> None:
        docs, more = Speaker(), Speaker("more")
        hub = hub_of(docs, more)
        listener = listening(hub, "docs+x://1", "new+x://1")
        idle = listening(hub)
        await turn()
        new = Speaker("new")
        hub.adopt([docs.voice, new.voice])
        assert docs.wanted == [(b"", wanted("x://1"))]
        assert new.wants == {b"": wanted("x://1")}
        assert listener.take() == ["new+x://1"]
        assert idle.take() == []
        other = Speaker()
        hub.adopt([other.voice, new.voice])
        assert (docs.wants, other.wants) == ({}, {b"": wanted("x://1")})
        assert listener.take() == ["docs+x://1"]
        hub.adopt([new.voice])
        assert other.wants == {}
        assert listener.take() == []

    run(check())


def test_what_the_cache_wants_is_wanted_beside_what_listeners_want() -> None:
    """On behalf of nobody in particular; nobody is told of it."""

    async def check() -> None:
        docs = Speaker(forwards=True)
        hub = hub_of(docs)
        hub.keep(docs.voice, wanted("x://1", lists=True))
        listener = listening(hub, "docs+x://2")
        await turn()
        assert docs.wanted == [(b"nobody", wanted("x://1", "x://2", lists=True))]
        docs.say(hub)
        docs.say(hub, RESOURCE, "x://1")
        assert listener.take() == []
        assert [event.change for event in docs.invalidated] == [LIST, RESOURCE]
        hub.close(listener)
        hub.keep(docs.voice, wanted("x://3"))
        await turn()
        assert docs.wants == {b"nobody": wanted("x://3")}
        hub.adopt([docs.voice])
        await turn()
        assert len(docs.wanted) == 2
        other = Speaker()
        hub.adopt([other.voice])
        await turn()
        assert (docs.wants, other.wants) == ({}, {})
        hub.keep(docs.voice, wanted("x://3"))
        await turn()
        assert docs.wants == {}

    after(check())


@pytest.mark.parametrize(
    ("names", "told"),
    [(["docs", "more"], []), (["docs"], [None]), (["docs", "more", "new"], [None])],
    ids=["the same", "one less", "one more"],
)
def test_a_reload_that_changes_the_list_is_told(names: list[str], told: list[None]) -> None:
    """Who listens to lists hears of upstreams that came or left, as of any other change."""

    async def check() -> None:
        speakers = {name: Speaker(name) for name in ("docs", "more", "new")}
        hub = hub_of(speakers["docs"], speakers["more"])
        listener = listening(hub, lists=True)
        hub.adopt([speakers[name].voice for name in names])
        assert listener.take() == told

    run(check())


def test_an_upstream_that_was_replaced_still_tells_its_own_cache() -> None:
    """Requests that began with it go by that; listeners hear only who is in force."""

    async def check() -> None:
        old, new = Speaker(), Speaker()
        hub = hub_of(old)
        listener = listening(hub, lists=True)
        for _ in range(2):
            old.say(hub)
        hub.adopt([new.voice])
        assert len(old.invalidated) == 2
        assert listener.take() == [None]
        old.say(hub)
        assert len(old.invalidated) == 3
        assert listener.take() == []
        assert new.invalidated == []

    run(check())


def test_what_upstreams_say_is_counted() -> None:
    """Each word of theirs, however few acts come of it."""

    async def check() -> None:
        docs = Speaker()
        hub = hub_of(docs)
        for _ in range(3):
            docs.say(hub)
        docs.say(hub, RESOURCE, "x://1")
        text = hub._metrics.render()[0].decode()
        assert 'notifications_total{kind="list_changed",upstream="docs"} 3.0' in text
        assert 'notifications_total{kind="updated",upstream="docs"} 1.0' in text

    after(check())


def test_the_capabilities_are_those_of_all_upstreams() -> None:
    """One that tells is enough; one that is unknown counts for nothing."""

    async def check() -> None:
        assert hub_of().offers == Offers()
        assert hub_of(Speaker(offers=None)).offers == Offers()
        assert hub_of(Speaker(offers=None), Speaker("b", Offers(lists=True))).offers == Offers(lists=True)
        assert hub_of(Speaker(offers=Offers(resources=True)), Speaker("b", Offers(lists=True))).offers == BOTH

    run(check())
