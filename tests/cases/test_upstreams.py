"""Upstreams that are slow, down or elsewhere: cases H19 and H20, over the whole product.

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
    choosing,
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
    Received,
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


# H20: redirects.

SECRETS = {"headers": {"X-Key": "sesame"}, "forward": ["authorization"]}
TOKEN = {"Authorization": "Bearer t"}


def moving(status: int, to: str | None, *, only: str = "") -> Answer:
    """An upstream that is elsewhere: at `/mcp` is a redirect, for every call or for one method."""

    def choose(request: Received) -> Answer:
        if request.target == "/mcp" and only in {"", request.method}:
            return reply(
                b"moved",
                status=status,
                headers={} if to is None else {"Location": to},
                content_type="text/plain",
            )
        return result(discovered() if request.method == DISCOVER else SHELF[request.method])

    return choosing(choose)


@pytest.mark.parametrize("status", [307, 308])
@pytest.mark.parametrize(
    ("to", "target"),
    [
        pytest.param("/mcp/", "/mcp/", id="path"),
        pytest.param("mcp/", "/mcp/", id="relative"),
        pytest.param("./mcp/v2?a=b&c=%26", "/mcp/v2?a=b&c=%26", id="relative-with-query"),
        pytest.param("?again=1", "/mcp?again=1", id="query-alone"),
        pytest.param("http://127.0.0.1:$PORT/mcp/", "/mcp/", id="absolute"),
        pytest.param("HTTP://127.0.0.1:$PORT/mcp/", "/mcp/", id="scheme-in-capitals"),
        pytest.param("//127.0.0.1:$PORT/mcp/", "/mcp/", id="without-scheme"),
        pytest.param("/mcp/#part", "/mcp/", id="fragment"),
        pytest.param("/a%2Fb/%C3%A9", "/a%2Fb/%C3%A9", id="encoded"),
        pytest.param("/a b", "/a%20b", id="with-a-space"),
    ],
)
def test_H20_a_redirect_at_home_is_followed(status: int, to: str, target: str) -> None:
    """The same request goes to the other path, body and header fields and all; the client sees nothing."""

    async def body() -> None:
        async with Wire({}) as wire:
            move = moving(status, to.replace("$PORT", str(wire.port)))
            wire.answers = {"": move}
            async with house({"alpha": {"url": wire.url, **SECRETS}}) as it:
                told = await it.read(URI, headers=TOKEN)
                assert (told.status, told.uris, "Location" in told.headers) == (200, [URI], False)
                first, second = wire.calls(READ)
                assert (first.target, second.target) == ("/mcp", target)
                assert (first.verb, first.body, first.headers) == (second.verb, second.body, second.headers)
                assert (second.header("x-key"), second.header("authorization")) == ("sesame", "Bearer t")
                assert second.header("mcp-name") == "x://1"

    run(body())


@pytest.mark.parametrize("only", [READ, ""], ids=["read", "probe"])
@pytest.mark.parametrize(
    ("status", "to"),
    [
        pytest.param(308, "https://evil.test/", id="other-host"),
        pytest.param(307, "http://127.0.0.1:$EVIL/mcp", id="other-port"),
        pytest.param(308, "http://127.0.0.1:$EVIL/mcp", id="other-port-308"),
        pytest.param(307, "http://localhost:$PORT/mcp/", id="other-name"),
        pytest.param(307, "https://127.0.0.1:$PORT/mcp/", id="other-scheme"),
        pytest.param(307, "//127.0.0.1:$EVIL/mcp", id="other-port-without-scheme"),
        pytest.param(307, "http://127.0.0.1:$PORT@127.0.0.1:$EVIL/mcp", id="home-as-user-info"),
        pytest.param(307, "http://u:p@127.0.0.1:$PORT/mcp/", id="user-info"),
        pytest.param(307, "http://u@127.0.0.1:$PORT/mcp/", id="user"),
        pytest.param(307, "http://127.0.0.1:$PORT\\@127.0.0.1:$EVIL/mcp", id="backslash"),
        pytest.param(307, "file:///etc/passwd", id="file"),
        pytest.param(307, "ftp://127.0.0.1:$PORT/mcp/", id="ftp"),
        pytest.param(307, "data:application/json,{}", id="data"),
        pytest.param(307, "http://127.0.0.1:99999/", id="no-port"),
        pytest.param(307, "http://[/", id="no-url"),
        pytest.param(307, None, id="no-location"),
        pytest.param(301, "/mcp/", id="301"),
        pytest.param(302, "/mcp/", id="302"),
        pytest.param(303, "/mcp/", id="303"),
        pytest.param(307, "/mcp", id="itself"),
        pytest.param(307, "", id="itself-unsaid"),
        pytest.param(308, "http://127.0.0.1:$PORT/mcp", id="itself-in-full"),
    ],
)
def test_H20_any_other_redirect_is_an_error(status: int, to: str | None, only: str) -> None:
    """Nothing goes to another origin, no POST becomes a GET, a loop ends; nothing is kept of it."""

    async def body() -> None:
        async with Wire({}) as wire, Wire({}) as evil:
            place = (
                None if to is None else to.replace("$PORT", str(wire.port)).replace("$EVIL", str(evil.port))
            )
            wire.answers = {"": moving(status, place, only=only)}
            async with house({"alpha": {"url": wire.url, **SECRETS}}) as it:
                failed(await it.read(URI, headers=TOKEN), "refused")
                assert evil.connections == 0
                calls = wire.calls(only or DISCOVER)
                assert {(call.verb, call.target) for call in calls} == {("POST", "/mcp")}
                assert len(calls) <= (4 if only else 8)
                wire.answers = Wire({READ: result(ONE)}).answers
                assert (await it.read(URI, headers=TOKEN)).cache_status == "mcp-federator; fwd=miss; stored"

    run(body())


@pytest.mark.parametrize(("hops", "followed"), [(3, True), (4, False)])
def test_H20_so_many_redirects_and_no_more(hops: int, followed: bool) -> None:
    """Three hops are followed, a fourth is not."""

    def choose(request: Received) -> Answer:
        place = int(request.target.removeprefix("/mcp") or 0)
        if request.method == READ and place < hops:
            return reply(b"", status=307, headers={"Location": f"/mcp{place + 1}"})
        return result(discovered() if request.method == DISCOVER else ONE)

    async def body() -> None:
        async with fronted(choosing(choose)) as (it, wire):
            told = await it.read(URI)
            assert ("result" in told.message) is followed
            assert [call.target for call in wire.calls(READ)] == ["/mcp", "/mcp1", "/mcp2", "/mcp3"]

    run(body())


def test_H20_a_redirect_whose_body_never_ends() -> None:
    """What a redirect says is not waited for."""
    endless = b"HTTP/1.1 307 Moved\r\nLocation: /mcp/\r\nContent-Length: 9999\r\n\r\nx"

    def choose(request: Received) -> Answer:
        if request.target == "/mcp" and request.method == READ:
            return raw(endless, End.HOLD)
        return result(discovered() if request.method == DISCOVER else ONE)

    async def body() -> None:
        async with fronted(choosing(choose)) as (it, wire):
            assert (await it.read(URI)).uris == [URI]
            await wire.calls(READ)[0].gone.wait()

    run(body())
