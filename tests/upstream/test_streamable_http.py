import asyncio
import json
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from mcp_federator.config import Breaker
from mcp_federator.errors import ConfigError, Reason
from mcp_federator.model import Caller, Trace
from mcp_federator.protocol.headers import decode_name
from tests.instruments.wire import (
    Answer,
    End,
    Wire,
    contents,
    error,
    event,
    raw,
    reply,
    result,
    stream,
)
from tests.upstream.asking import asking, members, run, settled

READ = "resources/read"

NEVER_OPENS = Breaker(failures=10_000)
ONE = contents("x://1")
NOTIFICATION = b'data: {"jsonrpc":"2.0","method":"notifications/progress","params":{"progress":1}}\n\n'
JSON_HEAD = b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\n"
PLAIN = {"contents": [{"uri": "alpha+x://1", "text": "text"}]}


# --- what is sent ---


def test_sends_what_the_transport_asks_for() -> None:
    """One POST with the fields of the specification, the upstream's own Host, no Origin and no cookie."""

    async def body() -> None:
        async with (
            Wire({READ: result(ONE, headers={"Set-Cookie": "a=b"})}) as wire,
            asking(wire.url) as alpha,
        ):
            await alpha.read()
            await alpha.read()
            for request in wire.calls(READ):
                assert (request.verb, request.target) == ("POST", "/mcp")
                assert request.header("host") == f"127.0.0.1:{wire.port}"
                assert request.header("accept") == "application/json, text/event-stream"
                assert request.header("content-type") == "application/json"
                assert request.header("mcp-protocol-version") == "2026-07-28"
                assert request.header("mcp-method") == READ
                for absent in ("origin", "cookie", "mcp-session-id", "last-event-id"):
                    assert request.header(absent) is None
            assert wire.connections == 1

    run(body())


def test_H23_ids_are_our_own() -> None:
    """Every request has another id, and each answer reaches who asked for it."""

    async def body() -> None:
        def echo(request: Any) -> Any:
            return result(contents(request.params["uri"]))(request)

        async with Wire({READ: echo}) as wire, asking(wire.url) as alpha:
            answers = await asyncio.gather(*(alpha.read(f"x://{n}") for n in range(50)))
            uris = [members(answer)["contents"][0]["uri"] for answer in answers]
            assert uris == [f"alpha+x://{n}" for n in range(50)]
            assert len({request.message["id"] for request in wire.received}) == 51

    run(body())


@pytest.mark.parametrize("uri", ["x://1", "file:///Załączniki/x", " x", "=?base64?YQ==?=", "a\nb", ""])
def test_H33_the_name_is_written_anew(uri: str) -> None:
    """`Mcp-Name` is the native URI, encoded where it must be, and the body has the same."""

    async def body() -> None:
        async with Wire({READ: result(ONE)}) as wire, asking(wire.url) as alpha:
            await alpha.read(uri)
            (request,) = wire.calls(READ)
            assert decode_name(request.header("mcp-name") or "") == uri == request.params["uri"]

    run(body())


@pytest.mark.parametrize("baggage", [False, True])
def test_trace_context_goes_along(baggage: bool) -> None:
    """As header fields and in `_meta`; baggage only where configured."""
    trace = Trace("00-0af7651916cd43dd8448eb211c80319c-00f067aa0ba902b7-01", "a=b", "user=7")
    expected = {
        "traceparent": trace.traceparent,
        "tracestate": "a=b",
        "baggage": "user=7" if baggage else None,
    }

    async def body() -> None:
        async with Wire({READ: result(ONE)}) as wire, asking(wire.url, baggage=baggage) as alpha:
            await alpha.read(caller=Caller(trace=trace))
            (request,) = wire.calls(READ)
            assert {name: request.header(name) for name in expected} == expected
            meta = request.params["_meta"]
            assert {name: meta.get(name) for name in expected} == expected

    run(body())


def test_static_and_forwarded_headers_go_along() -> None:
    """What is configured, and of the caller's only what `forward` names."""

    async def body() -> None:
        options = {"headers": {"X-Key": "k"}, "forward": ("authorization",)}
        async with Wire({READ: result(ONE)}) as wire, asking(wire.url, **options) as alpha:
            await alpha.read(caller=Caller(headers={"authorization": "Bearer t", "x-other": "o"}))
            (request,) = wire.calls(READ)
            fields = [request.header(name) for name in ("x-key", "authorization", "x-other")]
            assert fields == ["k", "Bearer t", None]

    run(body())


# --- what comes back ---


def variants(answer: bytes) -> dict[str, Answer]:
    """One answer in the framings of case H16."""
    lf = (
        b"\xef\xbb\xbf:\n: ping\n\nid: 1\ndata:\n\nretry: 5\n\n" + NOTIFICATION
        + b'event: other\ndata: nothing of ours\n\ndata: {"jsonrpc":"2.0","id":5,"method":"ping"}\n\n'
        + b'event: message\ndata:{"jsonrpc":"2.0",\ndata: "id":$ID,"result":' + answer + b"}\n\n"
    )  # fmt: skip
    crlf, cr = lf.replace(b"\n", b"\r\n"), lf.replace(b"\n", b"\r")
    sse = "text/event-stream"
    return {
        "json": result(answer),
        "json-in-1-byte-chunks": result(answer, cut=1),
        "json-gzip": result(answer, compress=True),
        "json-with-charset": result(answer, content_type="Application/JSON; charset=utf-8"),
        "json-until-close": raw(
            b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\n\r\n"
            b'{"jsonrpc":"2.0","id":$ID,"result":' + answer + b"}",
            End.CLOSE,
        ),
        "lf": reply(lf, content_type=sse, cut=4096),
        "crlf": reply(crlf, content_type=sse, cut=4096),
        "cr": reply(cr, content_type=sse, cut=4096),
        "crlf-in-1-byte-chunks": reply(crlf, content_type=sse, cut=1),
        "cr-in-1-byte-chunks": reply(cr, content_type=sse, cut=1),
        "crlf-in-3-byte-chunks": reply(crlf, content_type=sse, cut=3),
        "stream-with-length": reply(lf, content_type=sse),
        "stream-gzip": reply(lf, content_type=sse, compress=True),
        "stream-stays-open": stream(lf, End.HOLD),
    }


@pytest.mark.parametrize("framing", variants(b"{}"))
def test_H16_every_framing_is_the_same_answer(framing: str) -> None:
    """JSON and event streams, however framed and cut, give one and the same answer."""

    async def body() -> None:
        text = json.dumps(ONE).encode()
        async with Wire({READ: variants(text)[framing]}) as wire, asking(wire.url) as alpha:
            answer = await alpha.read()
            assert members(answer) == PLAIN
            assert (answer.hint.ttl_ms, answer.count) == (60_000, 1)

    run(body())


@settings(max_examples=20, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(cut=st.integers(1, 400), text=st.text(max_size=50))
def test_H16_any_cutting_is_the_same_answer(cut: int, text: str) -> None:
    """Cut anywhere, within characters too, a stream gives the same answer."""

    async def body() -> None:
        said = event(contents("x://1", text))
        answers = {READ: reply(NOTIFICATION + said, content_type="text/event-stream", cut=cut)}
        async with Wire(answers) as wire, asking(wire.url) as alpha:
            assert members(await alpha.read())["contents"][0]["text"] == text

    run(body())


def test_a_stream_that_ends_keeps_its_connection() -> None:
    """The end of a stream is waited for behind the answer, so that ten answers need one connection."""

    async def body() -> None:
        async with Wire({READ: stream(event(ONE))}) as wire, asking(wire.url) as alpha:
            for _ in range(10):
                await alpha.read()
                await settled(alpha)
            assert wire.connections == 1

    run(body())


def test_a_stream_that_stays_open_does_not_keep_its_answer() -> None:
    """The answer is there before the stream ends, and such a stream is closed in the end."""

    async def body() -> None:
        async with Wire({READ: stream(event(ONE), End.HOLD)}) as wire, asking(wire.url) as alpha:
            assert members(await alpha.read()) == PLAIN
            async with asyncio.timeout(5):
                await wire.calls(READ)[0].gone.wait()

    run(body())


@pytest.mark.parametrize(
    ("answer", "reason"),
    [
        pytest.param(stream(), Reason.BAD_REPLY, id="H17a-ends-at-once"),
        pytest.param(stream(NOTIFICATION), Reason.BAD_REPLY, id="ends-after-a-notification"),
        pytest.param(stream(event(ONE)[:-1]), Reason.BAD_REPLY, id="last-event-is-not-ended"),
        pytest.param(
            stream(b'data: {"jsonrpc":"2.0","id":', End.CLOSE), Reason.UNREACHABLE, id="H17d-half-a-line"
        ),
        pytest.param(stream(b"data: <html>\n\n", event(ONE)), Reason.BAD_REPLY, id="no-json-in-the-stream"),
        pytest.param(result(ONE, content_type="text/html"), Reason.BAD_REPLY, id="html"),
        pytest.param(result(ONE, content_type=None), Reason.BAD_REPLY, id="no-content-type"),
        pytest.param(reply(b"", status=202, content_type=None), Reason.BAD_REPLY, id="202"),
        pytest.param(reply(b"", status=204, content_type=None), Reason.BAD_REPLY, id="204"),
        pytest.param(reply(b""), Reason.BAD_REPLY, id="empty"),
        pytest.param(reply(b"{"), Reason.BAD_REPLY, id="half-an-object"),
        pytest.param(reply(b"[]"), Reason.BAD_REPLY, id="batch"),
        pytest.param(
            reply(b'{"jsonrpc":"2.0","id":999,"result":{}}'), Reason.BAD_REPLY, id="H23-other-id"
        ),
        pytest.param(reply(b'{"jsonrpc":"2.0","id":"$ID","result":{}}'), Reason.BAD_REPLY, id="id-as-string"),
        pytest.param(
            stream(b'data: {"jsonrpc":"2.0","id":999,"result":{}}\n\n', event(ONE)),
            Reason.BAD_REPLY,
            id="H23-other-id-in-a-stream",
        ),
        pytest.param(result(b"[" * 65 + b"]" * 65), Reason.BAD_REPLY, id="deep"),
        pytest.param(reply(b"[" * 100_000), Reason.BAD_REPLY, id="very-deep"),
        pytest.param(result(b'{"contents":[{"uri":"\xff"}]}'), Reason.BAD_REPLY, id="no-utf-8"),
        pytest.param(result(b'{"contents":[],"n":NaN}'), Reason.BAD_REPLY, id="H14-nan"),
        pytest.param(result(b'{"contents":[],"n":1E400}'), Reason.BAD_REPLY, id="H14-1E400"),
        pytest.param(
            result(b'{"contents":[{"uri":"x:1","_meta":{"n":' + b"7" * 5000 + b"}}]}"),
            Reason.BAD_REPLY,
            id="H14-5000-digits",
        ),
        pytest.param(
            raw(JSON_HEAD + b"Content-Length: 50\r\n\r\n{", End.CLOSE),
            Reason.UNREACHABLE,
            id="closes-within-the-body",
        ),
        pytest.param(raw(b"SSH-2.0-x\r\n\r\n", End.CLOSE), Reason.BAD_REPLY, id="no-http"),
        pytest.param(raw(b"HTTP/1.1 banana\r\n\r\n", End.CLOSE), Reason.BAD_REPLY, id="no-status"),
        pytest.param(
            raw(JSON_HEAD + b"Content-Encoding: gzip\r\nContent-Length: 5\r\n\r\nzzzzz"),
            Reason.BAD_REPLY,
            id="no-gzip",
        ),
        pytest.param(
            result(ONE, headers={"Content-Encoding": "zstd"}), Reason.BAD_REPLY, id="other-encoding"
        ),
        pytest.param(
            raw(JSON_HEAD + b"Transfer-Encoding: chunked\r\n\r\nxyz\r\n"),
            Reason.BAD_REPLY,
            id="no-chunks",
        ),
        pytest.param(
            result(ONE, headers={"X-Long": "x" * 100_000}), Reason.BAD_REPLY, id="a-field-over-64-KiB"
        ),
    ],
)  # fmt: skip
def test_replies_that_are_none(answer: Answer, reason: Reason) -> None:
    """Whatever comes, the asker learns soon that it is no answer, and the next request is answered."""

    async def body() -> None:
        async with Wire({READ: [answer, result(ONE)]}) as wire, asking(wire.url) as alpha:
            failure = await alpha.fails()
            assert (failure.reason, failure.upstream, failure.stale_ok) == (reason, "alpha", True)
            assert members(await alpha.read()) == PLAIN
            assert alpha.outcomes == {reason: 1, "ok": 1}

    run(body())


def test_long_header_fields_are_read() -> None:
    """A field of 60 KiB and two hundred fields fail nothing."""

    async def body() -> None:
        fields = {"X-Long": "x" * 60_000} | {f"X-{n}": "y" for n in range(200)}
        async with Wire({READ: result(ONE, headers=fields)}) as wire, asking(wire.url) as alpha:
            assert members(await alpha.read()) == PLAIN

    run(body())


# --- redirects ---


def redirect(status: int, to: str) -> Answer:
    return reply(b"", status=status, content_type=None, headers={"Location": to})


@pytest.mark.parametrize("status", [302, 307])
def test_H20_a_redirect_that_is_not_followed_is_a_refusal(status: int) -> None:
    """No stale copy stands in for it, its place is told nowhere, and it is no failure of the connection."""

    async def body() -> None:
        async with (
            Wire({READ: redirect(status, "http://elsewhere.test/")}) as wire,
            asking(wire.url) as alpha,
        ):
            failure = await alpha.fails()
            assert (failure.reason, failure.stale_ok) == (Reason.REFUSED, False)
            assert "elsewhere.test" not in failure.detail
            assert len(wire.calls(READ)) == 1
            assert alpha.client.status.breaker == "closed"

    run(body())


# --- statuses ---


@pytest.mark.parametrize("status", [401, 403])
def test_H21_not_allowed_is_a_refusal(status: int) -> None:
    """It is told of whose credentials it was said, and the challenge stays with us."""

    async def body() -> None:
        challenge = {"WWW-Authenticate": 'Bearer realm="a", scope="files:read"'}
        refusal = error(-32602, status=status, headers=challenge)
        async with Wire({READ: [refusal, result(ONE)]}) as wire, asking(wire.url) as alpha:
            failure = await alpha.fails()
            assert (failure.reason, failure.personal, failure.stale_ok) == (Reason.REFUSED, True, False)
            await alpha.read()
            assert alpha.outcomes == {Reason.REFUSED: 1, "ok": 1}

    run(body())


@pytest.mark.parametrize("size", [10, 100_000], ids=["small", "large"])
@pytest.mark.parametrize("status", [401, 404, 500])
def test_error_pages_are_no_trouble(status: int, size: int) -> None:
    """An HTML page with the status is read over, and its connection used again."""

    async def body() -> None:
        html = reply(b"<" * size, status=status, content_type="text/html")
        async with Wire({READ: html}) as wire, asking(wire.url, breaker=NEVER_OPENS) as alpha:
            for _ in range(3):
                assert (await alpha.fails()).detail.startswith(f"HTTP {status}")
                await settled(alpha)
            assert wire.connections == 1

    run(body())


@pytest.mark.parametrize("status", [400, 500])
def test_an_error_page_that_breaks_off_is_its_status(status: int) -> None:
    """What a broken body would have said does not matter any more."""

    async def body() -> None:
        head = b"HTTP/1.1 %d No\r\nContent-Type: application/json\r\nContent-Length: 50\r\n\r\n{" % status
        async with Wire({READ: raw(head, End.CLOSE)}) as wire, asking(wire.url) as alpha:
            assert f"HTTP {status}" == (await alpha.fails()).detail

    run(body())


@pytest.mark.parametrize("path", ["/mcp%2fx?key=a%2Fb%3D&x=%7e+c", "/mcp", "/é"])
def test_the_path_is_sent_as_written(path: str) -> None:
    """Nobody spells the operator's URL anew; only what cannot be sent is encoded."""

    async def body() -> None:
        async with Wire({READ: result(ONE)}) as wire, asking(wire.url.removesuffix("/mcp") + path) as alpha:
            await alpha.read()
            assert wire.calls(READ)[0].target == path.replace("é", "%C3%A9")

    run(body())


@pytest.mark.parametrize("url", ["http://[", "http://a:99999/"])
def test_a_url_that_is_none_is_told_at_start(url: str) -> None:
    """The message names the place in the file."""

    async def body() -> None:
        with pytest.raises(ConfigError, match=r"upstreams\.alpha\.url"):
            async with asking(url):
                pass

    run(body())
