"""For whom answers are kept: case H24, over the whole product.

Each row is one input.  It is judged by what reached the upstream, and by what each client got.
"""

import asyncio
import json
from collections.abc import Mapping
from typing import Any

import pytest
from mcp_types import ReadResourceResult, TextResourceContents
from multidict import CIMultiDict

from tests.instruments import servers
from tests.instruments.fronted import (
    DISCOVER,
    FORWARD,
    LIST,
    ONE,
    PARAMS,
    READ,
    SHELF,
    TEMPLATES,
    URI,
    Clock,
    after,
    bearer,
    choosing,
    fronted,
    run,
    shown,
    text,
    waiting,
)
from tests.instruments.house import Reply, body_of, headers_of, house
from tests.instruments.servers import Shelf
from tests.instruments.wire import (
    Answer,
    Answers,
    Received,
    Wire,
    contents,
    discovered,
    error,
    page,
    reply,
    result,
)

# H24: private answers.

NOBODY = "nobody"


def owning(header: str, scope: str = "private") -> Answer:
    """An upstream whose answers bear the value of a header field."""

    def choose(request: Received) -> Answer:
        if request.method == DISCOVER:
            return result(discovered())
        owner = request.header(header)
        name = NOBODY if owner is None else f"<{owner}>"
        members = json.dumps(SHELF[request.method]).replace("public", scope).replace("x://1", f"x://{name}")
        if request.method == READ:
            members = json.dumps(contents("x://1", name, scope=scope))
        if request.method == TEMPLATES:
            members = members.replace('"t"', json.dumps(name))
        return result(members.encode())

    return choosing(choose)


def owner(reply: Reply) -> str:
    """Whose answer it is."""
    (one,) = shown(reply)
    return str(one.get("text") or one["name"]).removeprefix("x://")


def outcome(reply: Reply) -> str:
    """`hit`, `stored` (and fetched) or `collapsed`, in short."""
    for word in ("hit", "stored", "collapsed"):
        if word in reply.cache_status:
            return word
    return reply.cache_status


VISITORS: list[tuple[str | None, str]] = [
    ("A", "stored"),
    ("B", "stored"),
    (None, "stored"),
    ("A", "hit"),
    ("A2", "stored"),
    ("B", "hit"),
    ("a", "stored"),
    ("", "stored"),
    (None, "hit"),
    ("A", "hit"),
]
"""Who comes, one after the other, and whether what he gets was kept for him."""


@pytest.mark.parametrize("method", SHELF)
@pytest.mark.parametrize(
    "header", ["Authorization", "Cookie", "X-Api-Key", "Proxy-Authorization", "X-Tenant"]
)
def test_H24_a_private_answer_is_for_one(header: str, method: str) -> None:
    """Of ten visitors each gets his own, from upstream the first time; no token and a new one are others."""
    settings = {"forward": [header]} | ({"credential_headers": [header]} if header == "X-Tenant" else {})

    async def body() -> None:
        async with fronted(owning(header), settings) as (it, wire):
            for value, came in VISITORS:
                told = await it.post(method, PARAMS[method], headers={} if value is None else {header: value})
                assert owner(told) == (NOBODY if value is None else f"<{value}>")
                assert outcome(told) == came
                assert told.result["cacheScope"] == "private"
            assert len(wire.calls(method)) == sum(came == "stored" for _, came in VISITORS)

    run(body())


@pytest.mark.parametrize("method", SHELF)
def test_H24_without_forward_all_share(method: str) -> None:
    """No token goes upstream, so there is one authorization context, ours: one private answer is for all."""

    async def body() -> None:
        async with fronted(owning("Authorization")) as (it, wire):
            for n, (value, _) in enumerate(VISITORS):
                told = await it.post(method, PARAMS[method], headers={} if value is None else bearer(value))
                assert (owner(told), outcome(told)) == (NOBODY, "hit" if n else "stored")
                assert told.result["cacheScope"] == "private"
            assert len(wire.calls(method)) == 1

    run(body())


@pytest.mark.parametrize("method", SHELF)
def test_H24_a_public_answer_is_for_all(method: str) -> None:
    """Also where tokens go along: the upstream said that it does not depend on them."""

    async def body() -> None:
        async with fronted(owning("Authorization", "public"), FORWARD) as (it, wire):
            for n, (value, _) in enumerate(VISITORS):
                told = await it.post(method, PARAMS[method], headers={} if value is None else bearer(value))
                assert (owner(told), outcome(told)) == ("<Bearer A>", "hit" if n else "stored")
            assert len(wire.calls(method)) == 1

    run(body())


@pytest.mark.parametrize("scope", ["public", "private"])
def test_H24_any_other_forwarded_header_splits_all_answers(scope: str) -> None:
    """What is no credential may change public answers too; beside it, tokens split the private ones."""
    settings = {"forward": ["accept-language", "authorization"]}
    visits = [("de", "A"), ("fr", "A"), (None, "A"), ("de", "B"), ("de", "A"), ("fr", "B"), ("DE", "A")]
    kept = {"public": [0, 0, 0, 1, 1, 1, 0], "private": [0, 0, 0, 0, 1, 0, 0]}[scope]

    async def body() -> None:
        async with fronted(owning("Accept-Language", scope), settings) as (it, wire):
            for (language, token), hit in zip(visits, kept, strict=True):
                spoken = {} if language is None else {"Accept-Language": language}
                told = await it.read(URI, headers=spoken | bearer(token))
                assert owner(told) == (NOBODY if language is None else f"<{language}>")
                assert outcome(told) == ("hit" if hit else "stored")
            assert len(wire.calls(READ)) == kept.count(0)

    run(body())


def test_H24_two_values_are_not_one_in_two_fields() -> None:
    """Values of several credential fields cannot be shifted from one to the other."""
    settings = {"forward": ["authorization", "cookie"]}

    async def body() -> None:
        async with fronted({READ: result(contents("x://1", scope="private"))}, settings) as (it, wire):
            pairs = [("a", "b"), ("b", "a"), ("ab", ""), ("", "ab"), ("a\tb", ""), ("a; b", "")]
            for token, cookie in pairs:
                told = await it.read(URI, headers={"Authorization": token, "Cookie": cookie})
                assert outcome(told) == "stored"
            assert len(wire.calls(READ)) == len(pairs)

    run(body())


@pytest.mark.parametrize("name", ["authorization", "cookie", "x-api-key", "x-tenant"])
def test_H24_a_credential_that_stands_twice_is_refused(name: str) -> None:
    """Nobody can say which of two tokens he is; the upstream is not asked."""
    settings = {"forward": [name], "credential_headers": ["x-tenant"] if name == "x-tenant" else []}

    async def body() -> None:
        async with fronted({READ: result(ONE)}, settings) as (it, wire):
            headers = CIMultiDict(headers_of(READ, PARAMS[READ]))
            headers.add(name, "a")
            headers.add(name, "b")
            told = await it.send(json.dumps(body_of(READ, PARAMS[READ])).encode(), headers)
            assert (told.status, told.error["code"]) == (400, -32600)
            assert wire.calls(READ) == []

    run(body())


def test_H24_tokens_are_told_nowhere(capfd: pytest.CaptureFixture[str]) -> None:
    """Neither a key of the store, nor a metric, nor the status, nor a line of the log holds one."""
    secret = "s3same-0pen"

    async def body() -> str:
        server = {"log": {"format": "json", "level": "debug"}}
        async with fronted({READ: result(contents("x://1", scope="private"))}, FORWARD, server=server) as (
            it,
            _,
        ):
            for _ in range(2):
                await it.read(URI, headers=bearer(secret))
            await it.post("resources/nothing", {}, headers=bearer(secret))
            shelf = it.app._federation._memory._shelf
            assert [len(key) for key in shelf] == [32]
            return (await it.get("/metrics")).body.decode() + (await it.get("/status")).body.decode()

    pages = run(body())
    out, err = capfd.readouterr()
    assert "resources/read" in err
    assert secret not in pages + out + err


def test_H24_a_follower_when_the_answer_turns_out_private() -> None:
    """Others wait while a formerly public URI is fetched; it is private now, so each asks for himself."""

    async def body() -> None:
        go, clock = asyncio.Event(), Clock()
        private = after(go, owning("Authorization"))
        async with fronted({READ: [result(contents("x://1", ttl=1000)), private]}, FORWARD, clock=clock) as (
            it,
            wire,
        ):
            await it.read(URI, headers=bearer("A"))
            clock.now += 2
            leader = asyncio.create_task(it.read(URI, headers=bearer("A")))
            await wire.arrived(READ, 2)
            others = [asyncio.create_task(it.read(URI, headers=bearer(token))) for token in "BBCA"]
            await waiting(it, 5)
            assert len(wire.calls(READ)) == 2
            go.set()
            told = [await one for one in (leader, *others)]
            assert [owner(one) for one in told] == [f"<Bearer {token}>" for token in "ABBCA"]
            assert len(wire.calls(READ)) == 4
            assert [owner(await it.read(URI, headers=bearer(token))) for token in "ABC"] == [
                f"<Bearer {token}>" for token in "ABC"
            ]
            assert len(wire.calls(READ)) == 4

    run(body())


def test_H24_followers_when_the_answer_is_public_still() -> None:
    """Then all take it, whoever they are."""

    async def body() -> None:
        go, clock = asyncio.Event(), Clock()
        again = after(go, owning("Authorization", "public"))
        async with fronted({READ: [result(contents("x://1", ttl=1000)), again]}, FORWARD, clock=clock) as (
            it,
            wire,
        ):
            await it.read(URI, headers=bearer("A"))
            clock.now += 2
            asked = [asyncio.create_task(it.read(URI, headers=bearer("A")))]
            await wire.arrived(READ, 2)
            asked += [asyncio.create_task(it.read(URI, headers=bearer(token))) for token in "BCD"]
            await waiting(it, 4)
            go.set()
            assert [owner(await one) for one in asked] == ["<Bearer A>"] * 4
            assert len(wire.calls(READ)) == 2

    run(body())


@pytest.mark.parametrize(
    "refusal",
    [
        pytest.param(error(7001), id="an-error"),
        pytest.param(error(-32602), id="not-found"),
        pytest.param(error(-32050), id="a-reserved-error"),
        pytest.param(reply(b"", status=401), id="401"),
        pytest.param(reply(b"", status=403), id="403"),
        pytest.param(reply(b"", status=404), id="404"),
        pytest.param(reply(b"", status=429), id="429"),
        pytest.param(reply(b"", status=302, headers={"Location": "/sign-in"}), id="sign-in-page"),
        pytest.param(reply(b"", status=307, headers={"Location": "https://sso.test/"}), id="sign-in-server"),
        pytest.param(result({"resultType": "input_required", "requestState": "s"}), id="input"),
    ],
)
def test_H24_a_follower_does_not_take_the_leaders_refusal(refusal: Answer) -> None:
    """An error that may depend on who asks was said to the leader alone."""

    def choose(request: Received) -> Answer:
        return refusal if request.header("authorization") == "Bearer A" else owning("Authorization")

    async def body() -> None:
        go, clock = asyncio.Event(), Clock()
        answers: dict[str, Answers] = {
            READ: [result(contents("x://1", ttl=1000)), after(go, choosing(choose))],
            LIST: result(page(scope="private")),
        }
        async with fronted(answers, FORWARD, clock=clock, cache={"stale_if_error": 0}) as (
            it,
            wire,
        ):
            await it.read(URI, headers=bearer("A"))
            clock.now += 2
            leader = asyncio.create_task(it.read(URI, headers=bearer("A")))
            await wire.arrived(READ, 2)
            follower = asyncio.create_task(it.read(URI, headers=bearer("B")))
            await waiting(it, 2)
            go.set()
            assert "contents" not in (await leader).message.get("result", {})
            assert owner(await follower) == "<Bearer B>"

    run(body())


def test_H24_merged_lists_are_put_together_for_each_caller() -> None:
    """With a private part beside public ones a list is private, and never somebody else's, kept or not."""

    async def body() -> None:
        async with (
            Wire({LIST: result(page("a://1"))}) as alpha,
            Wire(owning("Authorization")) as beta,
            house({"alpha": alpha.url, "beta": {"url": beta.url, **FORWARD}}) as it,
        ):
            for token in "ABABBA":
                told = await it.page(headers=bearer(token))
                assert told.uris == ["alpha+a://1", f"beta+x://<Bearer {token}>"]
                assert told.result["cacheScope"] == "private"
            assert (len(alpha.calls(LIST)), len(beta.calls(LIST))) == (1, 2)

    run(body())


def test_H24_empty_lists_are_not_all_one() -> None:
    """Two callers' lists without an item differ in what stands beside the items, kept or not."""

    def choose(request: Received) -> Answer:
        owner = request.header("authorization")
        return result({**page(scope="private"), "owner": owner, "_meta": {"com.example/owner": owner}})

    async def body() -> None:
        async with fronted({LIST: choosing(choose)}, FORWARD) as (it, wire):
            for token in "AABBAB":
                told = (await it.page(headers=bearer(token))).result
                assert told["resources"] == []
                assert {told["owner"], told["_meta"]["com.example/owner"]} == {f"Bearer {token}"}
            assert len(wire.calls(LIST)) == 2

    run(body())


def test_H24_a_listing_that_turns_private_begins_anew() -> None:
    """A walk that began public does not go on with a private page; the next one is private from its start."""
    pages = choosing(
        lambda request: result(
            page("x://2", scope="private") if "cursor" in request.params else page("x://1", cursor="2")
        )
    )

    async def body() -> None:
        async with fronted({LIST: pages}, FORWARD) as (it, wire):
            first = await it.page(headers=bearer("A"))
            assert first.result["cacheScope"] == "public"
            refused = await it.page(first.result["nextCursor"], headers=bearer("A"))
            assert (refused.status, refused.error["code"]) == (400, -32602)
            assert await it.samples("mcp_federator_listing_restarts_total", reason="scope") == 1
            again = await it.walk(headers=bearer("A"))
            assert [one.result["cacheScope"] for one in again] == ["private", "private"]
            assert [uri for one in again for uri in one.uris] == [URI, "alpha+x://2"]
            assert len(wire.calls(LIST)) == 2
            await it.walk(headers=bearer("B"))
            assert [call.params.get("cursor") for call in wire.calls(LIST)] == [None, "2", "2"]

    run(body())


def test_H24_cookies_of_the_upstream_are_nobodys() -> None:
    """What it sets for one caller neither comes back with another's request nor goes to a client."""

    async def body() -> None:
        answer = result(contents("x://1", scope="private"), headers={"Set-Cookie": "session=A; Path=/"})
        async with fronted({READ: answer}, FORWARD) as (it, wire):
            for token in "ABA":
                assert "Set-Cookie" not in (await it.read(URI, headers=bearer(token))).headers
            assert [call.header("cookie") for call in wire.calls(READ)] == [None, None]

    run(body())


def test_H24_a_real_server_with_a_user_of_its_own() -> None:
    """The low-level server of the SDK, which answers each user with his token."""

    def own(_: Any, headers: Mapping[str, str]) -> ReadResourceResult:
        name = headers.get("authorization", NOBODY)
        return ReadResourceResult(
            contents=[TextResourceContents(uri="x://1", text=name)], ttl_ms=60_000, cache_scope="private"
        )

    async def body() -> None:
        with servers.running(Shelf({"x://1": own})) as server:
            async with house({"alpha": {"url": server.url, **FORWARD}}) as it:
                for token in "ABA":
                    assert text(await it.read(URI, headers=bearer(token))) == f"Bearer {token}"
                assert text(await it.read(URI)) == NOBODY
                assert server.calls.count(READ) == 3

    run(body())
