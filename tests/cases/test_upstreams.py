"""Upstreams that are slow or down: case H19, over the whole product.

Each row is one input.  It is judged by what reached the upstream and by what the client got for it.
"""

import asyncio
from typing import Any

import pytest

from tests.instruments import servers
from tests.instruments.fronted import (
    DISCOVER,
    HEAD,
    INCOMPLETE,
    LIST,
    ONE,
    QUICK,
    READ,
    SHELF,
    TEMPLATES,
    URI,
    Clock,
    failed,
    fronted,
    run,
    shown,
)
from tests.instruments.house import house
from tests.instruments.wire import (
    Answer,
    Answers,
    End,
    Wire,
    contents,
    discovered,
    drop,
    error,
    never,
    page,
    raw,
    reply,
    reset,
    result,
)

# H19: one upstream slow or down.

ALPHA: dict[str, Answers] = {
    LIST: result(page("a://1", ttl=300_000)),
    TEMPLATES: result({**SHELF[TEMPLATES], "ttlMs": 300_000}),
    READ: result(contents("a://1")),
}
WEATHERS: dict[str, tuple[Answer, str, dict[str, Any]]] = {
    "never-answers": (never(), "timeout", {}),
    "a-head-and-silence": (raw(HEAD, End.HOLD), "timeout", {}),
    "closes": (drop(), "unreachable", {}),
    "resets": (reset(), "unreachable", {}),
    "breaks-off": (
        raw(HEAD.replace(b"\r\n\r\n", b"\r\nContent-Length: 9\r\n\r\n"), b"data", End.CLOSE),
        "unreachable",
        {},
    ),
    "500": (reply(b"", status=500), "bad_reply", {}),
    "502": (reply(b"<h1>Bad Gateway</h1>", status=502, content_type="text/html"), "bad_reply", {}),
    "503-retry-after": (reply(b"", status=503, headers={"Retry-After": "1"}), "bad_reply", {}),
    "504": (reply(b"", status=504), "bad_reply", {}),
    "429": (reply(b"", status=429, headers={"Retry-After": "1"}), "refused", {}),
    "401": (reply(b"", status=401), "refused", {}),
    "403": (reply(b"", status=403), "refused", {}),
    "404": (reply(b"no", status=404, content_type="text/plain"), "refused", {}),
    "html": (reply(b"<html>", content_type="text/html"), "bad_reply", {}),
    "half-a-body": (reply(b'{"jsonrpc":"2.0","id":$ID,"result":{"resources":['), "bad_reply", {}),
    "no-list": (result({"resources": 7, "resourceTemplates": 7, "contents": 7}), "bad_reply", {}),
    "unknown-result-type": (result({"resultType": "other"}), "bad_reply", {}),
    "a-reserved-error": (error(-32050, "?"), "refused", {"code": -32050}),
    "redirect": (reply(b"", status=302, headers={"Location": "/login"}), "refused", {}),
}
"""Bad weather, and the word for it."""
BROKEN = {"closes", "resets"}
"""With these a kept-alive connection may have been dead: they are tried once more."""
weather_rows = pytest.mark.parametrize("weather", WEATHERS)


def falling(weather: str, members: dict[str, Any]) -> Answers:
    """A shower of this weather, then sunshine."""
    answer = WEATHERS[weather][0]
    return [*([answer] * (2 if weather in BROKEN else 1)), result(members)]


@pytest.mark.parametrize(
    ("weather", "method"), [*((it, LIST) for it in WEATHERS), ("500", TEMPLATES), ("closes", TEMPLATES)]
)
def test_H19_a_bad_upstream_does_not_spoil_the_list(weather: str, method: str) -> None:
    """The others' items come, the page says who is missing; what recovers is there at once."""

    async def body() -> None:
        clock = Clock()
        async with (
            Wire(ALPHA) as alpha,
            Wire({method: falling(weather, SHELF[method])}) as beta,
            house({"alpha": alpha.url, "beta": {"url": beta.url, **QUICK}}, clock=clock) as it,
        ):
            partial = await it.page(method=method)
            assert len(shown(partial)) == 1
            assert partial.result["ttlMs"] == 0
            assert partial.result["_meta"][INCOMPLETE] == [
                {"upstream": "beta", "reason": WEATHERS[weather][1]}
            ]
            assert "nextCursor" not in partial.result
            clock.now += 1
            whole = await it.page(method=method)
            assert len(shown(whole)) == 2
            assert INCOMPLETE not in whole.result["_meta"]
            assert whole.result["ttlMs"] == 60_000
            assert len(alpha.calls(method)) == 1
            assert len(beta.calls(method)) == (3 if weather in BROKEN else 2)
            assert await it.samples("mcp_federator_incomplete_lists_total", upstream="beta") == 1

    run(body())


@pytest.mark.parametrize("weather", ["never-answers", "closes", "500", "429", "401", "html", "redirect"])
def test_H19_an_upstream_that_fails_from_the_start(weather: str) -> None:
    """Where not even the probe is answered, the list does without it, and it is there once it recovers."""

    async def body() -> None:
        clock = Clock()
        async with Wire(ALPHA) as alpha, Wire(WEATHERS[weather][0]) as beta:
            upstreams = {"alpha": alpha.url, "beta": {"url": beta.url, **QUICK}}
            async with house(upstreams, clock=clock) as it:
                clock.now += 1
                partial = await it.page()
                assert partial.uris == ["alpha+a://1"]
                assert (partial.result["ttlMs"], "nextCursor" in partial.result) == (0, False)
                (missing,) = partial.result["_meta"][INCOMPLETE]
                assert missing["upstream"] == "beta"
                clock.now += 1
                told = (await it.read("beta+x://1")).error
                assert (told["code"], told["data"]["upstream"]) == (-32603, "beta")
                clock.now += 1
                beta.answers = Wire({LIST: result(page("x://1"))}).answers
                whole = await it.page()
                assert whole.uris == ["alpha+a://1", "beta+x://1"]
                assert INCOMPLETE not in whole.result["_meta"]

    run(body())


def test_H19_refused_connections() -> None:
    """An upstream whose port is closed costs its own items only, and is there as soon as it listens."""

    async def body() -> None:
        clock = Clock()
        async with (
            Wire(ALPHA) as alpha,
            Wire({LIST: result(page("x://1")), READ: result(ONE)}) as beta,
            house({"alpha": alpha.url, "beta": beta.url}, clock=clock) as it,
        ):
            await beta.stop()
            partial = await it.page()
            assert partial.uris == ["alpha+a://1"]
            assert partial.result["ttlMs"] == 0
            assert partial.result["_meta"][INCOMPLETE] == [{"upstream": "beta", "reason": "unreachable"}]
            failed(await it.read("beta+x://1"), "unreachable", "beta")
            assert (await it.read("alpha+a://1")).uris == ["alpha+a://1"]
            await beta.start()
            clock.now += 1
            assert (await it.page()).uris == ["alpha+a://1", "beta+x://1"]
            assert (await it.read("beta+x://1")).uris == ["beta+x://1"]

    run(body())


def test_H19_empty_at_first() -> None:
    """An upstream that lists nothing and gives no hint for twenty seconds is asked again each time."""

    async def body() -> None:
        clock = Clock()
        empty = result({"resources": []})
        async with (
            Wire(ALPHA) as alpha,
            Wire({LIST: [empty, empty, result(page("x://1"))]}) as beta,
            house({"alpha": alpha.url, "beta": beta.url}, clock=clock) as it,
        ):
            for _ in range(2):
                first = await it.page()
                assert (first.uris, first.result["ttlMs"]) == (["alpha+a://1"], 0)
                assert INCOMPLETE not in first.result["_meta"]
                clock.now += 10
            second = await it.page()
            assert (second.uris, second.result["ttlMs"]) == (["alpha+a://1", "beta+x://1"], 60_000)
            assert len(alpha.calls(LIST)) == 1

    run(body())


@weather_rows
def test_H19_a_read_of_a_bad_upstream_is_an_error(weather: str) -> None:
    """It is never "not found" and never empty contents, and the next read succeeds."""

    async def body() -> None:
        clock = Clock()
        async with fronted({READ: falling(weather, ONE)}, QUICK, clock=clock) as (it, wire):
            told = await it.read(URI)
            failed(told, WEATHERS[weather][1], **WEATHERS[weather][2])
            clock.now += 1
            assert (await it.read(URI)).uris == [URI]
            assert len(wire.calls(READ)) == (3 if weather in BROKEN else 2)

    run(body())


def test_H19_an_open_breaker_costs_no_time() -> None:
    """What failed is left alone for a while: it is missing at once, and asked again when the time is over."""

    async def body() -> None:
        clock = Clock()
        settings = {**QUICK, "breaker": {"failures": 1, "open_for": 10}}
        async with (
            Wire(ALPHA) as alpha,
            Wire({LIST: [never(), result(page("x://1"))]}) as beta,
            house({"alpha": alpha.url, "beta": {"url": beta.url, **settings}}, clock=clock) as it,
        ):
            reasons = []
            for wait in (0, 1, 5):
                clock.now += wait
                (missing,) = (await it.page()).result["_meta"][INCOMPLETE]
                reasons.append((missing["reason"], len(beta.calls(LIST))))
            assert reasons == [("timeout", 1), ("unreachable", 1), ("unreachable", 1)]
            clock.now += 12
            assert (await it.page()).uris == ["alpha+a://1", "beta+x://1"]

    run(body())


def test_H19_a_required_upstream_fails_the_list() -> None:
    """Without `required: true` a failure is named; with it the list is an error."""

    async def body() -> None:
        async with (
            Wire(ALPHA) as alpha,
            Wire({LIST: falling("closes", page("x://1"))}) as beta,
            house({"alpha": alpha.url, "beta": {"url": beta.url, "required": True}}) as it,
        ):
            failed(await it.page(), "unreachable", "beta")
            assert (await it.page()).uris == ["alpha+a://1", "beta+x://1"]

    run(body())


def test_H19_when_all_fail_there_is_no_empty_list() -> None:
    """The client gets an error that names everyone."""

    async def body() -> None:
        async with (
            Wire({LIST: drop()}) as alpha,
            Wire({LIST: reply(b"", status=500)}) as beta,
            house({"alpha": alpha.url, "beta": beta.url}) as it,
        ):
            told = (await it.page()).error
            assert told["code"] == -32603
            assert told["data"]["incomplete"] == [
                {"upstream": "alpha", "reason": "unreachable"},
                {"upstream": "beta", "reason": "bad_reply"},
            ]

    run(body())


def test_H19_a_stale_copy_stands_in() -> None:
    """A page that was kept is shown while its upstream fails, without life; nobody is missing then."""

    async def body() -> None:
        clock = Clock()
        async with (
            Wire(ALPHA) as alpha,
            Wire({LIST: [result(page("x://1", ttl=1000)), drop()]}) as beta,
            house({"alpha": alpha.url, "beta": beta.url}, clock=clock) as it,
        ):
            await it.page()
            clock.now += 5
            stale = await it.page()
            assert (stale.uris, stale.result["ttlMs"]) == (["alpha+a://1", "beta+x://1"], 0)
            assert INCOMPLETE not in stale.result["_meta"]
            assert stale.result["cacheScope"] == "public"
            clock.now += 400  # past the stale window
            assert (await it.page()).result["_meta"][INCOMPLETE] == [
                {"upstream": "beta", "reason": "unreachable"}
            ]

    run(body())


def test_H19_a_slow_upstream_comes_with_the_next_page() -> None:
    """What misses the soft deadline is asked for once more by the walk, and its items are not lost."""

    async def body() -> None:
        go = asyncio.Event()
        async with (
            Wire(ALPHA) as alpha,
            Wire({LIST: result(page("x://1"), after=go)}) as beta,
            house({"alpha": alpha.url, "beta": beta.url}, lists={"soft_deadline": 0.1}) as it,
        ):
            first = await it.page()
            assert (first.uris, first.result["ttlMs"]) == (["alpha+a://1"], 0)
            assert INCOMPLETE not in first.result["_meta"]
            go.set()
            second = await it.page(first.result["nextCursor"])
            assert second.uris == ["beta+x://1"]
            assert "nextCursor" not in second.result
            assert len(beta.calls(LIST)) == 1

    run(body())


def test_H19_a_slow_upstream_that_stays_slow_is_named() -> None:
    """The second time it is waited for until its time-out, and then missing."""

    async def body() -> None:
        async with (
            Wire(ALPHA) as alpha,
            Wire({LIST: never()}) as beta,
            house(
                {"alpha": alpha.url, "beta": {"url": beta.url, "timeout": 0.4}}, lists={"soft_deadline": 0.1}
            ) as it,
        ):
            first = await it.page()
            second = await it.page(first.result["nextCursor"])
            assert (second.uris, second.result["ttlMs"]) == ([], 0)
            assert second.result["_meta"][INCOMPLETE] == [{"upstream": "beta", "reason": "timeout"}]
            assert "nextCursor" not in second.result

    run(body())


def test_H19_a_real_server_goes_and_comes_back() -> None:
    """With servers of the SDK: one is stopped while a client lists, and its items are back with it."""

    async def body() -> None:
        here, gone = (
            servers.shelf_of(2, prefix="a://"),
            servers.shelf_of(2, prefix="b://", list_hint=servers.NEVER),
        )
        with servers.running(here) as alpha, servers.running(gone, servers.fastmcp) as beta:
            async with house({"alpha": alpha.url, "beta": beta.url}) as it:
                beta.stop()
                partial = await it.page()
                assert partial.uris == ["alpha+a://0", "alpha+a://1"]
                assert partial.result["_meta"][INCOMPLETE] == [{"upstream": "beta", "reason": "unreachable"}]
                beta.start()
                assert (await it.page()).uris[2:] == ["beta+b://0", "beta+b://1"]

    run(body())


@pytest.mark.parametrize(
    "answer",
    [
        pytest.param(reply(b"no", status=404, content_type="text/plain"), id="404"),
        pytest.param(error(-32601, "Method not found", status=200), id="no-discover"),
        pytest.param(error(-32000, "No valid session"), id="no-session"),
    ],
)
def test_H19_a_server_taken_for_a_legacy_one_is_probed_again(answer: Answer) -> None:
    """A gateway may say 404 before its server runs: some seconds later the server is asked what it is."""

    async def body() -> None:
        clock = Clock()
        async with fronted({DISCOVER: [answer, result(discovered())], READ: result(ONE)}, clock=clock) as (
            it,
            wire,
        ):
            failed(await it.read(URI), "refused")
            assert len(wire.calls(DISCOVER)) == 1
            clock.now += 5
            assert (await it.read(URI)).uris == [URI]
            assert len(wire.calls(DISCOVER)) == 2

    run(body())
