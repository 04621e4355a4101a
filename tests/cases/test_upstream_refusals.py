"""What upstreams refuse, to whom and for how long: case H21, over the whole product.

Each row is one input.  It is judged by what reached the upstream and by what the client got for it.
"""

import asyncio
import json
from typing import Any

import pytest

from tests.instruments.fronted import (
    DISCOVER,
    FORWARD,
    INCOMPLETE,
    LIST,
    ONE,
    PARAMS,
    READ,
    SHELF,
    TEMPLATES,
    URI,
    Clock,
    after,
    choosing,
    failed,
    fronted,
    run,
    shown,
    waiting,
)
from tests.instruments.house import house
from tests.instruments.wire import (
    Answer,
    Received,
    Wire,
    contents,
    discovered,
    page,
    reply,
    result,
)

# H21: the upstream says 401 or 403.

CHALLENGE = {
    "WWW-Authenticate": (
        'Bearer realm="a", error="insufficient_scope", scope="files:read", resource_metadata="https://a.test/m"'
    )
}
U1, U2 = {"Authorization": "Bearer u1"}, {"Authorization": "Bearer u2"}


def barring(status: int, *, scope: str = "private", refusal: bytes = b"") -> Answer:
    """An upstream that answers one user, with his name, and bars all others."""

    def choose(request: Received) -> Answer:
        user = request.header("authorization")
        if request.method == DISCOVER:
            return result(discovered())
        if user != U1["Authorization"]:
            return reply(refusal, status=status, headers=CHALLENGE)
        members: dict[str, dict[str, Any]] = {
            READ: contents("x://1", "for u1", scope=scope),
            LIST: page("x://for-u1", scope=scope),
            TEMPLATES: SHELF[TEMPLATES] | {"cacheScope": scope},
        }
        return result(members[request.method])

    return choosing(choose)


@pytest.mark.parametrize("status", [401, 403])
@pytest.mark.parametrize("method", SHELF)
def test_H21_the_one_who_is_barred_gets_an_error(method: str, status: int) -> None:
    """He gets it each time anew; what the other gets is kept for the other alone."""

    async def body() -> None:
        async with fronted(barring(status), FORWARD) as (it, wire):
            barred, allowed, again, kept = [
                await it.post(method, PARAMS[method], headers=user) for user in (U2, U1, U2, U1)
            ]
            for one in (barred, again):
                failed(one, "refused")
                assert "WWW-Authenticate" not in one.headers
                assert not any(word in one.body for word in (b"scope", b"realm", b"u1", b"a.test"))
            assert len(shown(allowed)) == 1
            assert allowed.body == kept.body
            assert kept.cache_status.startswith("mcp-federator; hit")
            assert [call.header("authorization") for call in wire.calls(method)] == [
                "Bearer u2",
                "Bearer u1",
                "Bearer u2",
            ]
            assert await it.samples("mcp_federator_cache_requests_total", outcome="miss") == 3
            assert await it.samples("mcp_federator_cache_requests_total", outcome="hit") == 1

    run(body())


@pytest.mark.parametrize("status", [401, 403])
def test_H21_the_list_of_the_others_comes(status: int) -> None:
    """Where one of two upstreams bars the caller, the list names it, is private and is not to be kept."""

    async def body() -> None:
        async with (
            Wire(barring(status)) as alpha,
            Wire({LIST: result(page("b://1"))}) as beta,
            house({"alpha": {"url": alpha.url, **FORWARD}, "beta": beta.url}) as it,
        ):
            partial, whole = await it.page(headers=U2), await it.page(headers=U1)
            assert partial.uris == ["beta+b://1"]
            assert partial.result["ttlMs"] == 0
            assert partial.result["_meta"][INCOMPLETE] == [{"upstream": "alpha", "reason": "refused"}]
            assert (whole.uris, whole.result["cacheScope"]) == (["alpha+x://for-u1", "beta+b://1"], "private")
            assert beta.calls(LIST)[0].header("authorization") is None

    run(body())


@pytest.mark.parametrize("status", [401, 403])
def test_H21_a_body_with_401_is_no_answer(status: int) -> None:
    """With these statuses not even a well-formed result in the body counts."""
    refusal = b'{"jsonrpc":"2.0","id":$ID,"result":' + json.dumps(contents("x://1", "secret")).encode() + b"}"

    async def body() -> None:
        async with fronted(barring(status, refusal=refusal), FORWARD) as (it, _):
            told = await it.read(URI, headers=U2)
            failed(told, "refused")
            assert b"secret" not in told.body

    run(body())


def test_H21_an_upstream_that_tells_nobody_what_it_is() -> None:
    """Where even the probe needs a token, the first who has one opens it; the others are barred as before."""

    def choose(request: Received) -> Answer:
        if request.header("authorization") == U1["Authorization"]:
            return result(discovered() if request.method == DISCOVER else contents("x://1", scope="private"))
        return reply(b"", status=401, headers=CHALLENGE)

    async def body() -> None:
        async with fronted(choosing(choose), FORWARD) as (it, wire):
            failed(await it.read(URI, headers=U2), "refused")
            assert wire.calls(READ) == []
            assert (await it.read(URI, headers=U1)).uris == [URI]
            failed(await it.read(URI, headers=U2), "refused")
            failed(await it.read(URI), "refused")
            assert [call.header("authorization") for call in wire.calls(DISCOVER)] == [
                None,
                "Bearer u2",
                "Bearer u1",
            ]
            assert len(wire.calls(READ)) == 3

    run(body())


def test_H21_many_who_are_barred_do_not_shut_the_others_out() -> None:
    """Twenty refusals in a row are no reason to leave the upstream alone."""

    async def body() -> None:
        async with fronted(barring(401), FORWARD) as (it, wire):
            for _ in range(20):
                failed(await it.read(URI, headers=U2), "refused")
            assert (await it.read(URI, headers=U1)).result["contents"][0]["text"] == "for u1"
            assert len(wire.calls(READ)) == 21
            (status,) = (await it.status())["upstreams"]
            assert (status["up"], status["breaker"]) == (True, "closed")

    run(body())


@pytest.mark.parametrize("status", [401, 403])
def test_H21_a_withdrawn_permission_drops_the_copy(status: int) -> None:
    """Who was allowed and is barred now gets no stale copy, not even when the upstream fails after that."""
    answers = [
        result(contents("x://1", scope="private", ttl=1000)),
        reply(b"", status=status),
        reply(b"", status=500),
    ]

    async def body() -> None:
        clock = Clock()
        async with fronted({READ: answers}, FORWARD, clock=clock) as (it, _):
            assert (await it.read(URI, headers=U1)).uris == [URI]
            clock.now += 2
            failed(await it.read(URI, headers=U1), "refused")
            failed(await it.read(URI, headers=U1), "bad_reply")

    run(body())


def test_H21_parallel_callers_fare_each_his_own_way() -> None:
    """Of a URI that was public before: who joins the request of one who is barred asks again for himself."""

    async def body() -> None:
        go, clock = asyncio.Event(), Clock()
        later = after(go, barring(401))
        async with fronted({READ: [result(contents("x://1", ttl=1000)), later]}, FORWARD, clock=clock) as (
            it,
            wire,
        ):
            await it.read(URI, headers=U1)
            clock.now += 2
            barred = asyncio.create_task(it.read(URI, headers=U2))
            await wire.arrived(READ, 2)
            allowed = asyncio.create_task(it.read(URI, headers=U1))
            await waiting(it, 2)
            assert len(wire.calls(READ)) == 2
            go.set()
            failed(await barred, "refused")
            assert (await allowed).result["contents"][0]["text"] == "for u1"
            assert [call.header("authorization") for call in wire.calls(READ)[1:]] == [
                "Bearer u2",
                "Bearer u1",
            ]

    run(body())


CAPABLE: dict[str, Any] = {"sampling": {}}
PERSONAL = {
    "Authorization": "Bearer mine",
    "Cookie": "s=1",
    "X-Api-Key": "k",
    "Proxy-Authorization": "Basic eA==",
}


@pytest.mark.parametrize(
    ("settings", "sent"),
    [
        pytest.param({}, {}, id="nothing-by-default"),
        pytest.param(
            {"headers": {"Authorization": "Bearer ours"}}, {"authorization": "Bearer ours"}, id="our-own"
        ),
        pytest.param({"forward": ["x-api-key"]}, {"x-api-key": "k"}, id="what-is-configured"),
        pytest.param(
            {"forward": ["Cookie", "AUTHORIZATION"]},
            {"cookie": "s=1", "authorization": "Bearer mine"},
            id="any-case",
        ),
    ],
)
def test_H21_the_clients_own_credentials_stay_here(settings: dict[str, Any], sent: dict[str, str]) -> None:
    """Nothing of them goes upstream that the configuration does not name; nor other fields, nor `_meta`."""

    async def body() -> None:
        async with fronted({READ: result(ONE)}, settings) as (it, wire):
            own = {
                **PERSONAL,
                "Origin": "http://localhost",
                "X-Forwarded-For": "10.1.2.3",
                "User-Agent": "me",
            }
            key = "io.modelcontextprotocol/"
            meta = {"progressToken": 7, "com.example/x": 1, key + "logLevel": "debug", key + "clientInfo": {}}
            await it.read(URI, headers=own, meta=meta, capabilities=CAPABLE)
            (call,) = wire.calls(READ)
            told = call.params["_meta"]
            assert told.keys() == {key + "protocolVersion", key + "clientInfo", key + "clientCapabilities"}
            assert (told[key + "clientInfo"]["name"], told[key + "clientCapabilities"]) == (
                "mcp-federator",
                {},
            )
            names = [name.lower() for name, _ in call.headers]
            assert len(names) == len(set(names))
            came = dict(zip(names, (value for _, value in call.headers), strict=True))
            assert {name: came.get(name) for name in map(str.lower, PERSONAL) if name in came} == sent
            assert came.keys() - sent.keys() == {
                *("host", "user-agent", "accept", "accept-encoding", "content-type", "content-length"),
                *("mcp-protocol-version", "mcp-method", "mcp-name"),
            }
            assert came["user-agent"] == "mcp-federator"

    run(body())


@pytest.mark.parametrize(
    ("value", "seconds"),
    [
        pytest.param("7", 7, id="seconds"),
        pytest.param(" 7 ", 7, id="seconds-and-blanks"),
        pytest.param("Mon, 30 Nov 2026 12:00:07 GMT", 7, id="date"),
        pytest.param("Monday, 30-Nov-26 12:00:07 GMT", 7, id="date-of-rfc-850"),
        pytest.param("Mon Nov 30 12:00:07 2026", 7, id="date-of-asctime"),
        pytest.param("86400", 60, id="a-day"),
        pytest.param("Tue, 01 Dec 2026 12:00:00 GMT", 60, id="tomorrow"),
        pytest.param("99999999999999999999", 60, id="huge"),
        pytest.param(None, 1, id="missing"),
        pytest.param("soon", 1, id="a-word"),
        pytest.param("-5", 1, id="negative"),
        pytest.param("1.5", 1, id="fractional"),
        pytest.param("0", 0, id="zero"),
        pytest.param("Mon, 30 Nov 2026 11:00:00 GMT", 0, id="date-that-passed"),
    ],
)
def test_H21_who_is_told_to_wait_waits(value: str | None, seconds: int) -> None:
    """After 429 the upstream is not asked for this caller so long; another caller is not concerned."""
    told = {"Date": "Mon, 30 Nov 2026 12:00:00 GMT"} | ({} if value is None else {"Retry-After": value})
    answers = {
        "Bearer u1": reply(b"", status=429, headers=told),
        "Bearer u2": result(contents("x://1", ttl=0)),
    }

    async def body() -> None:
        clock = Clock()
        answer = choosing(lambda request: answers[request.header("authorization") or ""])
        async with fronted({READ: answer}, FORWARD, clock=clock) as (it, wire):
            failed(await it.read(URI, headers=U1), "refused")
            assert (await it.read(URI, headers=U2)).uris == [URI]
            if seconds:
                clock.now += seconds - 0.1
                failed(await it.read(URI, headers=U1), "refused")
                assert len(wire.calls(READ)) == 2
                assert (await it.read(URI, headers=U2)).uris == [URI]
                clock.now += 0.1
            answers["Bearer u1"] = result(contents("x://1", ttl=0))
            assert (await it.read(URI, headers=U1)).uris == [URI]

    run(body())
