import pytest

from mcp_federator.cache.redis_client import connect


@pytest.mark.parametrize(
    ("url", "said"),
    [
        ("", "expected redis://"),
        ("localhost:6379", "expected redis://"),
        ("http://localhost", "expected redis://"),
        ("redis://", "expected redis://"),
        ("redis+other://localhost", "expected redis://"),
        ("unix+sentinel:///x", "expected redis://"),
        ("redis://h:port", "expected redis://"),
        ("redis://h/cache", "DATABASE"),
        ("redis://h?retry=1", "unknown option 'retry'"),
        ("redis+sentinel://h:1", "SERVICE"),
        ("redis+sentinel://h:1/cache/x", "SERVICE"),
        ("redis+sentinel://h:1/a/1/b", "SERVICE"),
        ("redis+sentinel://h:x/cache", "HOST:PORT"),
        ("redis+cluster://h:1/2", "no database"),
        ("redis+cluster://h,", "HOST:PORT"),
        ("rediss://h?ssl_ca_certs=/nowhere", "certificates cannot be used: No such file or directory"),
        ("rediss+sentinel://h/s?ssl_ca_certs=/nowhere", "certificates cannot be used: No such file"),
        ("rediss://h?ssl_certfile=/etc/hostname", "certificates cannot be used: "),
        ("rediss://h?ssl_cert_reqs=x", "options of TLS"),
    ],
)
def test_a_url_that_cannot_be_is_refused_with_what_was_expected(url: str, said: str) -> None:
    """And without what it says, which may be a password."""
    secret = url.replace("://", "://user:hunter2@", 1)
    for each in (url, secret):
        with pytest.raises(ValueError, match=said) as caught:
            connect(each, 1)
        assert "hunter2" not in str(caught.value)


@pytest.mark.parametrize(
    ("url", "told"),
    [
        ("redis://u:p%40@h:1/2", {"host": "h", "port": 1, "db": 2, "username": "u", "password": "p@"}),
        ("rediss://h", {"host": "h"}),
        ("unix://u:p@/run/r.sock?db=3", {"path": "/run/r.sock", "db": 3, "password": "p"}),
        ("redis+sentinel://:p@a:1,[::1]:2/s/4?sentinel_password=q", {"db": 4, "password": "p"}),
    ],
)
def test_what_a_url_says_reaches_the_client(url: str, told: dict[str, object]) -> None:
    """Percent-encoded parts are decoded once."""
    client, _, _ = connect(url, 1)
    given = client.connection_pool.connection_kwargs  # type: ignore[union-attr]  # none is a cluster
    assert {name: given.get(name) for name in told} == told
