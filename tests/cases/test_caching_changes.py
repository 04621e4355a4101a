"""Changes while an answer is on its way: case H28, over the whole product.

Each row is one input.  It is judged by what reached the upstream, and by what each client got.
"""

import asyncio
import json

import pytest

from mcp_federator.model import Change, Event
from tests.instruments.fronted import (
    FORWARD,
    LIST,
    ONE,
    PARAMS,
    READ,
    SHELF,
    TEMPLATES,
    URI,
    after,
    bearer,
    choosing,
    failed,
    fronted,
    run,
    shown,
    text,
)
from tests.instruments.house import House, Reply
from tests.instruments.wire import (
    Answer,
    Received,
    Wire,
    contents,
    error,
    page,
    reply,
    result,
)

# H28: changes while a fetch is under way.


def change(it: House, what: Change, uri: str | None = None) -> None:
    """The upstream says that something changed, as the product hears it."""
    federation = it.app._federation
    federation.hub.heard(federation._stacks["alpha"].voice, Event("alpha", what, uri))
    # Each is one of its own: what comes right after another would else be gathered for a moment.
    federation.hub._channels["alpha"].pace.flush()


def version(method: str, number: int) -> Answer:
    """The shelf's result as it was when this was its version."""
    members = json.dumps(SHELF[method]).replace('"text"}', f'"v{number}"}}')
    return result(
        members.replace('"t"', f'"v{number}"').replace('"name": "x://1"', f'"name": "v{number}"').encode()
    )


def version_of(told: Reply) -> str:
    (one,) = shown(told)
    return str(one.get("text") or one["name"])


CHANGES: dict[str, tuple[str, Change, str | None, bool]] = {
    "read-updated": (READ, Change.RESOURCE, "x://1", True),
    "read-part-updated": (READ, Change.RESOURCE, "x://1/part", True),
    "read-part-of-a-part-updated": (READ, Change.RESOURCE, "x://1/a/b?c", True),
    "read-fragment-updated": (READ, Change.RESOURCE, "x://1#a", True),
    "read-any-updated": (READ, Change.RESOURCE, None, True),
    "read-other-updated": (READ, Change.RESOURCE, "x://2", False),
    "read-namesake-updated": (READ, Change.RESOURCE, "x://10", False),
    "read-list-changed": (READ, Change.LIST, None, False),
    "list-changed": (LIST, Change.LIST, None, True),
    "list-updated": (LIST, Change.RESOURCE, "x://1", False),
    "templates-changed": (TEMPLATES, Change.LIST, None, True),
    "templates-updated": (TEMPLATES, Change.RESOURCE, "x://1", False),
}
"""What is being fetched, what changes meanwhile, and whether that concerns it."""


@pytest.mark.parametrize("kind", CHANGES)
def test_H28_a_change_during_the_fetch(kind: str) -> None:
    """What was asked for before the change goes to its asker with no life left, and is not kept."""
    method, what, uri, concerned = CHANGES[kind]

    async def body() -> None:
        go = asyncio.Event()
        async with fronted({method: [after(go, version(method, 1)), version(method, 2)]}) as (it, wire):
            early = asyncio.create_task(it.post(method, PARAMS[method]))
            await wire.arrived(method)
            change(it, what, uri)
            go.set()
            told = await early
            assert (version_of(told), told.result["ttlMs"]) == ("v1", 0 if concerned else 60_000)
            assert ("stored" in told.cache_status) is not concerned
            later = await it.post(method, PARAMS[method])
            assert version_of(later) == ("v2" if concerned else "v1")
            assert later.result["ttlMs"] == 60_000
            assert len(wire.calls(method)) == (2 if concerned else 1)
            assert await it.samples("mcp_federator_invalidations_total", upstream="alpha") == 1

    run(body())


@pytest.mark.parametrize("method", SHELF)
def test_H28_who_asks_after_the_change_does_not_join(method: str) -> None:
    """He gets an answer that was asked for after it, which also stays when the older one comes in late."""
    go = asyncio.Event()
    what, uri = (Change.RESOURCE, "x://1") if method == READ else (Change.LIST, None)

    async def body() -> None:
        async with fronted({method: [after(go, version(method, 1)), version(method, 2)]}) as (it, wire):
            early = asyncio.create_task(it.post(method, PARAMS[method]))
            await wire.arrived(method)
            change(it, what, uri)
            assert version_of(await it.post(method, PARAMS[method])) == "v2"
            go.set()
            assert version_of(await early) == "v1"
            kept = await it.post(method, PARAMS[method])
            assert (version_of(kept), kept.cache_status) == ("v2", "mcp-federator; hit; ttl=60")
            assert len(wire.calls(method)) == 2

    run(body())


def test_H28_a_kept_copy_is_gone_after_a_change() -> None:
    """It is not served any more, not even instead of a failure."""

    async def body() -> None:
        async with fronted({READ: [result(ONE), reply(b"", status=500)]}) as (it, wire):
            await it.read(URI)
            change(it, Change.RESOURCE, "x://1")
            failed(await it.read(URI), "bad_reply")
            assert len(wire.calls(READ)) == 2

    run(body())


def test_H28_a_gap_makes_copies_stale_not_gone() -> None:
    """Where changes may have been missed the upstream is asked again; while it fails, the copy stands in."""

    async def body() -> None:
        async with fronted({READ: [result(ONE), reply(b"", status=500), version(READ, 2)]}) as (it, wire):
            await it.read(URI)
            change(it, Change.GAP)
            stale = await it.read(URI)
            assert (text(stale), stale.result["ttlMs"]) == ("text", 0)
            assert stale.cache_status == "mcp-federator; fwd=stale; detail=stale-if-error"
            assert version_of(await it.read(URI)) == "v2"
            assert len(wire.calls(READ)) == 3

    run(body())


def test_H28_a_gap_during_the_fetch() -> None:
    """What was asked for before the gap is stale when it comes: the next read asks again."""

    async def body() -> None:
        go = asyncio.Event()
        async with fronted({READ: [after(go, version(READ, 1)), version(READ, 2)]}) as (it, wire):
            early = asyncio.create_task(it.read(URI))
            await wire.arrived(READ)
            change(it, Change.GAP)
            go.set()
            told = await early
            assert (version_of(told), told.result["ttlMs"]) == ("v1", 0)
            assert version_of(await it.read(URI)) == "v2"
            assert len(wire.calls(READ)) == 2

    run(body())


@pytest.mark.parametrize("during", [False, True])
def test_H28_what_is_shown_inside_another(during: bool) -> None:
    """A folder's answer holds a file's text: a change of the file, before or after, is one of the folder."""
    folder = {**ONE, "contents": [{"uri": "x://1", "text": "v1"}, {"uri": "y://file", "text": "v1"}]}

    async def body() -> None:
        go = asyncio.Event()
        async with fronted({READ: [after(go, result(folder)), version(READ, 2)]}) as (it, wire):
            early = asyncio.create_task(it.read(URI))
            await wire.arrived(READ)
            if during:
                change(it, Change.RESOURCE, "y://file")
            go.set()
            await early
            if not during:
                assert len(shown(await it.read(URI))) == 2
                change(it, Change.RESOURCE, "y://file")
            assert version_of(await it.read(URI)) == "v2"
            assert len(wire.calls(READ)) == 2

    run(body())


def test_H28_a_change_before_a_private_answer() -> None:
    """Private copies of every caller are gone with it."""

    async def body() -> None:
        answer = choosing(lambda request: result(contents("x://1", request.headers[-1][1], scope="private")))
        async with fronted({READ: answer}, FORWARD) as (it, wire):
            for token in "ABAB":
                await it.read(URI, headers=bearer(token))
            assert len(wire.calls(READ)) == 2
            change(it, Change.RESOURCE, "x://1")
            for token in "ABAB":
                await it.read(URI, headers=bearer(token))
            assert len(wire.calls(READ)) == 4

    run(body())


def test_H28_all_pages_of_a_list_go_together() -> None:
    """A change of the list, or a cursor that its own upstream does not know any more, drops every page."""

    def choose(request: Received) -> Answer:
        if "cursor" not in request.params:
            return result(page("x://1", cursor="c"))
        return error(-32602, "no such cursor") if len(wires[0].calls(LIST)) > 6 else result(page("x://2"))

    wires: list[Wire] = []

    async def body() -> None:
        async with fronted({LIST: choosing(choose)}) as (it, wire):
            wires.append(wire)
            assert len(await it.walk()) == len(await it.walk()) == 2
            assert len(wire.calls(LIST)) == 2
            change(it, Change.LIST)
            await it.walk()
            assert len(wire.calls(LIST)) == 4
            change(it, Change.LIST)
            await it.walk()
            change(it, Change.LIST)
            cursor = (await it.page()).result["nextCursor"]
            refused = await it.page(cursor)
            assert (refused.status, refused.error["code"]) == (400, -32602)
            assert (await it.page()).cache_status == "mcp-federator; fwd=miss; stored"
            assert len(wire.calls(LIST)) == 9

    run(body())
