"""The same listener, met by clients of the 2025 revisions."""

import asyncio
import json
from typing import Any

import pytest

from mcp_federator import config
from mcp_federator.endpoint.sessions import Sessions
from mcp_federator.errors import McpError, Reason, UpstreamError, UpstreamFailure
from mcp_federator.model import Answer, Caller, Era, Method, Missing, Query
from mcp_federator.protocol.legacy import MAX_BATCH
from tests.endpoint.door import (
    HIT,
    INITIALIZE,
    PAGE,
    VERSION,
    Door,
    HangingSource,
    ScriptedSource,
    began,
    compact,
    plain,
    read,
    request,
    run,
    settle,
)

SECRET = "a secret of sixteen"
LEGACY = ["2025-11-25", "2025-06-18", "2025-03-26"]
BATCHES = "2025-03-26"


# The session


@pytest.mark.parametrize("session", [None, "s1"])
@pytest.mark.parametrize(
    ("asked", "agreed"), [*zip(LEGACY, LEGACY, strict=True), ("2024-11-05", LEGACY[0]), (VERSION, LEGACY[0])]
)
def test_H34_initialize_agrees_on_a_version(asked: str, agreed: str, session: str | None) -> None:
    """The version asked for where we speak it, else our newest legacy one; and a new session."""

    async def body() -> None:
        settings = config.Server(instructions="Ask away.")
        async with Door(settings=settings) as door:
            params = {
                "protocolVersion": asked,
                "capabilities": {},
                "clientInfo": {"name": "t", "version": "0"},
            }
            sent = request(compact({**INITIALIZE, "params": params}), {"Mcp-Session-Id": session})
            response = await door.ask(sent)
            assert (response.status, response.message["id"]) == (200, 0)
            result = response.message["result"]
            assert result["protocolVersion"] == agreed
            assert result["capabilities"] == {"resources": {}}
            assert result["serverInfo"]["name"] == "mcp-federator"
            assert result["instructions"] == "Ask away."
            assert response.header("Mcp-Session-Id") not in {None, "s1"}
            assert door.counted == {'era="legacy",method="other",status="ok"': 1}

    run(body())


@pytest.mark.parametrize("params", [{}, {"protocolVersion": 1}, None], ids=["none", "number", "no params"])
def test_H34_initialize_without_a_version(params: Any) -> None:
    """-32602 in a reply of status 200, and no session."""

    async def body() -> None:
        async with Door() as door:
            response = await door.ask(request(compact({**INITIALIZE, "params": params or {}})))
            assert (response.status, response.code, response.message["id"]) == (200, -32602, 0)
            assert response.header("Mcp-Session-Id") is None

    run(body())


def test_initialized_is_taken_note_of() -> None:
    """202 without a body."""

    async def body() -> None:
        async with Door() as door:
            response = await (await began(door)).notify("notifications/initialized")
            assert (response.status, response.body) == (202, b"")

    run(body())


@pytest.mark.parametrize("version", LEGACY)
def test_a_session_answers_ping_lists_and_reads(version: str) -> None:
    """Results as these revisions have them: no hints, no result type, no name of ours in `_meta`."""

    async def body() -> None:
        async with Door(ScriptedSource(answer_by_method)) as door:
            client = await began(door, version)
            assert (await client.ask("ping")).message["result"] == {}
            first = await client.ask("resources/list")
            assert first.message["result"] == {
                "resources": [{"uri": "docs+x://1", "name": "one"}],
                "nextCursor": "c2",
            }
            await client.ask("resources/templates/list", {"cursor": "c"})
            response = await client.read(id="a")
            assert response.message == {
                "jsonrpc": "2.0",
                "id": "a",
                "result": {"contents": [{"uri": "docs+x://1", "text": "one"}]},
            }
            assert response.header("Cache-Status") == "mcp-federator; hit; ttl=30"
            assert [(query.method, query.uri, query.cursor) for query in door.source.asked] == [
                (Method.LIST, None, None),
                (Method.TEMPLATES, None, "c"),
                (Method.READ, "docs+x://1", None),
            ]
            assert {caller.era for caller in door.source.callers} == {Era.LEGACY}
            assert door.counted['era="legacy",method="resources/read",status="ok"'] == 1

    run(body())


async def answer_by_method(query: Query, caller: Caller) -> Answer:  # noqa: ARG001 - a source's signature
    return HIT if query.method is Method.READ else PAGE


def test_a_list_with_gaps_says_so() -> None:
    """What is missing stands in `_meta`, under our own key."""

    async def body() -> None:
        page = Answer(b"", HIT.hint, meta=b'"k":1', incomplete=(Missing("beta", "timeout"),))
        async with Door(ScriptedSource(page)) as door:
            response = await (await began(door)).ask("resources/list")
            assert response.message["result"] == {
                "_meta": {
                    "k": 1,
                    "dev.mcp-federator/incomplete": [{"upstream": "beta", "reason": "timeout"}],
                },
                "resources": [],
            }

    run(body())


def test_a_session_holds_on_every_process_with_the_secret() -> None:
    """A session that another process began is served, also after the secret was rotated."""

    async def body() -> None:
        old, rotated = (SECRET,), ("another secret here", SECRET)
        async with (
            Door(settings=config.Server(secret=old)) as here,
            Door(settings=config.Server(secret=rotated)) as there,
            Door() as stranger,
        ):
            client = await began(here)
            for door, status in ((there, 200), (stranger, 404)):
                client.door = door
                assert (await client.read()).status == status

    run(body())


@pytest.mark.parametrize("verb", ["POST", "GET", "DELETE"])
@pytest.mark.parametrize(
    "session",
    ["s1", "", Sessions([b"another secret"]).begin(LEGACY[0]), "A" * 5000],
    ids=["made up", "empty", "of another secret", "long"],
)
def test_an_unknown_session_is_404(session: str, verb: str) -> None:
    """On requests, streams and ends; nothing is asked, nothing echoed."""

    async def body() -> None:
        async with Door() as door:
            sent = request(
                compact(plain("resources/list")) if verb == "POST" else b"",
                {"Mcp-Session-Id": session, "MCP-Protocol-Version": LEGACY[0]},
                verb=verb,
            )
            response = await door.ask(sent)
            assert (response.status, response.code) == (404, -32600)
            assert response.message.get("id") == (1 if verb == "POST" else None)
            assert response.header("Mcp-Session-Id") is None
            assert door.source.asked == []

    run(body())


def test_an_ended_session_is_404() -> None:
    """DELETE is 204 once; from then on the session is unknown, and others are not touched."""

    async def body() -> None:
        async with Door() as door:
            client, other = await began(door), await began(door)
            response = await client.delete()
            assert (response.status, response.body) == (204, b"")
            assert (await client.read()).status == 404
            assert (await client.notify("notifications/initialized")).status == 404
            assert (await client.delete()).status == 404
            assert (await other.read()).status == 200

    run(body())


def test_the_end_of_a_session_ends_its_requests() -> None:
    """What the session still asks is called off; its reply has no response in it."""

    async def body() -> None:
        async with Door(HangingSource()) as door:
            client = await began(door)
            connection = await door.connect()
            await connection.send(client.sent(plain("resources/list")))
            await door.source.asked.wait()
            await client.delete()
            await door.source.cancelled.wait()
            response = await connection.receive()
            assert (response.status, response.body) == (200, b"")

    run(body())


@pytest.mark.parametrize(
    ("headers", "word"),
    [
        ({"MCP-Protocol-Version": LEGACY[0]}, "Mcp-Session-Id"),
        ({"MCP-Protocol-Version": "2024-11-05"}, "Mcp-Session-Id"),
        ({}, "Mcp-Session-Id"),
    ],
    ids=["older header", "still older", "nothing"],
)
@pytest.mark.parametrize("method", ["resources/list", "ping", "foo/bar"])
def test_a_request_without_its_session_is_400(headers: dict[str, str | None], word: str, method: str) -> None:
    """-32600 with a word about what is missing."""

    async def body() -> None:
        async with Door() as door:
            response = await door.ask(request(compact(plain(method)), headers))
            assert (response.status, response.code, response.message["id"]) == (400, -32600, 1)
            assert word in response.message["error"]["message"]

    run(body())


@pytest.mark.parametrize(
    ("version", "header", "status"),
    [
        ("2025-11-25", "2025-11-25", 200),
        ("2025-11-25", None, 200),
        ("2025-11-25", "2025-06-18", 400),
        ("2025-11-25", "2025-03-26", 400),
        ("2025-11-25", "1900-01-01", 400),
        ("2025-11-25", "", 400),
        ("2025-03-26", "2025-03-26", 200),
        ("2025-03-26", "2025-11-25", 400),
    ],
)
def test_the_version_header_must_be_the_sessions(version: str, header: str | None, status: int) -> None:
    """Absent it is that of the session; anything else is 400, on every method."""

    async def body() -> None:
        async with Door(ScriptedSource(PAGE)) as door:
            client = await began(door, version)
            headers = {"MCP-Protocol-Version": header}
            response = await client.post(plain("resources/list"), headers)
            assert response.status == status
            assert response.code == (None if status == 200 else -32600)
            assert (await client.delete(headers)).status == (204 if status == 200 else status)

    run(body())


def test_a_modern_request_with_a_stray_session_is_modern() -> None:
    """H34: it is answered as if the session were not there."""

    async def body() -> None:
        async with Door() as door:
            client = await began(door)
            response = await door.post(read(), [("Mcp-Session-Id", client.session), ("Last-Event-ID", "7")])
            assert response.message["result"]["resultType"] == "complete"
            assert response.header("Mcp-Session-Id") is None

    run(body())


# What is refused


@pytest.mark.parametrize(
    ("method", "params", "code"),
    [
        ("resources/subscribe", {}, -32602),
        ("resources/subscribe", {"uri": 1}, -32602),
        ("resources/unsubscribe", {}, -32602),
        ("subscriptions/listen", {"notifications": {}}, -32601),
        ("server/discover", {}, -32601),
        ("tools/list", {}, -32601),
        ("foo/bar", {}, -32601),
        ("resources/read", {}, -32602),
        ("resources/read", {"uri": 1}, -32602),
        ("resources/list", {"cursor": 1}, -32602),
    ],
)
def test_an_error_of_a_session_is_a_reply_of_status_200(method: str, params: Any, code: int) -> None:
    """With the id, and nothing asked."""

    async def body() -> None:
        async with Door() as door:
            response = await (await began(door)).ask(method, params, id="x")
            assert (response.status, response.code, response.message["id"]) == (200, code, "x")
            assert door.source.asked == []

    run(body())


FAILED = McpError(
    -32603, "Upstream docs cannot be reached.", data=b'{"upstream":"docs","reason":"unreachable"}'
)
FAILED.__cause__ = UpstreamFailure("docs", Reason.UNREACHABLE)
OVERLOADED = McpError(-32603, "Too many.", data=b'{"reason":"overloaded"}', status=503)


@pytest.mark.parametrize(
    ("method", "error", "code", "data", "word"),
    [
        (
            "resources/read",
            McpError(-32602, "No.", data=b'{"uri":"u"}'),
            -32002,
            {"uri": "u"},
            "client_error",
        ),
        (
            "resources/read",
            UpstreamError("docs", -32602, "No.", data=b'{"uri":"u"}', not_found=True),
            -32002,
            {"uri": "u"},
            "client_error",
        ),
        ("resources/list", McpError(-32602, "No cursor.", status=400), -32602, None, "client_error"),
        (
            "resources/read",
            UpstreamError("docs", 7001, "No.", data=b'{"k":1}'),
            7001,
            {"k": 1},
            "upstream_error",
        ),
        (
            "resources/read",
            UpstreamError("docs", -32021, "No.", status=400),
            -32603,
            {"upstream": "docs", "reason": "refused", "code": -32021},
            "client_error",
        ),
        (
            "resources/read",
            FAILED,
            -32603,
            {"upstream": "docs", "reason": "unreachable"},
            "upstream_error",
        ),
        ("resources/read", OVERLOADED, -32603, {"reason": "overloaded"}, "internal_error"),
    ],
    ids=["unknown prefix", "not found", "cursor", "own code", "capability", "failure", "overloaded"],
)
def test_H22_errors_in_the_codes_of_the_era(
    method: str, error: McpError, code: int, data: Any, word: str
) -> None:
    """Not found is -32002, no code of later revisions is told, and the status is 200."""

    async def body() -> None:
        async with Door(ScriptedSource(error)) as door:
            response = await (await began(door)).ask(method, {"uri": "u"} if "read" in method else {})
            assert (response.status, response.code) == (200, code)
            assert response.message["error"].get("data") == data
            assert door.told[-1]["status"] == word

    run(body())


def test_an_interim_answer_cannot_be_told() -> None:
    """-32603 with `input_required`, naming the upstream."""

    async def body() -> None:
        interim = Answer(b'"inputRequests":{},"requestState":"s"', HIT.hint, interim=True, served=HIT.served)
        async with Door(ScriptedSource(interim)) as door:
            response = await (await began(door)).read()
            assert (response.status, response.code) == (200, -32603)
            assert response.message["error"]["data"] == {"upstream": "docs", "reason": "input_required"}
            assert response.header("Cache-Status") is None

    run(body())


@pytest.mark.parametrize("fault", [RuntimeError("secret"), asyncio.CancelledError()], ids=repr)
def test_a_fault_inside_is_an_error_with_the_id(
    fault: BaseException, caplog: pytest.LogCaptureFixture
) -> None:
    """Status 200, -32603, nothing of the fault's text, one traceback; and the session goes on."""

    async def body() -> None:
        async def fall(query: Query, caller: Caller) -> Answer:  # noqa: ARG001 - a source's signature
            raise fault

        async with Door(ScriptedSource(fall)) as door:
            client = await began(door)
            response = await client.read(id=7)
            assert (response.status, response.code, response.message["id"]) == (200, -32603, 7)
            assert b"secret" not in response.body
            door.federator = ScriptedSource()
            assert (await client.read()).code is None

    run(body())
    assert len(caplog.records) == 1


# H23


def test_H23_sessions_do_not_share_ids() -> None:
    """Fifty sessions at once, all with id 1: each gets the answer to his own question."""

    async def body() -> None:
        together = asyncio.Barrier(50)

        async def echo(query: Query, caller: Caller) -> Answer:  # noqa: ARG001 - a source's signature
            await together.wait()
            return Answer(f'"contents":[{{"uri":"{query.uri}"}}]'.encode(), HIT.hint, count=1)

        async with Door(ScriptedSource(echo)) as door:
            clients = [await began(door) for _ in range(50)]
            asked = (client.read(f"docs+x://{n}") for n, client in enumerate(clients))
            for n, response in enumerate(await asyncio.gather(*asked)):
                assert response.message["id"] == 1
                assert response.message["result"]["contents"] == [{"uri": f"docs+x://{n}"}]

    run(body())


@pytest.mark.parametrize("text", ["0", '""', '"1"', "-5", "9007199254740993", '"\\u0041"'])
def test_H23_id_comes_back_as_it_was_written(text: str) -> None:
    """On a result and on an error."""

    async def body() -> None:
        async with Door() as door:
            client = await began(door)
            for method in ("resources/list", "foo/bar"):
                sent = compact(plain(method)).replace(b'"id":1', b'"id":' + text.encode())
                assert b'"id":' + text.encode() + b"," in (await client.post(sent)).body

    run(body())


# H35: batches, notifications, responses

READS = [plain("resources/read", {"uri": f"docs+x://{n}"}, id=n) for n in (1, 2)]


@pytest.mark.parametrize("version", ["2025-11-25", "2025-06-18"])
@pytest.mark.parametrize("sent", [[], READS, "str"], ids=["empty", "reads", "string"])
def test_H35_later_revisions_know_no_batch(version: str, sent: Any) -> None:
    """400 and -32600, and nothing is asked."""

    async def body() -> None:
        async with Door() as door:
            response = await (await began(door, version)).post(compact(sent))
            assert (response.status, response.code) == (400, -32600)
            assert door.source.asked == []

    run(body())


def test_H35_a_batch_is_answered_as_one_array() -> None:
    """In the order asked, errors among results, nothing for what wants no answer; each is counted alone."""

    async def body() -> None:
        async with Door() as door:
            client = await began(door, BATCHES)
            batch = [
                *READS,
                {"jsonrpc": "2.0", "method": "notifications/initialized"},
                plain("ping", id="p"),
                plain("foo/bar", id=3),
                {"jsonrpc": "2.0", "id": 9, "result": {}},
                {"jsonrpc": "2.0", "id": 4},
                plain("initialize", {"protocolVersion": BATCHES}, id=5),
                17,
            ]
            response = await client.post(b" " + compact(batch))
            assert response.status == 200
            replies = json.loads(response.body)
            assert [(one.get("id"), one.get("error", {}).get("code")) for one in replies] == [
                (1, None),
                (2, None),
                ("p", None),
                (3, -32601),
                (4, -32600),
                (5, -32601),
                (None, -32600),
            ]
            assert [query.uri for query in door.source.asked] == ["docs+x://1", "docs+x://2"]
            assert response.header("Mcp-Session-Id") is None
            assert door.counted['era="legacy",method="resources/read",status="ok"'] == 2
            assert len(door.told) == 1 + len(batch)

    run(body())


@pytest.mark.parametrize(
    "sent",
    [
        [{"jsonrpc": "2.0", "method": "notifications/initialized"}] * 2,
        [{"jsonrpc": "2.0", "id": 9, "result": {}}, {"jsonrpc": "2.0", "id": 8, "error": {"code": 1}}],
    ],
    ids=["notifications", "responses"],
)
def test_H35_a_batch_without_requests_gets_202(sent: Any) -> None:
    """And no body."""

    async def body() -> None:
        async with Door() as door:
            response = await (await began(door, BATCHES)).post(sent)
            assert (response.status, response.body) == (202, b"")

    run(body())


@pytest.mark.parametrize(
    ("sent", "code"),
    [
        (b"[]", -32600),
        (compact([plain("ping")] * (MAX_BATCH + 1)), -32600),
        (b'"str"', -32600),
        (b"[1,", -32700),
        (b"[" * 100_000, -32700),
        (b'[{"a":"\xff"}]', -32700),
    ],
    ids=["empty", "too many", "string", "cut", "deep", "not UTF-8"],
)
def test_H35_a_batch_that_is_none(sent: bytes, code: int) -> None:
    """400, and nothing is asked."""

    async def body() -> None:
        async with Door() as door:
            response = await (await began(door, BATCHES)).post(sent)
            assert (response.status, response.code) == (400, code)
            assert door.source.asked == []

    run(body())


def test_H35_the_largest_batch_is_answered() -> None:
    """The bound itself is allowed."""

    async def body() -> None:
        async with Door() as door:
            batch = [plain("ping", id=n) for n in range(MAX_BATCH)]
            response = await (await began(door, BATCHES)).post(batch)
            assert [one["id"] for one in json.loads(response.body)] == list(range(MAX_BATCH))

    run(body())


@pytest.mark.parametrize("version", LEGACY)
def test_H35_a_response_is_passed_over(version: str) -> None:
    """202, although we asked nothing; what is neither request nor response is 400."""

    async def body() -> None:
        async with Door() as door:
            client = await began(door, version)
            assert (await client.post({"jsonrpc": "2.0", "id": 9, "result": {}})).status == 202
            assert (await client.post({"jsonrpc": "2.0", "id": 9})).status == 400
            null = {"jsonrpc": "2.0", "method": "notifications/x", "id": None}
            assert (await client.post(null)).status == 400

    run(body())


# H38: leaving and calling off


def test_H38_a_client_that_leaves_has_not_cancelled() -> None:
    """The work goes on to its end, is told in the log once, and nothing of it is left."""

    async def body() -> None:
        go, asked, ended = asyncio.Event(), asyncio.Event(), asyncio.Event()

        async def slow(query: Query, caller: Caller) -> Answer:  # noqa: ARG001 - a source's signature
            asked.set()
            await go.wait()
            ended.set()
            return HIT

        async with Door(ScriptedSource(slow)) as door:
            client = await began(door)
            connection = await door.connect()
            await connection.send(client.sent(plain("resources/read", {"uri": "docs+x://1"})))
            await asked.wait()
            await connection.close()
            while len(door.told) < 2:
                await settle()
            assert door.told[-1]["status"] == "client_error"
            go.set()
            await ended.wait()

    run(body())


@pytest.mark.parametrize(
    ("called_off", "stopped"),
    [({"requestId": 1, "reason": "enough"}, True), ({"requestId": "1"}, False), ({}, False)],
    ids=["its id", "another type", "malformed"],
)
def test_H38_a_request_is_called_off_by_its_id(called_off: dict[str, Any], stopped: bool) -> None:
    """The source's work is cancelled, and the reply brings no response; anything else is passed over."""

    async def body() -> None:
        async with Door(HangingSource()) as door:
            client, other = await began(door), await began(door)
            connection = await door.connect()
            await connection.send(client.sent(plain("resources/read", {"uri": "docs+x://1"})))
            await door.source.asked.wait()
            # Another session has no say in it, whatever ids it uses.
            assert (await other.notify("notifications/cancelled", {"requestId": 1})).status == 202
            assert (await client.notify("notifications/cancelled", called_off)).status == 202
            if stopped:
                response = await connection.receive()
                assert (response.status, response.body) == (200, b"")
                assert response.header("Content-Type") == "text/event-stream"
            assert door.source.cancelled.is_set() is stopped

    run(body())


def test_H38_calling_off_one_of_a_batch_leaves_the_others() -> None:
    """Its place in the array stays out."""

    async def body() -> None:
        go, asked = asyncio.Event(), asyncio.Barrier(3)

        async def slow(query: Query, caller: Caller) -> Answer:  # noqa: ARG001 - a source's signature
            await asked.wait()
            await go.wait()
            return HIT

        async with Door(ScriptedSource(slow)) as door:
            client = await began(door, BATCHES)
            connection = await door.connect()
            await connection.send(client.sent(READS))
            await asked.wait()
            await client.notify("notifications/cancelled", {"requestId": 1})
            go.set()
            assert [one["id"] for one in json.loads((await connection.receive()).body)] == [2]

    run(body())
