import pytest

from mcp_federator.federation.partition import Credentials
from mcp_federator.model import ANYONE, Caller


def caller(**headers: str) -> Caller:
    return Caller(headers={name.replace("_", "-"): value for name, value in headers.items()})


def credentials(*forward: str, more: tuple[str, ...] = (), secret: bytes = b"secret") -> Credentials:
    return Credentials(secret, forward, more)


def test_by_default_nothing_is_forwarded_and_all_share() -> None:
    """Without `forward` there is one authorization context, whatever the caller brings."""
    rules = credentials()
    somebody = caller(authorization="Bearer a", cookie="x=1")
    assert rules.forwarded(somebody) == ()
    assert rules.partition(somebody) == b""
    assert rules.variant(somebody) == b""


@pytest.mark.parametrize("name", ["authorization", "cookie", "proxy-authorization", "x-api-key"])
def test_H24_a_credential_separates_private_entries_only(name: str) -> None:
    """Forwarded credentials make the partition and leave the variant alone."""
    rules = credentials(name)
    one, other = (Caller(headers={name: value}) for value in ("Bearer a", "Bearer b"))
    assert len(rules.partition(one)) == 32
    assert rules.partition(one) == rules.partition(Caller(headers={name: "Bearer a"}))
    assert len({rules.partition(who) for who in (one, other, ANYONE)}) == 3
    assert rules.variant(one) == b""


def test_whatever_is_forwarded_tells_requests_apart() -> None:
    """Credentials or not: what is sent is the same only where all of it is."""
    rules = credentials("authorization", "accept-language")
    one = caller(authorization="a", accept_language="de")
    others = [caller(authorization="b", accept_language="de"), caller(authorization="a"), ANYONE]
    assert len({rules.sent(who) for who in (one, *others)}) == 4
    assert rules.sent(one) == rules.sent(caller(authorization="a", accept_language="de", cookie="c"))
    assert credentials().sent(one) == b""


def test_any_other_forwarded_header_separates_every_entry() -> None:
    """A header that says nothing of who asks makes the variant and leaves the partition alone."""
    rules = credentials("accept-language")
    one, other = caller(accept_language="de"), caller(accept_language="fr")
    assert rules.partition(one) == b""
    assert len(rules.variant(one)) == 32
    assert len({rules.variant(who) for who in (one, other, ANYONE)}) == 3


def test_configured_names_are_credentials_too() -> None:
    """`credential_headers` adds to the usual names; case does not matter."""
    rules = credentials("X-Tenant-Token", "X-Locale", more=("x-tenant-TOKEN",))
    somebody = caller(x_tenant_token="t", x_locale="de")
    assert rules.partition(somebody) != rules.partition(caller(x_tenant_token="u", x_locale="de"))
    assert rules.partition(somebody) == rules.partition(caller(x_tenant_token="t", x_locale="fr"))
    assert rules.variant(somebody) == rules.variant(caller(x_tenant_token="u", x_locale="de"))
    assert rules.variant(somebody) != rules.variant(caller(x_tenant_token="t", x_locale="fr"))


def test_a_credential_that_is_not_forwarded_separates_nothing() -> None:
    """Only what goes upstream can change what comes back."""
    rules = credentials("x-locale", more=("x-tenant",))
    assert rules.partition(caller(x_tenant="a", authorization="b")) == b""


def test_only_configured_headers_go_upstream_in_configured_order() -> None:
    """`forwarded` gives lower-case names once each, and leaves absent ones out."""
    rules = credentials("X-B", "Authorization", "x-b", "X-A")
    somebody = caller(authorization="Bearer a", x_b="2", cookie="c")
    assert rules.forwarded(somebody) == (("x-b", "2"), ("authorization", "Bearer a"))


@pytest.mark.parametrize(
    ("one", "other"),
    [
        pytest.param({"cookie": ""}, {}, id="empty is not absent"),
        pytest.param({"cookie": "absent"}, {}, id="no value stands for absence"),
        pytest.param({"authorization": "a"}, {"cookie": "a"}, id="one name is not the other"),
        pytest.param(
            {"authorization": "a\ncookie:1:b", "cookie": "c"},
            {"authorization": "a", "cookie": "b\ncookie:1:c"},
            id="no value ends early",
        ),
    ],
)
def test_different_headers_are_different_partitions(one: dict[str, str], other: dict[str, str]) -> None:
    """The digest covers names, absence and lengths."""
    rules = credentials("authorization", "cookie")
    assert rules.partition(Caller(headers=one)) != rules.partition(Caller(headers=other))


def test_a_partition_is_not_a_variant() -> None:
    """Equal headers give unrelated digests for the two purposes, and under other secrets."""
    who, what = credentials("x", more=("x",)), credentials("x")
    somebody = caller(x="1")
    assert who.partition(somebody) != what.variant(somebody)
    assert who.partition(somebody) != credentials("x", more=("x",), secret=b"other").partition(somebody)


def test_the_order_of_the_configuration_does_not_matter() -> None:
    """A configuration with its names in another order keeps its entries."""
    somebody = caller(authorization="a", cookie="b", x="1", y="2")
    one, other = (
        credentials("authorization", "cookie", "x", "y"),
        credentials("y", "cookie", "x", "authorization"),
    )
    assert one.partition(somebody) == other.partition(somebody)
    assert one.variant(somebody) == other.variant(somebody)


def test_bytes_beyond_utf8_in_a_header_are_digested() -> None:
    """Header values of raw bytes arrive with surrogate escapes and differ from each other."""
    rules = credentials("cookie")
    assert rules.partition(caller(cookie="\udcff")) != rules.partition(caller(cookie="\udcfe"))
