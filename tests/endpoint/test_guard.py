import pytest
from hypothesis import given
from hypothesis import strategies as st

from mcp_federator.endpoint import guard
from mcp_federator.errors import ConfigError

LOOPBACK_ORIGINS = [
    "http://localhost",
    "http://localhost:6274",
    "https://localhost:443",
    "http://LocalHost:80",
    "http://127.0.0.1:3000",
    "http://127.9.9.9",
    "http://[::1]:8080",
]

OTHER_ORIGINS = [
    "http://evil.test",
    "null",
    "",
    "http://localhost.evil.test",
    "http://evil.test/http://localhost",
    "http://localhost.",
    "http://localhost:80:80",
    "http://localhost:",
    "http://localhost/",
    "http://user@localhost",
    "http://localhost@evil.test",
    "http://127.0.0.1.evil.test",
    "http://2130706433",
    "http://[::1",
    "http://192.168.0.1",
    "http://0.0.0.0",
    "file://localhost",
    "//localhost",
    "http://localhost, http://evil.test",
    "http://localhost\n",
    "http://l\u043ecalhost",
    "http://localhost\udcff",
]


@pytest.mark.parametrize("origin", LOOPBACK_ORIGINS)
@pytest.mark.parametrize("bound_to", ["127.0.0.1", "localhost", "::1"])
def test_H36_loopback_origin_is_allowed_when_bound_to_loopback(origin: str, bound_to: str) -> None:
    """A page served from this machine may ask a listener that only this machine reaches."""
    assert guard.Origins((), bound_to).allow(origin)


@pytest.mark.parametrize("origin", LOOPBACK_ORIGINS)
@pytest.mark.parametrize("bound_to", ["0.0.0.0", "::", "192.168.0.1", "federator.example"])
def test_H36_loopback_origin_is_not_allowed_when_bound_beyond(origin: str, bound_to: str) -> None:
    """A listener that others reach grants their loopback nothing."""
    assert not guard.Origins((), bound_to).allow(origin)


@pytest.mark.parametrize("origin", OTHER_ORIGINS)
def test_H36_origin_is_not_allowed(origin: str) -> None:
    """What only looks like loopback, or like an allowed origin, is neither."""
    assert not guard.Origins(["https://app.example"], "127.0.0.1").allow(origin)


@pytest.mark.parametrize(
    ("allowed", "origin", "verdict"),
    [
        ("https://app.example", "https://app.example", True),
        ("https://app.example", "https://app.example:443", True),
        ("https://app.example:443", "https://app.example", True),
        ("http://app.example:80", "http://app.example", True),
        ("https://App.Example", "https://app.example", True),
        ("https://app.example:8443", "https://app.example:8443", True),
        ("vscode-webview://1a2b", "vscode-webview://1a2b", True),
        ("https://app.example", "http://app.example", False),
        ("https://app.example", "https://app.example:80", False),
        ("https://app.example", "https://app.example.evil.test", False),
        ("https://app.example", "https://evil-app.example", False),
        ("https://app.example", "https://sub.app.example", False),
        ("https://app.example:8443", "https://app.example", False),
    ],
)
def test_H36_default_port_counts_the_same_written_out_or_not(
    allowed: str, origin: str, verdict: bool
) -> None:
    """An origin is scheme, host and port; 80 and 443 are the ports of http and https."""
    assert guard.Origins([allowed], "0.0.0.0").allow(origin) is verdict


@pytest.mark.parametrize(
    "text", ["*", "app.example", "https://app.example/", "https://", "null", "https://a b"]
)
def test_allowed_origin_that_is_none_is_refused(text: str) -> None:
    """A mistyped origin would never match; the message names its place."""
    with pytest.raises(ConfigError, match=r"server\.allowed_origins\[1\]: expected scheme://host"):
        guard.Origins(["https://app.example", text], "127.0.0.1")


@pytest.mark.parametrize(
    ("host", "verdict"),
    [
        ("127.0.0.1:8081", True),
        ("10.1.2.3", True),
        ("[fe80::1]:8081", True),
        ("localhost:8081", True),
        ("LOCALHOST", True),
        ("metrics.internal:8081", True),
        ("metrics.internal.", True),
        ("other.internal:9090", True),
        ("evil.test", False),
        ("localhost.evil.test", False),
        ("127.0.0.1.evil.test", False),
        ("evil.test:127.0.0.1", False),
        ("", False),
        ("a b", False),
        ("[::1", False),
    ],
)
def test_H36_admin_host_is_an_address_or_a_configured_name(host: str, verdict: bool) -> None:
    """No page can reach the admin listener under a name that its author made point here."""
    assert guard.Hosts(["metrics.internal", "Other.Internal:8081"], "127.0.0.1").allow(host) is verdict


def test_admin_host_localhost_needs_a_loopback_bind() -> None:
    """`localhost` names this machine only where the listener is this machine's."""
    assert not guard.Hosts([], "0.0.0.0").allow("localhost:8081")


@pytest.mark.parametrize(
    ("value", "verdict"),
    [
        ("application/json", True),
        ("Application/JSON; charset=UTF-8", True),
        ('application/json;charset="utf-8"', True),
        ("application/json ; profile=x", True),
        ("application/json; charset=iso-8859-1", False),
        ("application/json; charset=utf-16", False),
        ("application/jsonp", False),
        ("application/json, text/plain", False),
        ("text/plain", False),
        ("text/plain; application/json", False),
        ("application/x-www-form-urlencoded", False),
        ("", False),
    ],
)
def test_content_type_is_json(value: str, verdict: bool) -> None:
    """A body is JSON in UTF-8, whatever else its parameters say."""
    assert guard.is_json(value) is verdict


@pytest.mark.parametrize(
    ("value", "verdict"),
    [
        ("application/json, text/event-stream", True),
        ("*/*", True),
        ("", True),
        ("application/json", True),
        ("text/event-stream", True),
        ("Text/*;q=0.1", True),
        ("text/html, application/*; q=0.5", True),
        ("*/*, application/json;q=0", True),
        ("application/json;q=0, text/event-stream;q=0, */*", False),
        ("text/html", False),
        ("*/*;q=0", False),
        ("application/json;q=0.000", False),
        ("application/xml, image/*", False),
        ("application/json;q=x", True),
    ],
)
def test_accept_allows_json_or_a_stream(value: str, verdict: bool) -> None:
    """The most specific range decides about each of our two types; one of them is enough."""
    assert guard.accepts(value) is verdict


@pytest.mark.parametrize(
    ("value", "verdict"),
    [
        ("no-cache", True),
        ("max-age=0, No-Cache", True),
        ("no-store", False),
        ("x-no-cache", False),
        ("", False),
    ],
)
def test_cache_control_asks_for_a_refresh(value: str, verdict: bool) -> None:
    """`no-cache` and nothing else asks for a copy from upstream."""
    assert guard.asks_refresh(value) is verdict


@pytest.mark.parametrize(
    ("names", "expected"),
    [
        (["Host", "Accept", "Accept"], guard.Fields()),
        (["Origin", "origin"], guard.Fields(origins=2)),
        (["Authorization", "authorization"], guard.Fields(repeated="authorization")),
        (["Cookie", "Host", "COOKIE"], guard.Fields(repeated="cookie")),
        (["Mcp-Name", "mcp-name"], guard.Fields(repeated="mcp-name")),
        (["MCP-Protocol-Version", "Mcp-Protocol-Version"], guard.Fields(repeated="mcp-protocol-version")),
        (["X-Tenant-Key", "x-tenant-key"], guard.Fields(repeated="x-tenant-key")),
        (["X-Team", "x-team", "Host"], guard.Fields(forwarded=("x-team",))),
        (["Content-Encoding"], guard.Fields(unusual=True)),
        (["Cache-Control", "Via"], guard.Fields(unusual=True, relayed=True)),
        (["X-Forwarded-For"], guard.Fields(relayed=True)),
    ],
    ids=lambda value: "-".join(value) if isinstance(value, list) else "",
)
def test_names_of_fields_say(names: list[str], expected: guard.Fields) -> None:
    """Names are read without regard to case; credentials and MCP's own fields stand once."""
    reader = guard.FieldNames(frozenset({"x-team"}), frozenset({"x-tenant-key"}))
    assert reader.read("\n".join(names).encode()) == expected


def test_memo_stays_small() -> None:
    """Texts that never come again, or are very long, do not make the memo grow."""
    memo: guard.Memo[str, int] = guard.Memo(len)
    for number in range(10_000):
        assert memo[f"http://{number}.test"] == len(f"http://{number}.test")
        assert len(memo) <= 512
    memo.clear()
    assert memo["x" * 100_000] == 100_000
    assert len(memo) == 0


def test_memo_judges_a_text_once() -> None:
    """A verdict is remembered."""
    asked: list[str] = []

    def judge(text: str) -> bool:
        asked.append(text)
        return True

    memo = guard.Memo(judge)
    assert memo["a"]
    assert memo["a"]
    assert asked == ["a"]


@given(text=st.text() | st.text(alphabet='htps:/[]localhost.127.0.1;q=*,/" '))
def test_every_text_gets_a_verdict(text: str) -> None:
    """No value of a field makes a check fail; what is allowed as an Origin is plain enough to be repeated."""
    assert isinstance(guard.is_json(text), bool)
    assert isinstance(guard.accepts(text), bool)
    assert isinstance(guard.asks_refresh(text), bool)
    assert isinstance(guard.sendable(text), bool)
    assert isinstance(guard.Hosts([], "localhost").allow(text), bool)
    if guard.Origins([], "localhost").allow(text):
        assert text.isascii()
        assert text.isprintable()
        assert " " not in text


@given(
    names=st.lists(st.sampled_from(["Origin", "origin", "Cookie", "COOKIE", "X-Team", "Host"]), max_size=6)
)
def test_no_repetition_is_overlooked(names: list[str]) -> None:
    """A credential that stands twice is found in whatever order and case."""
    fields = guard.FieldNames(frozenset({"x-team"}), frozenset()).read("\n".join(names).encode())
    lower = [name.lower() for name in names]
    assert (fields.repeated == "cookie") is (lower.count("cookie") > 1)
    assert fields.origins == lower.count("origin")
    assert fields.forwarded == (("x-team",) if "x-team" in lower else ())


@pytest.mark.parametrize(
    ("accept", "allowed"),
    [
        ("text/event-stream", True),
        ("application/json, text/event-stream", True),
        ("text/*;q=0.1", True),
        ("*/*", True),
        ("", True),
        ("application/json", False),
        ("*/*, text/event-stream;q=0", False),
    ],
)
def test_accept_of_a_stream(accept: str, allowed: bool) -> None:
    """Where only events can come, JSON alone is not enough."""
    assert guard.accepts_events(accept) is allowed
