"""Redirects: case H20, over the whole product.

Each row is one input.  It is judged by what reached the upstream and by what the client got for it.
"""

import pytest

from tests.instruments.fronted import (
    DISCOVER,
    ONE,
    READ,
    SHELF,
    URI,
    choosing,
    failed,
    fronted,
    run,
)
from tests.instruments.house import house
from tests.instruments.wire import (
    Answer,
    End,
    Received,
    Wire,
    discovered,
    raw,
    reply,
    result,
)

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
