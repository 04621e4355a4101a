"""What the client of an upstream finds out about it, and when it asks again."""

import asyncio
import json
from typing import Any

import pytest

from mcp_federator.config import Duration
from mcp_federator.errors import Reason, UpstreamFailure
from mcp_federator.model import ANYONE, Caller, Era, Hint, Method, Query, Scope
from mcp_federator.upstream.discovery import DOUBT, MIN_LIFE
from tests.instruments.wire import (
    Answer,
    Answers,
    Wire,
    contents,
    discovered,
    drop,
    error,
    never,
    reply,
    result,
)
from tests.upstream.asking import asking, members, run, settled

DISCOVER, READ, LIST = "server/discover", "resources/read", "resources/list"
TEMPLATES = "resources/templates/list"
ONE = result(contents("x://1"))
A, B = (Caller(headers={"authorization": f"Bearer {token}"}) for token in "ab")


# --- probe ---


def test_is_probed_once() -> None:
    """Twenty first reads, and the start, cause one `server/discover`."""

    async def body() -> None:
        async with Wire({READ: ONE}) as wire, asking(wire.url) as alpha:
            await asyncio.gather(*(alpha.read() for _ in range(20)))
            assert (len(wire.calls(DISCOVER)), len(wire.calls(READ))) == (1, 20)

    run(body())


LEGACY_ANSWERS = {
    "mcp-1.30": reply(
        b'{"jsonrpc":"2.0","id":"server-error","error":{"code":-32600,"message":"Missing session ID"}}',
        status=400,
    ),
    "server-everything": reply(
        b'{"jsonrpc":"2.0","id":null,"error":{"code":-32000,"message":"no session"}}', status=400
    ),
    "method-not-found": error(-32601, status=200),
    "invalid-params": error(-32602, status=200),
    "400-empty": reply(status=400),
    "404-html": reply(b"<html>", status=404, content_type="text/html"),
    "405": reply(status=405, content_type=None),
}


@pytest.mark.parametrize("answer", LEGACY_ANSWERS.values(), ids=LEGACY_ANSWERS)
def test_a_legacy_server_is_recognised_and_named(answer: Answer) -> None:
    """One that takes no part in the handshake either is asked nothing more until it is probed again."""

    async def body() -> None:
        async with (
            Wire({DISCOVER: [answer, result(discovered())], READ: ONE}) as wire,
            asking(wire.url) as alpha,
        ):
            for _ in range(3):
                failure = await alpha.fails()
                assert (failure.reason, failure.stale_ok, failure.personal) == (Reason.REFUSED, False, False)
                assert failure.detail == "HTTP 404 to initialize"
            with pytest.raises(UpstreamFailure, match="initialize"):
                await alpha.list()
            assert [request.method for request in wire.received] == [DISCOVER, "initialize", "None"]
            eras = [alpha.client.status.era]
            alpha.clock.now += DOUBT
            assert members(await alpha.read())["contents"]
            assert [*eras, alpha.client.status.era] == [Era.LEGACY, Era.MODERN]

    run(body())


@pytest.mark.parametrize(
    ("answer", "reason", "personal"),
    [
        pytest.param(error(-32600, status=401), Reason.REFUSED, True, id="401"),
        pytest.param(reply(status=403), Reason.REFUSED, True, id="403"),
        pytest.param(reply(status=429, headers={"Retry-After": "0"}), Reason.REFUSED, True, id="429"),
        pytest.param(reply(status=500), Reason.BAD_REPLY, False, id="500"),
        pytest.param(error(-32601, status=503), Reason.BAD_REPLY, False, id="503"),
        pytest.param(reply(b"<html>", content_type="text/html"), Reason.BAD_REPLY, False, id="html"),
        pytest.param(result({"supportedVersions": 5}), Reason.BAD_REPLY, False, id="no-result-of-it"),
        pytest.param(
            result(discovered(supportedVersions=["2027-01-01"])), Reason.REFUSED, False, id="newer-only"
        ),
        pytest.param(
            error(-32022, data={"supported": ["2027-01-01"], "requested": "2026-07-28"}),
            Reason.REFUSED,
            True,
            id="version-not-supported",
        ),
        pytest.param(error(-32021), Reason.REFUSED, True, id="capability-missing"),
        pytest.param(reply(status=418), Reason.REFUSED, True, id="418"),
        pytest.param([drop(), drop()], Reason.UNREACHABLE, False, id="broken"),
    ],
)
def test_what_decides_nothing_is_not_remembered(
    answer: Answer | list[Answer], reason: Reason, personal: bool
) -> None:
    """The asker learns why; the next query probes again and is answered."""
    answers = answer if isinstance(answer, list) else [answer]

    async def body() -> None:
        async with (
            Wire({DISCOVER: [*answers, result(discovered())], READ: ONE}) as wire,
            asking(wire.url) as alpha,
        ):
            failure = await alpha.fails()
            assert (failure.reason, failure.personal) == (reason, personal)
            assert alpha.client.status.era is None
            assert members(await alpha.read())["contents"]
            assert [request.method for request in wire.received] == [DISCOVER] * (len(answers) + 1) + [READ]

    run(body())


def test_silence_to_a_probe_decides_nothing() -> None:
    """A time-out over HTTP is no sign of a legacy server."""

    async def body() -> None:
        async with Wire({DISCOVER: never()}) as wire, asking(wire.url, timeout=Duration(0.1)) as alpha:
            assert (await alpha.fails()).reason is Reason.TIMEOUT
            assert alpha.client.status.era is None

    run(body())


def test_callers_are_probed_for_with_their_own_credentials() -> None:
    """An upstream that tells only some callers what it is serves these, and refuses the others."""

    async def body() -> None:
        def barred(request: Any) -> Any:
            allowed = request.header("authorization") == "Bearer b"
            return (result(discovered()) if allowed else reply(status=401))(request)

        async with (
            Wire({DISCOVER: barred, READ: ONE}) as wire,
            asking(wire.url, forward=("authorization",)) as alpha,
        ):
            first, second = await asyncio.gather(alpha.fails(caller=A), alpha.fails())
            assert first.personal
            assert second.personal
            await alpha.read(caller=B)
            await alpha.read(caller=A)
            assert wire.calls(READ)[1].header("authorization") == "Bearer a"

    run(body())


# --- capabilities of the upstream ---


def test_H08_an_upstream_without_resources_is_not_asked() -> None:
    """Its lists are empty for all as long as that is known, and a read finds nothing."""

    async def body() -> None:
        wire = Wire({DISCOVER: result(discovered({"tools": {}}, ttl=600_000))})
        async with wire, asking(wire.url) as alpha:
            for method in (Method.LIST, Method.TEMPLATES):
                answer = await alpha.client.fetch(Query(method), ANYONE)
                assert (answer.body, answer.count, answer.next_cursor) == (b"", 0, None)
                assert answer.hint == Hint(600_000, Scope.PUBLIC)
            alpha.clock.now += 599
            assert (await alpha.list()).hint == Hint(1000, Scope.PUBLIC)
            missing = await alpha.errs()
            assert (missing.code, missing.not_found) == (-32602, True)
            assert json.loads(missing.data or b"") == {"uri": "alpha+x://1"}
            assert [request.method for request in wire.received] == [DISCOVER]

    run(body())


def test_knowledge_grows_old_while_it_serves() -> None:
    """An upstream that has resources now is asked once that is known; until then it serves as before."""

    async def body() -> None:
        answers: dict[str, Answers] = {
            DISCOVER: [result(discovered({}, ttl=0)), result(discovered())],
            READ: ONE,
        }
        async with Wire(answers) as wire, asking(wire.url) as alpha:
            await alpha.errs()
            alpha.clock.now += MIN_LIFE - 1
            await alpha.errs()
            assert len(wire.calls(DISCOVER)) == 1
            alpha.clock.now += 1
            await alpha.errs()
            await settled(alpha)
            assert members(await alpha.read())["contents"]
            assert len(wire.calls(DISCOVER)) == 2

    run(body())


def test_H08_a_list_that_is_unknown_to_the_upstream_is_empty() -> None:
    """-32601 to a list of an upstream with resources is an empty list, and no failure."""

    async def body() -> None:
        answers = {TEMPLATES: error(-32601, status=404)}
        async with Wire(answers) as wire, asking(wire.url) as alpha:
            answer = await alpha.client.fetch(Query(Method.TEMPLATES), ANYONE)
            assert (answer.body, answer.hint) == (b"", Hint(3_600_000, Scope.PUBLIC))
            assert alpha.outcomes == {"ok": 1}

    run(body())


# --- versions and eras that change ---


def test_an_outdated_version_is_probed_and_asked_once_more() -> None:
    """-32022 is told to nobody when the second try succeeds."""

    async def body() -> None:
        async with Wire({READ: [error(-32022), ONE]}) as wire, asking(wire.url) as alpha:
            assert members(await alpha.read())["contents"]
            assert [request.method for request in wire.received] == [DISCOVER, READ, DISCOVER, READ]

    run(body())


def test_a_version_that_stays_refused_is_a_refusal() -> None:
    """-32022 twice ends as our own words; it is never relayed."""

    async def body() -> None:
        async with Wire({READ: error(-32022)}) as wire, asking(wire.url) as alpha:
            failure = await alpha.fails()
            assert (failure.reason, failure.code) == (Reason.REFUSED, -32022)
            assert len(wire.calls(READ)) == 2

    run(body())


@pytest.mark.parametrize("kind", sorted(LEGACY_ANSWERS.keys() - {"method-not-found", "invalid-params"}))
def test_a_server_that_became_legacy_is_noticed(kind: str) -> None:
    """An answer that fits no modern server causes a probe; one that fits none at all ends in a refusal."""

    async def body() -> None:
        answer = LEGACY_ANSWERS[kind]
        wire = Wire({DISCOVER: [result(discovered()), answer], READ: answer})
        async with wire, asking(wire.url) as alpha:
            await alpha.client.probe()
            alpha.clock.now += DOUBT
            for _ in range(3):
                await alpha.fails()
            assert len(wire.calls(DISCOVER)) == 2
            assert "initialize" in (await alpha.fails()).detail

    run(body())
