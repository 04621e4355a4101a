"""Legacy upstreams behind the whole product: what modern clients notice of them."""

import asyncio
import json
from collections.abc import AsyncIterator, Iterable, Mapping
from contextlib import asynccontextmanager
from typing import Any

import pytest

from tests.instruments import legacy
from tests.instruments.fronted import (
    DISCOVER,
    INCOMPLETE,
    LIST,
    PATIENCE,
    READ,
    Clock,
    after,
    choosing,
    run,
    text,
)
from tests.instruments.house import House, configured, house
from tests.instruments.wire import (
    Answer,
    Answers,
    End,
    Received,
    Step,
    Wire,
    contents,
    discovered,
    error,
    page,
    reply,
    result,
    stream,
)
from tests.upstream.legacy_server import (
    INITIALIZE,
    INITIALIZED,
    NO_SESSION,
    NOT_FOUND,
    ONE,
    PAGE,
    LegacyWire,
    methods,
    one,
)

BETA = {READ: result(contents("x://1")), LIST: result(page("x://1"))}
both_ways = pytest.mark.parametrize("lost", [NOT_FOUND, NO_SESSION], ids=["404", "400"])


@asynccontextmanager
async def both(
    answers: Mapping[str, Answers], lost: Answer = NOT_FOUND
) -> AsyncIterator[tuple[House, LegacyWire, Wire]]:
    """A legacy upstream `alpha` and a modern one `beta`, behind the whole product."""
    async with (
        LegacyWire(answers, lost=lost) as alpha,
        Wire(BETA) as beta,
        house({"alpha": alpha.url, "beta": beta.url}) as it,
    ):
        yield it, alpha, beta


async def reads(it: House, uri: str, count: int) -> list[Any]:
    return [reply.message for reply in await asyncio.gather(*(it.read(f"{uri}{n}") for n in range(count)))]


def any_uri(request: Any) -> Any:
    return result({"contents": [{"uri": request.params["uri"], "text": "text"}]})(request)


@both_ways
def test_H18_clients_see_nothing_of_a_lost_session(lost: Answer) -> None:
    """Ten reads of one upstream whose session is gone, and one of another: all answered, one handshake."""

    async def body() -> None:
        async with both(one() | {READ: any_uri}, lost) as (it, alpha, beta):
            await it.read("alpha+x://first")
            alpha.alive.clear()
            del alpha.received[:]
            messages, (other,) = await asyncio.gather(
                reads(it, "alpha+x://", 10), asyncio.gather(it.read("beta+x://1"))
            )
            assert all(message["result"]["contents"][0]["text"] == "text" for message in messages)
            assert other.uris == ["beta+x://1"]
            assert (len(alpha.calls(INITIALIZE)), len(alpha.calls(INITIALIZED))) == (1, 1)
            assert alpha.calls(INITIALIZE)[0].header("mcp-session-id") is None
            assert len(alpha.calls(READ)) == 20
            assert methods(beta) == [DISCOVER, READ]

    run(body())


@both_ways
def test_H18_a_second_loss_is_told_in_our_words(lost: Answer) -> None:
    """An upstream that forgets every session: an error for each read, no loop, and the other one serves."""

    async def body() -> None:
        async with both({READ: lost, LIST: lost}, lost) as (it, alpha, _):
            for message in await reads(it, "alpha+x://", 10):
                assert message["error"]["code"] == -32603
                assert message["error"]["data"] == {"upstream": "alpha", "reason": "refused"}
            assert len(alpha.calls(READ)) == 20
            assert len(alpha.calls(INITIALIZE)) <= 11
            listed = await it.page()
            assert listed.uris == ["beta+x://1"]
            assert listed.result["_meta"][INCOMPLETE] == [{"upstream": "alpha", "reason": "refused"}]

    run(body())


def test_H22_not_found_of_a_legacy_server() -> None:
    """-32602 with the public URI as asked; nothing of it is kept, and once it is there it is read."""

    async def body() -> None:
        missing = error(-32002, data={"uri": "x://1"}, status=200)
        async with both(one() | {READ: [missing, missing, result(ONE)]}) as (it, _, _):
            for _ in range(2):
                failed = (await it.read("alpha+x://1")).error
                assert (failed["code"], failed["data"]) == (-32602, {"uri": "alpha+x://1"})
            assert (await it.read("alpha+x://1")).uris == ["alpha+x://1"]

    run(body())


def test_hints_of_the_configuration_make_a_legacy_server_cacheable() -> None:
    """With a default life its answers are kept and told with it; without one they are asked for each time."""

    async def body() -> None:
        kept = {"default_ttl": "30s", "default_scope": "public"}
        async with LegacyWire(one()) as alpha, LegacyWire(one()) as beta:
            upstreams = {"alpha": {"url": alpha.url, "cache": kept}, "beta": beta.url}
            async with house(upstreams) as it:
                for name, calls in (("alpha", 1), ("beta", 2)):
                    first, second = [await it.read(f"{name}+x://1") for _ in range(2)]
                    assert first.result["resultType"] == second.result["resultType"] == "complete"
                    assert (second.result["ttlMs"] > 0) is (name == "alpha")
                    wire = alpha if name == "alpha" else beta
                    assert len(wire.calls(READ)) == calls

    run(body())


def test_an_upgrade_and_a_downgrade_cost_no_request() -> None:
    """An upstream changes its era twice; every read and every list in between is whole."""

    async def body() -> None:
        clock = Clock()
        async with LegacyWire(one(), sessions=False) as alpha:
            legacy: dict[str, Answers] = dict(alpha.answers)

            def only(era: str, then: Answer, otherwise: Answer) -> Answer:
                def choose(request: Any) -> Any:
                    modern = request.header("mcp-method") is not None
                    return (then if modern is (era == "modern") else otherwise)(request)

                return choose

            refusal = reply(status=400)
            turned: dict[str, Answers] = {
                DISCOVER: result(discovered()),
                INITIALIZE: error(-32601, status=404),
                READ: only("modern", result(contents("x://1", ttl=0)), error(-32020)),
                LIST: only("modern", result(page("x://1", ttl=0)), error(-32020)),
            }
            back: dict[str, Answers] = legacy | {
                READ: only("legacy", result(ONE), refusal),
                LIST: only("legacy", result(PAGE), refusal),
            }
            async with house({"alpha": alpha.url}, clock=clock) as it:
                for answers, era in ((legacy, "legacy"), (turned, "modern"), (back, "legacy")):
                    alpha.answers = answers
                    clock.now += 5
                    assert (await it.read("alpha+x://1")).uris == ["alpha+x://1"]
                    listed = await it.page()
                    assert listed.uris == ["alpha+x://1"]
                    assert INCOMPLETE not in listed.result["_meta"]
                    (told,) = (await it.status())["upstreams"]
                    assert told["era"] == era

    run(body())


# Changes that legacy servers tell of.

INVALIDATIONS = "mcp_federator_invalidations_total"
KEPT = {"cache": {"default_ttl": "1h", "default_scope": "public"}}


class Telling(LegacyWire):
    """A legacy server that says on its stream, when a test wants it, that something changed."""

    def __init__(self, answers: dict[str, Answers]) -> None:
        super().__init__(one() | {"None": choosing(self._own)} | answers)
        self._words: list[bytes] = []
        self._news = asyncio.Event()

    def tell(self, method: str, **params: Any) -> None:
        message = {"jsonrpc": "2.0", "method": f"notifications/resources/{method}", "params": params}
        self._words.append(b"data: %b\n\n" % json.dumps(message).encode())
        self._news.set()

    def _own(self, request: Received) -> Answer:
        return self._speak if request.verb == "GET" else reply(status=202, content_type=None)

    def _speak(self, request: Received) -> Iterable[Step]:
        head, *_ = stream()(request)
        yield head
        while True:
            yield self._news
            self._news.clear()
            for words in self._words:
                yield b"%x\r\n%b\r\n" % (len(words), words)
            self._words.clear()


async def counted(it: House, reason: str, count: int = 1) -> None:
    """Until so many events of `alpha` were heard; each look is a round trip."""
    async with asyncio.timeout(PATIENCE):
        while await it.samples(INVALIDATIONS, upstream="alpha", reason=reason) < count:
            pass


def numbered(method: str) -> list[Answer]:
    """Answers to a read or a list, which tell one from the next."""
    if method == READ:
        return [result({"contents": [{"uri": "x://1", "text": f"v{n}"}]}) for n in (1, 2, 3)]
    return [result({"resources": [{"uri": f"x://v{n}", "name": "n"}]}) for n in (1, 2, 3)]


async def seen(it: House, method: str) -> str:
    """Which answer a client gets: the end of its text or its URI."""
    found = text(await it.read("alpha+x://1")) if method == READ else (await it.page()).uris[0]
    return found[-2:]


TOLD = pytest.mark.parametrize(
    ("method", "told", "reason"), [(READ, "updated", "updated"), (LIST, "list_changed", "list_changed")]
)


@TOLD
def test_a_change_drops_what_is_kept(method: str, told: str, reason: str) -> None:
    """A copy that would live for an hour is asked for again once its server says that it changed."""

    async def body() -> None:
        async with (
            Telling({method: numbered(method)}) as alpha,
            house({"alpha": {"url": alpha.url, **KEPT}}) as it,
        ):
            assert [await seen(it, method) for _ in range(3)] == ["v1"] * 3
            alpha.tell(told, uri="x://1")
            await counted(it, reason)
            assert [await seen(it, method) for _ in range(3)] == ["v2"] * 3
            assert len(alpha.calls(method)) == 2

    run(body())


@TOLD
def test_H28_a_change_overtakes_a_fetch(method: str, told: str, reason: str) -> None:
    """What was fetched before a change and comes after it is told to its asker, and not kept."""

    async def body() -> None:
        go = asyncio.Event()
        first, *others = numbered(method)
        async with (
            Telling({method: [after(go, first), *others]}) as alpha,
            house({"alpha": {"url": alpha.url, **KEPT}}) as it,
        ):
            asked = asyncio.create_task(seen(it, method))
            await alpha.arrived(method)
            alpha.tell(told, uri="x://1")
            await counted(it, reason)
            assert await seen(it, method) == "v2"
            go.set()
            assert await asked == "v1"
            assert [await seen(it, method) for _ in range(3)] == ["v2"] * 3
            assert len(alpha.calls(method)) == 2

    run(body())


def test_a_change_of_another_resource_costs_nothing() -> None:
    """Only what changed is asked for again."""

    async def body() -> None:
        async with (
            Telling({READ: numbered(READ)}) as alpha,
            house({"alpha": {"url": alpha.url, **KEPT}}) as it,
        ):
            await seen(it, READ)
            alpha.tell("updated", uri="x://2")
            alpha.tell("list_changed")
            await counted(it, "list_changed")
            assert await seen(it, READ) == "v1"

    run(body())


def test_a_gap_makes_stale_and_not_gone(monkeypatch: pytest.MonkeyPatch) -> None:
    """After a stream that broke everything is asked for again, and may stand in for a failure."""
    monkeypatch.setattr("mcp_federator.upstream.restarts.FIRST", 0.001)
    plays = [stream(b'data: {"jsonrpc":"2.0","method":"notifications/x"}\n\n'), stream(End.HOLD)]
    answers = one() | {READ: [numbered(READ)[0], reply(status=503)]}

    async def body() -> None:
        broken = asyncio.Event()

        def own(request: Received) -> Answer:
            if request.verb != "GET":
                return reply(status=202, content_type=None)
            return after(broken, plays.pop(0)) if len(plays) == 2 else plays[0]

        async with (
            LegacyWire(answers | {"None": choosing(own)}) as alpha,
            house({"alpha": {"url": alpha.url, **KEPT}}) as it,
        ):
            assert await seen(it, READ) == "v1"
            assert await seen(it, READ) == "v1"
            broken.set()
            await counted(it, "gap")
            stale = await it.read("alpha+x://1")
            assert (text(stale), stale.result["ttlMs"]) == ("v1", 0)
            assert "stale-if-error" in stale.cache_status
            assert len(alpha.calls(READ)) == 2

    run(body())


@pytest.mark.parametrize("transport", ["http", "stdio"])
def test_what_a_real_legacy_server_tells_is_heard(transport: str) -> None:
    """The SDK's mcp 1.30 says that its list changed, over both transports: a kept list is asked for again."""

    async def body(upstream: dict[str, Any]) -> None:
        async with house({"alpha": {**upstream, **KEPT}}) as it:

            async def whole() -> list[str]:
                uris: list[str] = []
                listed = await it.page()
                while True:
                    uris += listed.uris
                    cursor = listed.result.get("nextCursor")
                    if cursor is None:
                        return uris
                    listed = await it.page(cursor)

            before = await whole()
            assert await whole() == before
            number = 0
            # A server tells nobody while no stream is open, which comes to be behind our back.
            while not await it.samples(INVALIDATIONS, upstream="alpha", reason="list_changed"):
                number += 1
                assert text(await it.read(f"alpha+file:///notes/new-{number}.md"))
            assert f"alpha+file:///notes/new-{number}.md" in await whole()

    if transport == "stdio":
        run(body(legacy.stdio_server()))
    else:
        with legacy.http_server() as url:
            run(body({"url": url}))


def test_a_reload_and_the_end_leave_no_stream() -> None:
    """An upstream that is configured anew has one stream again, and none when all is over."""

    async def body() -> None:
        async with Telling({}) as alpha:
            async with house({"alpha": {"url": alpha.url, **KEPT}}, server={"grace": 0}) as it:
                await alpha.arrived("None", 1)
                await it.app._federation.apply(configured({"alpha": alpha.url}, server={"grace": 0}))
                await it.read("alpha+x://1")
                await alpha.arrived("None", 2)
                first, *_ = (request for request in alpha.received if request.verb == "GET")
                async with asyncio.timeout(PATIENCE):
                    await first.gone.wait()
            opened = [request for request in alpha.received if request.verb == "GET"]
            assert len(opened) == 2
            async with asyncio.timeout(PATIENCE):
                for request in opened:
                    await request.gone.wait()

    run(body())
