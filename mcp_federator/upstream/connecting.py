"""How an upstream's HTTP endpoint is reached: TLS, proxy, and the pools of connections.

What may not come in: messages.  Everything that aiohttp would do on its own account is switched off or set
here.

Hazards:
- aiohttp's `trust_env` also reads a netrc file and sends what it finds there.  It stays off; where the
  configuration says `proxy: env`, the environment is read here, once.
- A private key with a pass phrase would make OpenSSL ask for it on the terminal.
- aiohttp refuses header fields over 8,190 bytes unless told otherwise.
"""

import socket
import ssl
import sys
from collections.abc import Callable
from typing import Final, TypeVar
from urllib.request import getproxies_environment, proxy_bypass

import aiohttp
from yarl import URL

from mcp_federator.config import Tls, Upstream
from mcp_federator.errors import ConfigError

_Loaded = TypeVar("_Loaded")

_MAX_FIELD: Final = 64 << 10
_MAX_FIELDS: Final = 256

_KEEPALIVE: Final = {"TCP_KEEPIDLE": 60, "TCP_KEEPINTVL": 15, "TCP_KEEPCNT": 4}
"""Two minutes until a connection to a host that has gone is known to be broken."""

# Older interpreters leave TLS connections open that the other side has closed; newer ones warn when asked.
_CLEAN_UP_CLOSED: Final = sys.version_info < (3, 12, 8) or (3, 13, 0) <= sys.version_info < (3, 13, 1)


def _new_socket(address: aiohttp.AddrInfoType) -> socket.socket:
    family, kind, protocol, _, _ = address
    made = socket.socket(family, kind, protocol)
    # A stream may be silent for hours: only so it is learnt that nobody is there any more.
    made.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    for name, value in _KEEPALIVE.items():
        if hasattr(socket, name):
            made.setsockopt(socket.IPPROTO_TCP, getattr(socket, name), value)
    return made


class Pools:
    """The connections to one upstream: kept alive, or made for one request.

    Waiting for a free connection is not known here: whoever asks has counted before.  Needs a running loop.
    """

    def __init__(self, settings: Upstream, tls: ssl.SSLContext | None, proxy: URL | None) -> None:
        self._server_name = settings.tls.server_name
        timeout = aiohttp.ClientTimeout(total=None, connect=settings.connect_timeout)

        def session(*, force_close: bool) -> aiohttp.ClientSession:
            return aiohttp.ClientSession(
                connector=aiohttp.TCPConnector(
                    limit=0,
                    socket_factory=_new_socket,
                    ssl=True if tls is None else tls,
                    force_close=force_close,
                    enable_cleanup_closed=_CLEAN_UP_CLOSED,
                ),
                cookie_jar=aiohttp.DummyCookieJar(),
                proxy=proxy,
                timeout=timeout,
                max_line_size=_MAX_FIELD,
                max_field_size=_MAX_FIELD,
                max_headers=_MAX_FIELDS,
            )

        self._kept = session(force_close=False)
        self._single = session(force_close=True)

    async def send(
        self,
        verb: str,
        url: URL,
        body: bytes | None,
        headers: dict[str, str],
        *,
        kept: bool = True,
    ) -> aiohttp.ClientResponse:
        """Send a request, over a kept connection or over one of its own, and wait for the response's head."""
        session = self._kept if kept else self._single
        return await session.request(
            verb,
            url,
            data=body,
            headers=headers,
            allow_redirects=False,
            server_hostname=self._server_name,
        )

    async def close(self) -> None:
        """Close all connections."""
        await self._kept.close()
        await self._single.close()


def tls_context(upstream: str, tls: Tls) -> ssl.SSLContext:
    """The TLS settings of an upstream, its files read.

    `ca_file` replaces the system's certificate authorities.

    Raises:
        ConfigError: a file that cannot be read or holds something else.
    """
    context = _load(upstream, "ca_file", lambda: ssl.create_default_context(cafile=tls.ca_file))
    context.set_alpn_protocols(["http/1.1"])
    if not tls.verify:
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
    if (certificate := tls.cert_file) is not None:
        _load(upstream, "cert_file", lambda: context.load_cert_chain(certificate, tls.key_file, lambda: ""))
    return context


def _load(upstream: str, key: str, load: Callable[[], _Loaded]) -> _Loaded:
    try:
        return load()
    except (OSError, ValueError) as problem:
        raise ConfigError(f"upstreams.{upstream}.tls.{key}", f"cannot be used: {problem}") from problem


def proxy_for(upstream: str, url: URL, proxy: str | None) -> URL | None:
    """The proxy to go through: as configured, or for `env` as the environment's variables say.

    Raises:
        ConfigError: neither `http://` nor `https://`.
    """
    if proxy == "env":
        proxies = getproxies_environment()
        proxy = proxies.get(url.scheme, proxies.get("all"))
        if proxy is not None and proxy_bypass(f"{url.host}:{url.port}"):
            return None
    if proxy is None:
        return None
    found = URL(proxy)
    if found.scheme not in {"http", "https"} or not found.host:
        raise ConfigError(f"upstreams.{upstream}.proxy", "expected an http:// or https:// URL")
    return found
