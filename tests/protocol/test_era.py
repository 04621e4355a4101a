"""Who speaks which era."""

import pytest

from mcp_federator.errors import McpError
from mcp_federator.model import Era, Method
from mcp_federator.protocol.era import is_doubtful, is_session_lost, of_post, of_probe
from mcp_federator.protocol.jsonrpc import ErrorObject, Reply, decode_reply, decode_request

MODERN_META = b'"params":{"_meta":{"io.modelcontextprotocol/protocolVersion":"%b"}}'


def post(rest: bytes = b"", method: bytes = b"resources/list") -> bytes:
    return b'{"jsonrpc":"2.0","id":"q","method":"%b"%b}' % (method, b"," + rest if rest else b"")


@pytest.mark.parametrize(
    ("version", "session", "body", "era"),
    [
        pytest.param("2026-07-28", None, post(MODERN_META % b"2026-07-28"), Era.MODERN, id="modern"),
        pytest.param(None, None, post(MODERN_META % b"2026-07-28"), Era.MODERN, id="meta-alone"),
        pytest.param("2026-07-28", None, post(), Era.MODERN, id="header-alone"),
        pytest.param("2027-01-01", None, post(), Era.MODERN, id="header-of-the-future"),
        pytest.param(
            "1900-01-01", None, post(MODERN_META % b"1900-01-01"), Era.MODERN, id="H34-unknown-version"
        ),
        pytest.param("2025-11-25", None, post(MODERN_META % b"2026-07-28"), Era.MODERN, id="contradiction"),
        pytest.param(
            "2026-07-28", "s", post(MODERN_META % b"2026-07-28"), Era.MODERN, id="H34-stray-session"
        ),
        pytest.param(
            "2026-07-28", None, post(method=b"notifications/cancelled"), Era.MODERN, id="H35-notification"
        ),
        pytest.param(None, None, post(method=b"initialize"), Era.LEGACY, id="H34-initialize"),
        pytest.param("2025-06-18", None, post(method=b"initialize"), Era.LEGACY, id="initialize-with-header"),
        pytest.param(
            "2026-07-28", None, post(method=b"initialize"), Era.LEGACY, id="initialize-modern-header"
        ),
        pytest.param(
            "2026-07-28",
            None,
            post(MODERN_META % b"2026-07-28", b"initialize"),
            Era.MODERN,
            id="initialize-modern-meta",
        ),
        pytest.param(None, "s", post(), Era.LEGACY, id="session"),
        pytest.param("2025-11-25", "s", post(), Era.LEGACY, id="older-header-and-session"),
        pytest.param("2025-03-26", None, post(), Era.LEGACY, id="older-header"),
        pytest.param("", None, post(), Era.LEGACY, id="empty-header"),
    ],
)
def test_H34_a_client_shows_its_era_by_how_it_opens(
    version: str | None, session: str | None, body: bytes, era: Era
) -> None:
    """Request metadata or a modern header, else a handshake, a session or an older header."""
    assert of_post(version, session, decode_request(body)) is era


def test_H34_a_request_that_shows_nothing_is_told_of_both_eras() -> None:
    """The message names what either would have sent."""
    with pytest.raises(McpError) as caught:
        of_post(None, None, decode_request(post()))
    error = caught.value
    assert (error.code, error.status, error.id) == (-32600, 400, b'"q"')
    for word in (
        "MCP-Protocol-Version",
        "io.modelcontextprotocol/protocolVersion",
        "initialize",
        "Mcp-Session-Id",
    ):
        assert word in error.message


def answer(code: int | None = None) -> Reply:
    member = b'"result":{}' if code is None else b'"error":{"code":%d,"message":"m"}' % code
    return decode_reply(b'{"jsonrpc":"2.0","id":1,%b}' % member, 1)


@pytest.mark.parametrize(
    ("status", "reply", "era"),
    [
        pytest.param(200, answer(), Era.MODERN, id="result"),
        pytest.param(400, answer(-32022), Era.MODERN, id="unsupported-version"),
        pytest.param(200, answer(-32022), Era.MODERN, id="unsupported-version-200"),
        pytest.param(400, answer(-32020), Era.MODERN, id="header-mismatch"),
        pytest.param(400, answer(-32021), Era.MODERN, id="missing-capability"),
        pytest.param(400, answer(-32600), Era.LEGACY, id="mcp-1.30-missing-session"),
        pytest.param(400, answer(-32000), Era.LEGACY, id="server-everything"),
        pytest.param(200, answer(-32601), Era.LEGACY, id="unknown-method"),
        pytest.param(404, answer(-32601), Era.LEGACY, id="unknown-method-404"),
        pytest.param(200, answer(-32602), Era.LEGACY, id="mcp-1.30-stdio"),
        pytest.param(406, answer(-32000), Era.LEGACY, id="other-status-with-error"),
        pytest.param(400, None, Era.LEGACY, id="400"),
        pytest.param(404, None, Era.LEGACY, id="404"),
        pytest.param(405, None, Era.LEGACY, id="405"),
        pytest.param(200, None, None, id="html"),
        pytest.param(202, None, None, id="202"),
        pytest.param(204, None, None, id="204"),
        pytest.param(307, None, None, id="redirect"),
        pytest.param(421, None, None, id="host-refused"),
        pytest.param(401, None, None, id="401"),
        pytest.param(401, answer(-32600), None, id="401-with-error"),
        pytest.param(403, None, None, id="403"),
        pytest.param(408, None, None, id="408"),
        pytest.param(429, answer(-32000), None, id="429"),
        pytest.param(500, answer(-32603), None, id="500"),
        pytest.param(502, None, None, id="502"),
        pytest.param(503, answer(-32022), None, id="503"),
        pytest.param(504, None, None, id="504"),
    ],
)
def test_an_upstream_shows_its_era_by_its_answer_to_the_probe(
    status: int, reply: Reply | None, era: Era | None
) -> None:
    """A recognised answer means modern, a refusal legacy; passing troubles decide nothing."""
    assert of_probe(status, reply) is era


def failed(code: int) -> Reply:
    return Reply(error=ErrorObject(code, "no"))


RESULT = decode_reply(b'{"jsonrpc":"2.0","id":1,"result":{}}', 1)


@pytest.mark.parametrize(
    ("status", "reply", "lost"),
    [
        pytest.param(404, None, True, id="404"),
        pytest.param(404, failed(-32600), True, id="python-sdk"),
        pytest.param(404, failed(-32001), True, id="typescript-sdk"),
        pytest.param(400, failed(-32000), True, id="server-everything"),
        pytest.param(404, failed(-32002), False, id="no-such-resource"),
        pytest.param(404, failed(-32602), False, id="no-such-resource-of-another-kind"),
        pytest.param(404, failed(-32601), False, id="no-such-method"),
        pytest.param(400, failed(-32600), False, id="another-complaint"),
        pytest.param(400, None, False, id="400"),
        pytest.param(405, None, False, id="405"),
        pytest.param(200, failed(-32000), False, id="an-error-with-200"),
        pytest.param(200, RESULT, False, id="result"),
        pytest.param(500, None, False, id="500"),
    ],
)
def test_H18_how_a_lost_session_is_told(status: int, reply: Reply | None, lost: bool) -> None:
    """404, or 400 with a code of no meaning; not where the body says that something else is missing."""
    assert is_session_lost(status, reply) is lost


@pytest.mark.parametrize(
    ("status", "reply", "of_modern", "of_legacy"),
    [
        pytest.param(200, RESULT, False, False, id="result"),
        pytest.param(400, None, True, True, id="400"),
        pytest.param(404, None, True, True, id="404"),
        pytest.param(405, None, True, True, id="405"),
        pytest.param(400, failed(-32600), True, True, id="missing-session"),
        pytest.param(400, failed(-32000), True, True, id="no-session"),
        pytest.param(404, failed(-32601), True, True, id="no-such-method"),
        pytest.param(400, failed(-32602), False, True, id="params"),
        pytest.param(200, failed(-32602), False, False, id="not-found"),
        pytest.param(404, failed(-32002), True, False, id="not-found-of-legacy"),
        pytest.param(400, failed(-32020), False, True, id="headers"),
        pytest.param(400, failed(-32021), False, True, id="capability"),
        pytest.param(400, failed(-32022), True, True, id="version"),
        pytest.param(200, failed(-32022), True, True, id="version-with-200"),
        pytest.param(200, failed(-32601), False, False, id="no-such-method-with-200"),
        pytest.param(401, None, False, False, id="401"),
        pytest.param(429, None, False, False, id="429"),
        pytest.param(500, None, False, False, id="500"),
    ],
)
def test_what_fits_an_era(status: int, reply: Reply | None, of_modern: bool, of_legacy: bool) -> None:
    """An answer to a read that a server of the era would not have given makes doubtful what it is."""
    assert is_doubtful(Era.MODERN, Method.READ, status, reply) is of_modern
    assert is_doubtful(Era.LEGACY, Method.READ, status, reply) is of_legacy


@pytest.mark.parametrize("method", [Method.LIST, Method.TEMPLATES])
def test_a_modern_server_may_lack_a_list(method: Method) -> None:
    """404 and -32601 are what the specification asks for then."""
    assert not is_doubtful(Era.MODERN, method, 404, failed(-32601))
