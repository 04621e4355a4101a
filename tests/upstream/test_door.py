import json
from typing import Any

import msgspec
import pytest

from mcp_federator.config import Duration, UpstreamCache
from mcp_federator.errors import Reason, UpstreamError, UpstreamFailure
from mcp_federator.federation.prefix import Mapping
from mcp_federator.model import Answer, Completion, Hint, Method, Query, Scope
from mcp_federator.protocol.jsonrpc import Reply, UnfitError, decode_reply
from mcp_federator.upstream.door import Door, Passed
from mcp_federator.upstream.hold import DEFAULT_HOLD
from mcp_federator.upstream.transport import Exchange
from tests.instruments.wire import contents, page
from tests.upstream.asking import items, members

READ = Query(Method.READ, uri="x://1")
LIST = Query(Method.LIST)
TEMPLATES = Query(Method.TEMPLATES)
COMPLETE = Query(Method.COMPLETE, uri="x://1", completion=Completion(b'{"name":"a","value":""}'))
NOTHING = Hint(5000, Scope.PUBLIC)
DAY_MS = 86_400_000


def door(**cache: Any) -> Door:
    return Door(Mapping("alpha"), UpstreamCache(**cache), 86_400.0)


def reply(**message: Any) -> Reply:
    return decode_reply(json.dumps({"jsonrpc": "2.0", "id": 1} | message).encode(), 1)


def passed(query: Query, result: Any, **cache: Any) -> Passed:
    raw = result if isinstance(result, bytes) else json.dumps(result).encode()
    exchange = Exchange(200, Reply(result=msgspec.Raw(raw)))
    return door(**cache).passed(query, exchange, lambda: NOTHING)


def answer(query: Query, result: dict[str, Any] | bytes, **cache: Any) -> Answer:
    return passed(query, result, **cache).answer


def error(query: Query, code: int, data: Any = None, *, status: int = 400) -> UpstreamError | UpstreamFailure:
    exchange = Exchange(
        status, reply(error={"code": code, "message": "no"} | ({"data": data} if data else {}))
    )
    with pytest.raises((UpstreamError, UpstreamFailure)) as caught:
        door().passed(query, exchange, lambda: NOTHING)
    assert isinstance(caught.value, UpstreamError | UpstreamFailure)
    return caught.value


def failure(query: Query, exchange: Exchange) -> UpstreamFailure:
    with pytest.raises(UpstreamFailure) as caught:
        door().passed(query, exchange, lambda: NOTHING)
    return caught.value


def test_a_read_comes_in_public_uris() -> None:
    """Contents are in public form; native URIs beside the one asked for are told."""
    found = {
        "contents": [{"uri": uri, "text": "see x://2"} for uri in ("x://1", "x://2", "x://2")],
        "x": True,
    }
    came = answer(READ, found | {"ttlMs": 1, "_meta": {"a/b": 1, "io.modelcontextprotocol/serverInfo": {}}})
    assert members(came) == {
        "contents": [{"uri": f"alpha+x://{n}", "text": "see x://2"} for n in (1, 2, 2)],
        "x": True,
    }
    assert (came.count, came.uris, came.meta) == (3, ("x://2",), b'"a/b":1')


def test_a_page_comes_in_public_uris() -> None:
    """Items are in public form, the cursor and the native URIs beside them."""
    came = passed(LIST, page("x://1", "x://2", cursor=""))
    assert [item["uri"] for item in items(came.answer)] == ["alpha+x://1", "alpha+x://2"]
    assert (came.uris, came.answer.next_cursor) == (("x://1", "x://2"), "")
    assert came.answer.hint == Hint(60_000, Scope.PUBLIC)


@pytest.mark.parametrize(
    ("ttl", "expected"),
    [
        pytest.param(0, 0, id="0"),
        pytest.param(-1, 0, id="-1"),
        pytest.param(60000.0, 60_000, id="integral-float"),
        pytest.param(0.4, 0, id="0.4"),
        pytest.param("60000", 0, id="string"),
        pytest.param(True, 0, id="true"),
        pytest.param(None, 0, id="null"),
        pytest.param(2**53 + 1, DAY_MS, id="2^53+1"),
        pytest.param(2**63 - 1, DAY_MS, id="2^63-1"),
        pytest.param(1e30, DAY_MS, id="1e30"),
    ],
)
@pytest.mark.parametrize(
    ("query", "result"), [(READ, contents("x://1")), (LIST, page())], ids=["read", "list"]
)
def test_H25_odd_ttls(query: Query, result: dict[str, Any], ttl: Any, expected: int) -> None:
    """No `ttlMs` fails an answer; what leaves is a whole number, not negative, at most `max_ttl`."""
    came = answer(query, result | {"ttlMs": ttl}, default_ttl=Duration(30))
    assert came.hint == Hint(expected, Scope.PUBLIC)
    assert isinstance(came.hint.ttl_ms, int)


@pytest.mark.parametrize(
    ("hints", "cache", "expected"),
    [
        pytest.param({}, {}, Hint(0, Scope.PRIVATE), id="none-at-all"),
        pytest.param({"ttlMs": 60_000}, {}, Hint(60_000, Scope.PRIVATE), id="no-scope"),
        pytest.param({"cacheScope": "PUBLIC", "ttlMs": 1}, {}, Hint(1, Scope.PRIVATE), id="other-case"),
        pytest.param({"cacheScope": None, "ttlMs": 1}, {}, Hint(1, Scope.PRIVATE), id="null-scope"),
        pytest.param({}, {"default_ttl": Duration(1.5)}, Hint(1500, Scope.PRIVATE), id="default-ttl"),
        pytest.param({}, {"default_scope": Scope.PUBLIC}, Hint(0, Scope.PUBLIC), id="default-scope"),
        pytest.param(
            {"cacheScope": "odd"},
            {"default_scope": Scope.PUBLIC},
            Hint(0, Scope.PRIVATE),
            id="odd-is-not-absent",
        ),
        pytest.param(
            {"cacheScope": "public"}, {"trust_public": False}, Hint(0, Scope.PRIVATE), id="public-not-trusted"
        ),
        pytest.param(
            {},
            {"default_scope": Scope.PUBLIC, "trust_public": False},
            Hint(0, Scope.PRIVATE),
            id="default-not-trusted",
        ),
        pytest.param({}, {"default_ttl": Duration(10**9)}, Hint(DAY_MS, Scope.PRIVATE), id="default-clamped"),
    ],
)
def test_H26_hints_that_are_missing_or_odd(
    hints: dict[str, Any], cache: dict[str, Any], expected: Hint
) -> None:
    """Absent hints are the configuration's; any scope that is not exactly `public` is private."""
    assert answer(READ, {"contents": []} | hints, **cache).hint == expected
    assert answer(LIST, {"resources": []} | hints, **cache).hint == expected


def test_a_completion_has_no_life() -> None:
    """Whatever hints come with it: it is no cacheable result."""
    came = answer(
        COMPLETE, b'{"completion":{"values":["a"]},"ttlMs":5,"cacheScope":"public","_meta":{"k":1}}'
    )
    assert (came.body, came.meta, came.hint) == (
        b'"completion":{"values":["a"]}',
        b'"k":1',
        Hint(0, Scope.PRIVATE),
    )


def test_H29_an_interim_answer_passes_as_it_came() -> None:
    """`input_required` keeps its members byte for byte and carries no hint that could be believed."""
    raw = (
        b'{"resultType":"input_required","inputRequests":{"a":{"n":1.10}},"requestState":"\\u0041","ttlMs":9}'
    )
    came = answer(READ, raw)
    assert came.interim
    assert came.body == b'"inputRequests":{"a":{"n":1.10}},"requestState":"\\u0041"'
    assert came.hint == Hint(0, Scope.PRIVATE)


@pytest.mark.parametrize(
    ("query", "result"),
    [
        pytest.param(READ, {"resultType": "task", "contents": []}, id="H29-unknown-type"),
        pytest.param(
            LIST, {"resultType": "input_required", "requestState": "s"}, id="list-that-requires-input"
        ),
        pytest.param(
            COMPLETE, {"resultType": "input_required", "requestState": "s"}, id="completion-requires-input"
        ),
        pytest.param(COMPLETE, {}, id="no-completion"),
        pytest.param(READ, [], id="no-object"),
        pytest.param(READ, {}, id="no-contents"),
        pytest.param(READ, {"contents": None}, id="null-contents"),
        pytest.param(READ, {"contents": {"uri": "x://1"}}, id="contents-no-list"),
        pytest.param(LIST, {"resources": {}}, id="resources-no-list"),
        pytest.param(LIST, {"resources": [], "nextCursor": 5}, id="cursor-no-string"),
    ],
)
def test_results_that_are_none(query: Query, result: Any) -> None:
    """What the schema does not know cannot be used."""
    with pytest.raises(UnfitError):
        passed(query, result)


@pytest.mark.parametrize(
    ("code", "query", "told", "not_found", "status"),
    [
        pytest.param(-32602, READ, -32602, True, 200, id="H22-modern-not-found"),
        pytest.param(-32002, READ, -32602, True, 200, id="H22-legacy-not-found"),
        pytest.param(-32602, LIST, -32602, False, 200, id="bad-cursor"),
        pytest.param(-32602, COMPLETE, -32602, False, 200, id="bad-argument"),
        pytest.param(-32002, COMPLETE, -32602, True, 200, id="H22-legacy-not-found-of-a-template"),
        pytest.param(-32601, COMPLETE, -32601, False, 200, id="no-such-method-after-all"),
        pytest.param(7001, READ, 7001, False, 200, id="H22-its-own"),
        pytest.param(-32603, READ, -32603, False, 200, id="internal"),
        pytest.param(-32601, READ, -32601, False, 200, id="no-such-method"),
        pytest.param(-32021, READ, -32021, False, 400, id="capability"),
    ],
)
def test_errors_that_are_answers(code: int, query: Query, told: int, not_found: bool, status: int) -> None:
    """They pass, with the code of our era and their URIs in public form."""
    found = error(query, code, {"uri": "x://1", "k": 1})
    assert isinstance(found, UpstreamError)
    assert (found.code, found.message, found.not_found, found.status) == (told, "no", not_found, status)
    assert json.loads(found.data or b"") == {"uri": "alpha+x://1", "k": 1}


@pytest.mark.parametrize("code", [-32050, -32042, -32020, -32022, -32000, -32019, -32768])
def test_H22_errors_that_must_not_leave(code: int) -> None:
    """A code that we must not say is a refusal, and the code is told beside it."""
    found = error(READ, code)
    assert isinstance(found, UpstreamFailure)
    assert (found.reason, found.code) == (Reason.REFUSED, code)
    assert (found.personal, found.stale_ok) == (True, False)


@pytest.mark.parametrize("query", [LIST, TEMPLATES], ids=["list", "templates"])
def test_H08_a_list_the_upstream_does_not_know_is_empty(query: Query) -> None:
    """-32601 to a list says that there is none, and fails nothing."""
    exchange = Exchange(404, reply(error={"code": -32601, "message": "no"}))
    assert door().passed(query, exchange, lambda: NOTHING) == Passed(Answer(b"", NOTHING))


@pytest.mark.parametrize(
    ("status", "reason", "personal", "stale_ok"),
    [
        pytest.param(401, Reason.REFUSED, True, False, id="H21-401"),
        pytest.param(403, Reason.REFUSED, True, False, id="H21-403"),
        pytest.param(404, Reason.REFUSED, True, False, id="404"),
        pytest.param(429, Reason.REFUSED, True, True, id="429"),
        pytest.param(500, Reason.BAD_REPLY, False, True, id="500"),
        pytest.param(503, Reason.BAD_REPLY, False, True, id="503"),
    ],
)
@pytest.mark.parametrize("with_body", [False, True], ids=["no-body", "with-body"])
def test_statuses(status: int, reason: Reason, personal: bool, stale_ok: bool, with_body: bool) -> None:
    """The status decides; except at other 4xx, the body has nothing to say."""
    body = reply(error={"code": 1, "message": "no"}) if with_body and status != 404 else None
    found = failure(READ, Exchange(status, body))
    assert (found.reason, found.personal, found.stale_ok) == (reason, personal, stale_ok)
    assert found.detail.startswith(f"HTTP {status}")
    assert found.retry_after == (DEFAULT_HOLD if status == 429 else None)


@pytest.mark.parametrize("status", [429, 503])
def test_how_long_to_wait_is_told(status: int) -> None:
    """`Retry-After` goes along with the failure."""
    assert failure(READ, Exchange(status, None, 7.0)).retry_after == 7.0


def test_a_result_with_a_status_that_says_failed_is_none() -> None:
    """A result with 400 is a bad reply."""
    found = failure(READ, Exchange(400, Reply(result=msgspec.Raw(b'{"contents":[]}'))))
    assert found.reason is Reason.BAD_REPLY
