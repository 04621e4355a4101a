import asyncio
import json
import logging
from pathlib import Path
from typing import Any

import pytest

from mcp_federator.config import Breaker, Duration
from mcp_federator.errors import Reason, UpstreamError, UpstreamFailure
from mcp_federator.model import Caller, Completion, Era, Hint, Method, Query, Retry, Scope
from mcp_federator.upstream.discovery import DOUBT
from mcp_federator.upstream.hold import DEFAULT_HOLD
from mcp_federator.upstream.resolution import REST
from tests.instruments.wire import (
    Answer,
    Answers,
    Wire,
    accepted,
    contents,
    discovered,
    drop,
    error,
    initialized,
    never,
    page,
    reply,
    result,
    stream,
)
from tests.upstream.asking import asking, items, members, run, settled
from tests.upstream.certificates import Authority

DISCOVER, READ, LIST = "server/discover", "resources/read", "resources/list"
ONE = result(contents("x://1"))
A, B = (Caller(headers={"authorization": f"Bearer {token}"}) for token in "ab")
NEVER_OPENS = Breaker(failures=10_000)


# --- the caller's capabilities ---


@pytest.mark.parametrize(
    ("more", "declared"),
    [
        pytest.param({}, {"roots": {}}, id="shared"),
        pytest.param({"alone": True}, {"elicitation": {}}, id="alone"),
        pytest.param({"retry": Retry(b'{"a":{"n":1.10}}', b'"s"')}, {"elicitation": {}}, id="retry"),
    ],
)
def test_whose_capabilities_are_declared(more: dict[str, Any], declared: dict[str, Any]) -> None:
    """A shared request declares the configured ones, one for this caller alone his own."""

    async def body() -> None:
        options: dict[str, Any] = {"client_capabilities": {"roots": {}}}
        async with Wire({READ: ONE}) as wire, asking(wire.url, **options) as alpha:
            await alpha.read(caller=Caller(capabilities=b'{"elicitation":{}}'), **more)
            (request,) = wire.calls(READ)
            assert request.params["_meta"]["io.modelcontextprotocol/clientCapabilities"] == declared

    run(body())


def test_H29_a_retry_goes_up_byte_for_byte() -> None:
    """The asker's responses and state arrive as he wrote them."""

    async def body() -> None:
        async with Wire({READ: ONE}) as wire, asking(wire.url) as alpha:
            await alpha.read(retry=Retry(b'{"a":{"n":1.10}}', b'"op\\u0061que"'))
            sent = wire.calls(READ)[0].body
            assert b'"inputResponses":{"a":{"n":1.10}}' in sent
            assert b'"requestState":"op\\u0061que"' in sent

    run(body())


def test_a_missing_capability_is_told() -> None:
    """-32021 passes with its data, so that whoever stands above can ask once more."""

    async def body() -> None:
        refusal = error(-32021, data={"requiredCapabilities": {"elicitation": {}}})
        async with Wire({READ: refusal}) as wire, asking(wire.url) as alpha:
            told = await alpha.errs()
            assert (told.code, told.status) == (-32021, 400)
            assert json.loads(told.data or b"") == {"requiredCapabilities": {"elicitation": {}}}

    run(body())


# --- breaker and holds ---


@pytest.mark.parametrize(
    "answer",
    [
        pytest.param(reply(status=500), id="5xx"),
        pytest.param(reply(b"{}"), id="bad-reply"),
        pytest.param(stream(), id="stream-without-answer"),
        pytest.param(reply(b'{"jsonrpc":"2.0","id":7,"result":{"x":"\\ud800"}}'), id="unfit-and-of-another"),
        pytest.param(reply(b'{"jsonrpc":"2.0","id":$ID,"result":{"x":}}'), id="no-json"),
        pytest.param(drop(), id="broken"),
        pytest.param(never(), id="time-out"),
    ],
)
def test_the_breaker_opens_and_one_trial_closes_it(answer: Answer) -> None:
    """After so many failures the upstream is left alone; then one request tries before all others."""

    async def body() -> None:
        gate = asyncio.Event()
        answers = {READ: answer}
        options = {"breaker": Breaker(failures=3, open_for=Duration(5)), "timeout": Duration(0.1)}
        async with Wire(answers) as wire, asking(wire.url, **options) as alpha:
            await alpha.client.probe()
            for _ in range(3):
                await alpha.fails()
            asked = len(wire.received)
            failure = await alpha.fails()
            assert (failure.reason, failure.stale_ok) == (Reason.UNREACHABLE, True)
            assert "breaker" in failure.detail
            assert (len(wire.received), alpha.client.status.breaker) == (asked, "open")
            assert not alpha.client.status.up

            alpha.clock.now += 6
            wire.answers[READ] = result(contents("x://1"), after=gate)
            trial = asyncio.create_task(alpha.read())
            await wire.arrived(READ, len(wire.calls(READ)) + 1)
            assert "breaker" in (await alpha.fails()).detail
            gate.set()
            await trial
            await alpha.read()
            assert (alpha.client.status.breaker, alpha.client.status.up) == ("closed", True)
            assert alpha.client.status.error == ""

    run(body())


@pytest.mark.parametrize(
    "answer",
    [
        pytest.param(reply(status=404), id="404"),
        pytest.param(reply(status=401), id="401"),
        pytest.param(reply(status=429, headers={"Retry-After": "0"}), id="429"),
        pytest.param(error(-32603, status=200), id="json-rpc-error"),
        pytest.param(error(-32602), id="not-found"),
        pytest.param(error(-32050), id="refused-code"),
        pytest.param(reply(b" " * 2000), id="too-large"),
        pytest.param(result(b'{"contents":[{"uri":"x://1","text":"\\ud800"}]}'), id="half-a-character"),
        pytest.param(result(b'{"contents":[{"uri":"x://1","text":"\xff"}]}'), id="no-utf-8"),
        pytest.param(result(b'{"contents":[],"x":1e400}'), id="no-number"),
        pytest.param(result(b'{"contents":[],"x":%b}' % (b"[" * 65 + b"]" * 65)), id="deep"),
        pytest.param(result({"contents": 5}), id="no-contents"),
        pytest.param(error(-32602, message="\ud800", status=200), id="half-a-character-in-the-error"),
    ],
)
def test_what_the_breaker_does_not_count(answer: Answer) -> None:
    """Answers, refusals and large resources close an upstream to nobody."""

    async def body() -> None:
        options = {"breaker": Breaker(failures=1), "max_response_bytes": 1000}
        async with Wire({READ: answer, LIST: result(page())}) as wire, asking(wire.url, **options) as alpha:
            for _ in range(3):
                with pytest.raises(Exception):  # noqa: B017, PT011 - of several kinds
                    await alpha.read()
            assert len(wire.calls(READ)) == 3
            assert (await alpha.list()).count == 0

    run(body())


def test_a_hold_with_an_answer_is_for_one_partition() -> None:
    """An error that is an answer may ask to wait as well; whom it was not said to is sent at once."""

    async def body() -> None:
        def busy(request: Any) -> Any:
            slow = request.header("authorization") == "Bearer a"
            no = error(-32602, "no", status=400, headers={"Retry-After": "3"})
            return (no if slow else ONE)(request)

        async with Wire({READ: busy}) as wire, asking(wire.url, forward=("authorization",)) as alpha:
            with pytest.raises(UpstreamError):
                await alpha.read(caller=A)
            assert (await alpha.fails(caller=A)).retry_after == 3
            await alpha.read(caller=B)
            assert len(wire.calls(READ)) == 2

    run(body())


@pytest.mark.parametrize(
    ("headers", "status", "held"),
    [
        pytest.param({"Retry-After": "7"}, 429, 7.0, id="429-seconds"),
        pytest.param({}, 429, DEFAULT_HOLD, id="429-does-not-say"),
        pytest.param({"Retry-After": "100000"}, 429, 60.0, id="429-capped"),
        pytest.param({"Retry-After": "7"}, 503, 7.0, id="503-seconds"),
        pytest.param({"Retry-After": "7"}, 403, 7.0, id="403-seconds"),
        pytest.param({"Retry-After": "7"}, 404, 7.0, id="404-seconds"),
        pytest.param(
            {"Date": "Mon, 30 Nov 2026 15:00:00 GMT", "Retry-After": "Mon, 30 Nov 2026 15:00:09 GMT"},
            429,
            9.0,
            id="429-date",
        ),
    ],
)
def test_a_hold_is_for_one_partition(headers: dict[str, str], status: int, held: float) -> None:
    """Who was told to wait is not sent again in time; others are."""

    async def body() -> None:
        def busy(request: Any) -> Any:
            slow = request.header("authorization") == "Bearer a"
            return (reply(status=status, headers=headers) if slow else ONE)(request)

        async with Wire({READ: busy}) as wire, asking(wire.url, forward=("authorization",)) as alpha:
            assert (await alpha.fails(caller=A)).retry_after == held
            alpha.clock.now += held - 0.5
            failure = await alpha.fails(caller=A)
            assert (failure.reason, failure.retry_after) == (Reason.REFUSED, 0.5)
            assert (failure.personal, failure.stale_ok) == (True, True)
            assert len(wire.calls(READ)) == 1
            await alpha.read(caller=B)
            alpha.clock.now += 0.5
            await alpha.fails(caller=A)
            assert len(wire.calls(READ)) == 3

    run(body())


# --- bulkheads ---


@pytest.mark.parametrize(
    "limit", [{"max_in_flight": 3}, {"slots": 3}], ids=["of-the-upstream", "of-the-process"]
)
def test_too_many_at_once_are_told_so(limit: dict[str, Any]) -> None:
    """Beyond the limit nothing is sent, nothing counted as failed; room comes back."""

    async def body() -> None:
        gate = asyncio.Event()
        async with (
            Wire({READ: result(contents("x://1"), after=gate)}) as wire,
            asking(wire.url, **limit) as alpha,
        ):
            under_way = [asyncio.create_task(alpha.read()) for _ in range(3)]
            await wire.arrived(READ, 3)
            failure = await alpha.fails()
            assert (failure.reason, failure.stale_ok) == (Reason.OVERLOADED, True)
            assert alpha.client.status.in_flight == 3
            gate.set()
            await asyncio.gather(*under_way)
            await alpha.read()
            assert alpha.outcomes == {"ok": 4}

    run(body())


# --- normalised URIs ---


def shelf(*uris: str) -> dict[str, Answer]:
    """An upstream that lists these URIs, one on a page, and knows them only exactly."""

    def listing(request: Any) -> Any:
        at = int(request.params.get("cursor", "0"))
        following = str(at + 1) if at + 1 < len(uris) else None
        return result(page(uris[at], cursor=following))(request)

    def reading(request: Any) -> Any:
        uri = request.params["uri"]
        known = result(contents(uri)) if uri in uris else error(-32602, "unknown", {"uri": uri})
        return known(request)

    return {LIST: listing, READ: reading}


def test_H01_a_normalised_uri_reaches_its_original() -> None:
    """The upstream gets the string it listed, after one walk of its list."""

    async def body() -> None:
        async with Wire(shelf("x://0", "file:///a b.txt", "x://2")) as wire, asking(wire.url) as alpha:
            for walked in (3, 3):
                answer = await alpha.read("file:///a%20b.txt")
                assert members(answer)["contents"][0]["uri"] == "alpha+file:///a b.txt"
                # Whoever keeps the answer under what was asked learns what it changes with.
                assert answer.uris == ("file:///a b.txt",)
                assert len(wire.calls(LIST)) == walked
            assert wire.calls(READ)[-1].params["uri"] == "file:///a b.txt"

    run(body())


def test_H01_pages_that_passed_by_are_enough() -> None:
    """What a client has listed is known, and no walk is needed."""

    async def body() -> None:
        async with Wire(shelf("file:///a b.txt")) as wire, asking(wire.url) as alpha:
            assert [item["uri"] for item in items(await alpha.list())] == ["alpha+file:///a b.txt"]
            await alpha.read("file:///a%20b.txt")
            assert len(wire.calls(LIST)) == 1

    run(body())


def test_H01_what_is_not_listed_stays_not_found() -> None:
    """The upstream's own error is told, its URI in public form; one walk, until the list changes."""

    async def body() -> None:
        async with Wire(shelf("x://0")) as wire, asking(wire.url) as alpha:
            for lists in (1, 1):
                told = await alpha.errs("x://9")
                assert (told.code, told.message, told.not_found) == (-32602, "unknown", True)
                assert json.loads(told.data or b"") == {"uri": "alpha+x://9"}
                assert len(wire.calls(LIST)) == lists
            alpha.client.forget()
            alpha.clock.now += REST
            await alpha.errs("x://9")
            assert len(wire.calls(LIST)) == 2

    run(body())


def test_a_walk_that_fails_leaves_the_answer() -> None:
    """The upstream's "not found" is told although its list is broken."""

    async def body() -> None:
        answers = shelf("x://0") | {LIST: reply(status=500)}
        async with Wire(answers) as wire, asking(wire.url) as alpha:
            assert (await alpha.errs("x://9")).not_found
            assert (await alpha.errs("x://9")).not_found
            assert len(wire.calls(LIST)) == 1

    run(body())


def test_a_walk_that_takes_too_long_leaves_the_answer() -> None:
    """At the deadline "not found" is told; the walk is no failure of the upstream."""

    async def body() -> None:
        answers = shelf("x://0") | {LIST: never()}
        options = {"timeout": Duration(0.2), "breaker": Breaker(failures=1)}
        async with Wire(answers) as wire, asking(wire.url, **options) as alpha:
            assert (await alpha.errs("x://9")).not_found
            async with asyncio.timeout(5):
                await wire.calls(LIST)[0].gone.wait()
            assert alpha.client.status.breaker == "closed"

    run(body())


# --- what is told ---


def test_each_request_is_counted_once() -> None:
    """By how it ended, and by its method."""

    async def body() -> None:
        answers: dict[str, Answers] = {
            READ: [ONE, error(7001), error(-32050), reply(status=401), reply(status=500), reply(b"{}")],
            LIST: result(page()),
        }
        async with Wire(answers) as wire, asking(wire.url, breaker=NEVER_OPENS) as alpha:
            for _ in range(6):
                await asyncio.gather(alpha.read(), return_exceptions=True)
            await alpha.list()
            assert alpha.outcomes == {"ok": 2, "error": 1, "refused": 2, "bad_reply": 2}
            text = alpha.metrics.render()[0].decode()
            assert 'mcp_federator_upstream_up{upstream="alpha"} 1.0' in text
            info = 'era="modern",transport="streamable_http",upstream="alpha",version="2026-07-28"'
            assert info in text

    run(body())


def test_status_tells_no_secret() -> None:
    """Of the address scheme, host and port; of the server what it says, cleaned."""

    async def body() -> None:
        meta = {"io.modelcontextprotocol/serverInfo": {"name": "a\n\x1b[31m", "version": "1"}}
        wire = Wire({DISCOVER: result(discovered(_meta=meta))})
        async with wire, asking(f"{wire.url}/path?key=s3cret", headers={"X-Key": "s3cret"}) as alpha:
            before = alpha.client.status
            assert (before.era, before.resources, before.up, before.server) == (None, None, False, "")
            found = await alpha.client.probe()
            assert found.resources
            status = alpha.client.status
            assert status.address == f"http://127.0.0.1:{wire.port}"
            assert (status.era, status.version) == (Era.MODERN, "2026-07-28")
            assert (status.resources, status.up, status.breaker) == (True, True, "closed")
            assert status.server.isprintable()
            assert "s3cret" not in repr(status)
            assert wire.received[0].target == "/mcp/path?key=s3cret"

    run(body())


def test_logs_say_what_failed_and_no_secret(caplog: pytest.LogCaptureFixture) -> None:
    """A line for each failure, in printing characters, without URIs, tokens and the upstream's own text."""

    async def body() -> None:
        answers = {
            READ: [
                reply(b"s3cret\n", content_type="text/html\x1b[31m; s3cret"),
                error(-32050, "s3cret"),
                reply(status=307, headers={"Location": "http://s3cret.test/"}),
                drop(),
                drop(),
            ]
        }
        async with Wire(answers) as wire:
            options = {"headers": {"X-Key": "s3cret"}, "breaker": Breaker(failures=2)}
            async with asking(f"{wire.url}?s3cret", **options) as alpha:
                for _ in range(4):
                    await alpha.fails("x://s3cret")
                assert "s3cret" not in alpha.client.status.error

    with caplog.at_level(logging.INFO, "mcp_federator.upstream"):
        run(body())
    lines = [record.getMessage() for record in caplog.records]
    assert sum("resources/read failed" in line for line in lines) == 4
    assert all(line.isprintable() and "s3cret" not in line for line in lines), lines
    assert {record.name.rpartition(".")[0] for record in caplog.records} == {"mcp_federator.upstream"}


def test_a_header_that_is_no_text_is_refused() -> None:
    """A forwarded value with bytes beyond UTF-8 fails its own caller, and is not sent."""

    async def body() -> None:
        async with Wire({READ: ONE}) as wire, asking(wire.url, forward=("x-name",)) as alpha:
            await alpha.client.probe()
            failure = await alpha.fails(caller=Caller(headers={"x-name": "a\udcff"}))
            assert (failure.reason, failure.personal) == (Reason.REFUSED, True)
            await alpha.read(caller=Caller(headers={"x-name": "Zażółć"}))
            (request,) = wire.calls(READ)
            assert (request.header("x-name") or "").encode("latin-1").decode() == "Zażółć"

    run(body())


def test_an_upstream_that_is_down_at_start_is_found_later() -> None:
    """Start never fails because of it, and nothing has to be restarted."""

    async def body() -> None:
        async with Wire({READ: ONE}) as wire:
            await wire.stop()
            async with asking(wire.url) as alpha:
                assert (await alpha.fails()).reason is Reason.UNREACHABLE
                await wire.start()
                assert members(await alpha.read())["contents"]

    run(body())


def test_closing_ends_what_is_under_way() -> None:
    """Who waits for an upstream that leaves the configuration is told, and not cancelled."""

    async def body() -> None:
        for method in (READ, DISCOVER):
            async with Wire({method: never()}) as wire, asking(wire.url) as alpha:
                waiting = asyncio.create_task(alpha.fails())
                await wire.arrived(method)
                await alpha.client.close()
                assert (await waiting).reason in {Reason.UNREACHABLE, Reason.TIMEOUT}
                assert (await alpha.fails()).reason in {Reason.UNREACHABLE, Reason.TIMEOUT}

    run(body())


def test_what_one_caller_lacks_says_nothing_of_another() -> None:
    """Where callers are told apart, "no resources" or "no such list" of one is not kept for the others."""

    async def check() -> None:
        nothing = result(discovered({}, ttl=0, cacheScope="private"))
        answers: dict[str, Answers] = {
            "server/discover": nothing,
            Method.LIST: [error(-32601, status=404), result(page("x://1"))],
        }
        async with Wire(answers) as wire, asking(wire.url, forward=["authorization"]) as alpha:
            first = await alpha.client.fetch(Query(Method.LIST), Caller({"authorization": "a"}))
            second = await alpha.client.fetch(Query(Method.LIST), Caller({"authorization": "b"}))
            assert (first.count, first.hint) == (0, Hint(0, Scope.PRIVATE))
            assert second.count == 1
            assert len(wire.calls(Method.LIST)) == 2

    run(check())


COMPLETE = "completion/complete"


ASKED = Query(Method.COMPLETE, "x://{a}", alone=True, completion=Completion(b'{"name":"a","value":""}'))


SUGGESTED = result({"resultType": "complete", "completion": {"values": ["v"], "total": 1}})


@pytest.mark.parametrize("forward", [[], ["authorization"]], ids=["one context", "forwarded"])
@pytest.mark.parametrize("capabilities", [{"resources": {}}, {"resources": {}, "completions": None}])
def test_an_upstream_that_declares_no_completions_is_not_asked(capabilities: Any, forward: list[str]) -> None:
    """It suggests nothing."""

    async def body() -> None:
        wire = Wire({DISCOVER: result(discovered(capabilities)), COMPLETE: SUGGESTED})
        async with wire, asking(wire.url, forward=forward) as alpha:
            answer = await alpha.client.fetch(ASKED, A)
            assert members(answer) == {"completion": {"values": [], "hasMore": False}}
            assert (answer.hint, alpha.client.completes) == (Hint(0, Scope.PRIVATE), False)
            assert alpha.client.status.completions is False
            assert wire.calls(COMPLETE) == []

    run(body())


def test_a_completion_goes_up_with_the_callers_capabilities() -> None:
    """Also where the upstream has no resources; it is told as it came, and not resolved where it fails."""

    async def body() -> None:
        wire = Wire(
            {
                DISCOVER: result(discovered({"completions": {}})),
                COMPLETE: [SUGGESTED, error(-32602, "no such argument", status=200)],
            }
        )
        async with wire, asking(wire.url) as alpha:
            caller = Caller(capabilities=b'{"roots":{}}')
            assert members(await alpha.client.fetch(ASKED, caller)) == {
                "completion": {"values": ["v"], "total": 1}
            }
            (call,) = wire.calls(COMPLETE)
            assert call.params["ref"] == {"type": "ref/resource", "uri": "x://{a}"}
            assert call.params["_meta"]["io.modelcontextprotocol/clientCapabilities"] == {"roots": {}}
            assert (call.header("mcp-method"), call.header("mcp-name")) == (COMPLETE, None)
            with pytest.raises(UpstreamError, match="no such argument"):
                await alpha.client.fetch(ASKED, caller)
            assert wire.calls(LIST) == []
            assert (alpha.client.completes, alpha.outcomes) == (True, {"ok": 1, "error": 1})

    run(body())


def test_H01_what_one_variant_lists_is_not_meant_by_another() -> None:
    """Whatever is forwarded may make the list another; each variant's reads are resolved by its own."""

    async def body() -> None:
        full, empty = shelf("file:///a b.txt"), shelf("x://0")

        def by_tenant(method: str) -> Answer:
            return lambda request: (full if request.header("x-tenant") == "a" else empty)[method](request)

        answers = {method: by_tenant(method) for method in (LIST, READ)}
        one, other = (Caller(headers={"x-tenant": tenant}) for tenant in "ab")
        async with Wire(answers) as wire, asking(wire.url, forward=("x-tenant",)) as alpha:
            await alpha.list(caller=one)
            assert (await alpha.errs("file:///a%20b.txt", other)).not_found
            asked = [(each.header("x-tenant"), each.params["uri"]) for each in wire.calls(READ)]
            assert asked == [("b", "file:///a%20b.txt")]
            await alpha.read("file:///a%20b.txt", one)

    run(body())


REFUSALS = {
    "400": reply(status=400),
    "404": reply(status=404),
    "405": reply(status=405),
    "invalid-request": error(-32600, status=400),
    "method-not-found": error(-32601, status=404),
    "method-not-found-200": error(-32601, status=200),
    "unsupported-version": error(-32022, data={"supported": ["2025-11-25"], "requested": "2026-07-28"}),
}


def by_token(good: Answer, bad: Answer) -> Answer:
    """`good` for the token of A, `bad` for any other, and for none."""
    return lambda request: (good if request.header("authorization") == "Bearer a" else bad)(request)


@pytest.mark.parametrize("refusal", REFUSALS.values(), ids=REFUSALS)
@pytest.mark.parametrize("handshake", [False, True], ids=["modern-alone", "both-eras"])
@pytest.mark.parametrize("first", [A, B], ids=["a-first", "b-first"])
def test_a_refused_token_says_nothing_of_the_era_to_others(
    refusal: Answer, handshake: bool, first: Caller
) -> None:
    """Whatever a server says to a bad token, the good one goes on as modern, and no handshake is tried."""

    async def body() -> None:
        answers: dict[str, Answers] = {
            DISCOVER: by_token(result(discovered()), refusal),
            READ: by_token(ONE, refusal),
            "initialize": initialized() if handshake else by_token(error(-32601, status=404), refusal),
            "notifications/initialized": accepted(),
        }
        async with Wire(answers) as wire, asking(wire.url, forward=("authorization",)) as alpha:
            await settled(alpha)
            if first is A:
                await alpha.read(caller=A)
            for _ in range(3):
                with pytest.raises((UpstreamFailure, UpstreamError)):
                    await alpha.read(caller=B)
                await alpha.read(caller=A)
                alpha.clock.now += DOUBT
            assert (alpha.client.status.era, alpha.client.status.error) == (Era.MODERN, "")
        of_a = [each.method for each in wire.received if each.header("authorization") == "Bearer a"]
        assert of_a.count(DISCOVER) == 1
        assert set(of_a) == {DISCOVER, READ}

    run(body())


PATH = "nothing answers MCP there: check the path of its URL"


WRONG: dict[str, tuple[Answer, tuple[str, str], str]] = {
    "404": (reply(b"no", status=404, content_type="text/plain"), ("http", "http"), PATH),
    "405": (reply(b"", status=405, content_type=None), ("http", "http"), PATH),
    "html": (reply(b"<html>", content_type="text/html"), ("http", "http"), PATH),
    "tls": (ONE, ("https", "http"), "is it an https:// URL?"),
    "untrusted": (ONE, ("https", "https"), "see `tls.ca_file`"),
    "401": (reply(status=401), ("http", "http"), "HTTP 401: it wants credentials; ours go under `headers`"),
    "403": (reply(status=403), ("http", "http"), "HTTP 403: it wants credentials; ours go under `headers`"),
}


@pytest.mark.parametrize(("answer", "schemes", "hint"), WRONG.values(), ids=WRONG)
def test_what_is_wrong_with_an_upstream_is_told(
    answer: Answer, schemes: tuple[str, str], hint: str, caplog: pytest.LogCaptureFixture, tmp_path: Path
) -> None:
    """`check`, `/status` and the log say what to look at; it is not up."""
    caplog.set_level(logging.WARNING, "mcp_federator")
    spoken, configured = schemes
    tls = Authority(tmp_path).server("127.0.0.1") if spoken == "https" else None

    async def body() -> None:
        async with Wire(answer, tls=tls) as wire:
            await told(f"{configured}://127.0.0.1:{wire.port}/mcp", hint, caplog)

    run(body())


def test_a_server_that_speaks_no_tls_is_told(caplog: pytest.LogCaptureFixture) -> None:
    """Web servers answer the first bytes of a handshake with an error page."""

    async def body() -> None:
        def page(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            writer.write(b"HTTP/1.1 400 Bad Request\r\n\r\n")
            writer.close()

        async with await asyncio.start_server(page, "127.0.0.1", 0) as server:
            port = server.sockets[0].getsockname()[1]
            await told(f"https://127.0.0.1:{port}/mcp", "is it an http:// URL?", caplog)

    run(body())


async def told(url: str, hint: str, caplog: pytest.LogCaptureFixture) -> None:
    async with asking(url) as alpha:
        with pytest.raises(UpstreamFailure) as caught:
            await alpha.client.probe()
        assert hint in caught.value.detail
        assert hint in alpha.client.status.error
        assert not alpha.client.status.up
        assert hint in caplog.text


def test_one_callers_refusal_takes_nothing_down() -> None:
    """Where callers are told apart, who is refused says nothing of the upstream."""

    async def body() -> None:
        answers = {DISCOVER: by_token(result(discovered()), reply(status=401)), READ: ONE}
        async with Wire(answers) as wire, asking(wire.url, forward=("authorization",)) as alpha:
            await alpha.fails(caller=B)
            assert alpha.client.status.up

    run(body())
