"""Several federators over one Redis, each the whole product: what they share, and what they must not.

Judged by what reached the upstream, by what each client got, and by what stands in Redis.
"""

import asyncio
import json
from collections.abc import AsyncIterator, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Any

import aiohttp

from mcp_federator.model import Change, Event
from tests.instruments.fronted import FORWARD, LIST, NO_CACHE, READ, URI, bearer, run, text
from tests.instruments.house import House, body_of, headers_of, house
from tests.instruments.processes import command, python
from tests.instruments.redis_server import Server
from tests.instruments.wire import Answer, Received, Wire, contents, page, result

SECRET = "a secret of the house"
HIT = "mcp-federator; hit; ttl="


def numbered(**hint: Any) -> Answer:
    """Answers `1`, `2` and so on, whatever is read."""
    count = 0

    def answer(request: Received) -> Any:
        nonlocal count
        count += 1
        return result(contents(request.params["uri"], str(count), **hint))(request)

    return answer


def whose(request: Received) -> Any:
    """A private answer that says whose token came."""
    said = f"of {request.header('authorization')}"
    return result(contents(request.params["uri"], said, scope="private"))(request)


@asynccontextmanager
async def sharing(
    redis: Server, upstream: Mapping[str, Any], *, secret: Any = SECRET, cache: Any = None, **tier: Any
) -> AsyncIterator[House]:
    """A federator over `alpha`, once it hears the others."""
    # Time is not the question here.
    shared = {"redis": {"url": redis.url, "timeout": "5s", **tier}, **(cache or {})}
    async with house({"alpha": dict(upstream)}, server={"secret": secret}, cache=shared) as it:
        async with asyncio.timeout(10):
            while not (await it.status())["cache"]["redis"]["up"]:
                pass  # each look is a round trip, in which it goes on
        yield it


@asynccontextmanager
async def two(redis: Server, upstream: Mapping[str, Any], **how: Any) -> AsyncIterator[tuple[House, House]]:
    async with sharing(redis, upstream, **how) as one, sharing(redis, upstream, **how) as other:
        yield one, other


# Two processes.


@asynccontextmanager
async def processes(file: Path, count: int) -> AsyncIterator[list[str]]:
    """So many `serve` processes of one file; their endpoints."""
    async with AsyncExitStack() as stack:
        children = [
            stack.enter_context(python("-m", "mcp_federator", "serve", "-c", str(file))) for _ in range(count)
        ]
        yield [(await asyncio.to_thread(child.wait_for, r"MCP endpoint (\S+)"))[1] for child in children]


async def read(client: Any, url: str, uri: str = URI) -> str:
    params = {"uri": uri}
    body = json.dumps(body_of(READ, params)).encode()
    async with client.post(url, data=body, headers=headers_of(READ, params)) as response:
        return str((await response.json())["result"]["contents"][0]["text"])


def written(folder: Path, redis: Server, wire: Wire) -> Path:
    """A configuration on free ports."""
    file = folder / "federator.json"
    tree = {
        "server": {"port": 0, "admin_port": 0, "secret": SECRET},
        "cache": {"redis": {"url": redis.url}},
        "upstreams": {"alpha": {"url": wire.url}},
    }
    file.write_text(json.dumps(tree))
    return file


def test_two_processes_call_upstream_once(redis: Server, tmp_path: Path) -> None:
    """One request to each, one call in total; after `invalidate`, one more in total."""

    async def check() -> None:
        async with Wire({READ: numbered()}) as wire, aiohttp.ClientSession() as client:
            file = written(tmp_path, redis, wire)
            async with processes(file, 2) as (one, other):
                assert [await read(client, url) for url in (one, other)] == ["1", "1"]
                assert len(wire.calls(READ)) == 1
                for arguments in ((URI,), ()):
                    calls = len(wire.calls(READ))
                    told = await command("invalidate", "-c", str(file), "alpha", *arguments)
                    assert told == (0, "", "")
                    async with asyncio.timeout(10):
                        # What was told is heard a moment later.
                        while (said := await read(client, other)) == str(calls):
                            pass
                    assert said == str(calls + 1) == await read(client, one)
                    assert len(wire.calls(READ)) == calls + 1

    run(check())


def test_a_cold_crowd_on_all_federators_is_one_call(redis: Server) -> None:
    """Readers of one URI, half of them here and half there."""

    async def check() -> None:
        async with Wire({READ: numbered()}) as wire, two(redis, {"url": wire.url}) as both:
            for number in range(10):
                asked = [it.read(f"alpha+x://{number}") for it in both for _ in range(10)]
                assert len({text(reply) for reply in await asyncio.gather(*asked)}) == 1
            assert len(wire.calls(READ)) == 10

    run(check())


def test_a_list_is_shared_page_by_page(redis: Server) -> None:
    """With its cursors: a walk begun here goes on there, out of Redis."""
    pages: dict[str | None, Any] = {None: page("x://1", cursor="2"), "2": page("x://2")}

    def listed(request: Received) -> Any:
        return result(pages[request.params.get("cursor")])(request)

    async def check() -> None:
        async with Wire({LIST: listed}) as wire, two(redis, {"url": wire.url}) as (one, other):
            assert [reply.uris for reply in await one.walk()] == [["alpha+x://1"], ["alpha+x://2"]]
            first = await other.page()
            assert first.cache_status.startswith(HIT)
            second = await one.page(first.result["nextCursor"])
            assert second.uris == ["alpha+x://2"]
            third = await other.page(first.result["nextCursor"])
            assert third.cache_status.startswith(HIT)
            assert len(wire.calls(LIST)) == 2
            assert await other.samples("mcp_federator_cache_requests_total", outcome="hit", tier="redis") == 2

    run(check())


def test_a_private_page_seen_by_one_makes_the_list_private_for_all(redis: Server) -> None:
    """Scope is one for a listing, wherever its pages are asked for."""

    def listed(request: Received) -> Any:
        scope = "private" if "bob" in (request.header("authorization") or "") else "public"
        return result(page("x://1", scope=scope, ttl=0))(request)

    async def check() -> None:
        async with Wire({LIST: listed}) as wire, two(redis, {"url": wire.url, **FORWARD}) as (one, other):
            ann, bob = bearer("ann"), bearer("bob")
            assert (await other.page(headers=ann)).result["cacheScope"] == "public"
            assert (await one.page(headers=bob)).result["cacheScope"] == "private"
            async with asyncio.timeout(10):
                while (await other.page(headers=ann)).result["cacheScope"] == "public":
                    pass
            async with sharing(redis, {"url": wire.url, **FORWARD}) as later:
                async with asyncio.timeout(10):
                    while (await later.page(headers=ann)).result["cacheScope"] == "public":
                        pass

    run(check())


def test_a_change_heard_by_one_is_heard_by_all(redis: Server) -> None:
    """Its upstream told one federator; both fetch anew, and once."""

    async def check() -> None:
        async with Wire({READ: numbered()}) as wire, two(redis, {"url": wire.url}) as (one, other):
            assert [text(await it.read(URI)) for it in (one, other)] == ["1", "1"]
            stack = one.app._federation._stacks["alpha"]
            stack.cached.invalidate(Event("alpha", Change.RESOURCE, "x://1"))
            async with asyncio.timeout(10):
                while text(await other.read(URI)) == "1":
                    pass
            assert [text(await it.read(URI)) for it in (one, other)] == ["2", "2"]
            assert len(wire.calls(READ)) == 2
            heard = "mcp_federator_invalidations_total"
            assert await one.samples(heard, upstream="alpha", reason="updated") == 1
            assert await other.samples(heard, upstream="alpha", reason="replica") == 1

    run(check())


def test_a_change_of_a_list_ends_what_was_learnt_of_it_everywhere(redis: Server) -> None:
    """What a normalised URI stands for is learnt from the list: at each federator it is learnt anew."""

    async def check() -> None:
        async with Wire({LIST: result(page("x://1"))}) as wire, two(redis, {"url": wire.url}) as (one, other):
            stacks = [it.app._federation._stacks["alpha"] for it in (one, other)]
            # It learns from what it hears of the upstream itself.
            await other.page(headers=NO_CACHE)
            resolver = stacks[1].client._resolver
            assert resolver._shelves
            stacks[0].cached.invalidate(Event("alpha", Change.LIST))
            async with asyncio.timeout(10):
                while resolver._shelves:
                    await other.get("/healthz")

    run(check())


# What must not mix.


def test_federators_of_other_configurations_do_not_mix(redis: Server) -> None:
    """Another server under the same name, another way to ask it, another judgement of what it says."""

    async def check() -> None:
        async with Wire({READ: whose}) as wire, Wire({READ: result(contents("x://1", "else"))}) as elsewhere:
            token = {"Authorization": "Bearer one"}
            settings: list[dict[str, Any]] = [
                {"url": wire.url, "headers": token},
                {"url": wire.url, "headers": {"Authorization": "Bearer two"}},
                {"url": wire.url, "headers": {**token, "X-Tenant": "t"}},
                {"url": wire.url, "headers": token, "prefix": "alpha+x"},
                {"url": wire.url, "headers": token, "cache": {"trust_public": False}},
                {"url": elsewhere.url, "headers": token},
            ]
            said = []
            for number, upstream in enumerate(settings):
                uri = "alpha+xx://1" if "prefix" in upstream else URI
                async with sharing(redis, upstream) as it:
                    said.append(text(await it.read(uri)))
                    assert len(wire.calls(READ)) == min(number + 1, 5)
            one, other = "of Bearer one", "of Bearer two"
            assert said == [one, other, one, one, one, "else"]
            async with sharing(redis, settings[0]) as it:
                assert text(await it.read(URI)) == one
                assert len(wire.calls(READ)) == 5

    run(check())


def test_another_prefix_is_another_cache(redis: Server) -> None:
    """Two teams may share a Redis."""

    async def check() -> None:
        async with Wire({READ: numbered()}) as wire:
            upstream = {"url": wire.url}
            async with (
                sharing(redis, upstream, key_prefix="one:") as one,
                sharing(redis, upstream, key_prefix="two:") as other,
            ):
                assert [text(await it.read(URI)) for it in (one, other)] == ["1", "2"]

    run(check())


def test_H24_a_private_answer_is_found_by_its_own_caller_on_every_federator(redis: Server) -> None:
    """Invariant 3: each token has its own, wherever it asks."""

    async def check() -> None:
        async with Wire({READ: whose}) as wire, two(redis, {"url": wire.url, **FORWARD}) as both:
            for _ in range(2):
                for token in ("ann", "bob"):
                    for it in both:
                        assert text(await it.read(URI, headers=bearer(token))) == f"of Bearer {token}"
            assert len(wire.calls(READ)) == 2

    run(check())


def test_nothing_private_can_be_read_in_redis(redis: Server) -> None:
    """No 16 bytes of the text, the URI, or the token of the caller or our own; unless it is switched off."""
    private = "what nobody but its owner may ever come to read"
    caller, own, path = "the token of a caller 1", "a token of our own 12345", "a/long/path/of/somebody"
    uri = f"alpha+x://{path}"

    async def check() -> None:
        answer = result(contents(f"x://{path}", private, scope="private"))
        listed = result(page(f"x://{path}", scope="private"))
        async with Wire({READ: answer, LIST: listed}) as wire:
            upstream = {"url": wire.url, "headers": {"X-Key": own}, **FORWARD}
            for encrypt in (True, False):
                redis.ask("FLUSHALL")
                async with sharing(redis, upstream, encrypt_private=encrypt) as it:
                    await it.read(uri, headers=bearer(caller))
                    await it.page(headers=bearer(caller))
                    assert len(redis.keys("*:e:*")) == 2
                    dump = b"".join(name + redis.ask("DUMP", name) for name in redis.keys("*"))
                found = {
                    said
                    for said in (private, caller, own, path, SECRET)
                    if any(said[at : at + 16].encode() in dump for at in range(len(said) - 15))
                }
                assert found == (set() if encrypt else {private, path})

    run(check())


# Secrets.


def test_a_secret_is_rotated_without_losing_what_is_kept(redis: Server) -> None:
    """Public answers, and private ones that no token tells apart, as long as the old secret stands behind."""

    async def check() -> None:
        for scope in ("public", "private"):
            redis.ask("FLUSHALL")
            async with Wire({READ: numbered(scope=scope)}) as wire:
                upstream = {"url": wire.url}
                async with sharing(redis, upstream) as before:
                    await before.read(URI)
                async with sharing(redis, upstream, secret=["another secret now", SECRET]) as after:
                    assert text(await after.read(URI)) == "1"
                async with sharing(redis, upstream, secret="another secret now") as alone:
                    assert text(await alone.read(URI)) == "2"
                    assert await alone.samples("mcp_federator_redis_errors_total", operation="entry") == 1

    run(check())
