"""An upstream reached over streamable HTTP (basic/transports/streamable-http, "Sending Messages").

One call is one POST; its reply is one JSON object or an event stream that carries it.  What may not come in:
what a reply means for resources, and whether the upstream should be asked at all.

Hazards:
- Whoever leaves early must close the connection: that is how the upstream learns of it ("Cancellation").
- Keep-alives and progress must not extend the wait: one deadline covers all of a call.
- A kept-alive connection may be dead already.  aiohttp repeats no POST; we do, once, on a connection of its
  own.
- aiohttp's exceptions hold the URL and our headers, which may be secrets: none of them leaves this file.
- Bytes are counted after decompression; aiohttp inflates piece by piece, so a bomb is seen while it goes off.
"""

import asyncio
import re
from contextlib import suppress
from datetime import UTC, datetime
from http import HTTPStatus
from typing import Final

import aiohttp
from aiohttp.http_exceptions import ContentEncodingError
from yarl import URL

from mcp_federator.config import Tls, Upstream
from mcp_federator.errors import ConfigError, Reason, UpstreamFailure
from mcp_federator.log import clean
from mcp_federator.protocol import sse
from mcp_federator.protocol.jsonrpc import Reply, decode_message, decode_reply
from mcp_federator.upstream.connecting import Attempt, Pools, proxy_for, tls_context
from mcp_federator.upstream.hold import retry_after
from mcp_federator.upstream.limits import FullError, Lease, TooLargeError
from mcp_federator.upstream.transport import Call, Exchange

MAX_REDIRECTS: Final = 3

_SAME_REQUEST: Final = frozenset({307, 308})
"""The redirects that keep method and body (RFC 9110, 15.4)."""

_SENDABLE: Final = re.compile(r"[!-~]*")
_REDIRECTS: Final = _SAME_REQUEST | {301, 302, 303}
_ENCODINGS: Final = "gzip, deflate"
"""Said outright: left to aiohttp it would depend on what else is installed."""

_LINGER: Final = 1.0
"""Seconds an event stream may take to end after the reply, so that its connection can be used again."""

_BROKEN: Final = (aiohttp.ServerDisconnectedError, aiohttp.ClientOSError)


class StreamableHttp:
    """The HTTP endpoint of one upstream.

    `address` is what may be shown of it: no path, no query, no user-info.

    Raises:
        ConfigError: the URL, the TLS files or the proxy cannot be used.
    """

    kind = "streamable_http"

    def __init__(self, name: str, settings: Upstream) -> None:
        self._name = name
        self._settings = settings
        try:
            self.address = str(URL(settings.url).origin())
            self._url = _as_written(settings.url)
        except ValueError as problem:
            raise ConfigError(f"upstreams.{name}.url", "expected an http:// or https:// URL") from problem
        self._proxy = proxy_for(name, self._url, settings.proxy)
        encrypted = "https" in {self._url.scheme, self._proxy and self._proxy.scheme}
        # To read the system's authorities takes 20 ms, in which the process does nothing else.
        self._tls = tls_context(name, settings.tls) if encrypted or settings.tls != Tls() else None
        self._headers = {"user-agent": "mcp-federator", "accept-encoding": _ENCODINGS}
        self._headers |= {name.lower(): value for name, value in settings.headers.items()}
        self._pools: Pools | None = None
        self._free = asyncio.Semaphore(settings.max_connections)
        self._lingering: set[asyncio.Task[None]] = set()

    async def start(self) -> None:
        """See `Transport.start`."""
        self._pools = Pools(self._settings, self._tls, self._proxy)

    async def close(self) -> None:
        """See `Transport.close`."""
        for task in self._lingering:
            task.cancel()
        await asyncio.gather(*self._lingering, return_exceptions=True)
        if self._pools is not None:
            pools, self._pools = self._pools, None
            await pools.close()

    async def exchange(self, call: Call, lease: Lease, deadline: float) -> Exchange:
        """See `Transport.exchange`.  Waiting for one of `max_connections` counts toward the deadline."""
        waiting = True
        try:
            async with asyncio.timeout_at(deadline):
                await self._free.acquire()
                waiting = False
                try:
                    return await self._exchange(call, lease)
                finally:
                    self._free.release()
        except aiohttp.ClientHttpProxyError as problem:
            raise self._failure(Reason.UNREACHABLE, f"the proxy answered {problem.status}") from None
        except (aiohttp.ClientConnectorError, aiohttp.ConnectionTimeoutError) as problem:
            raise self._failure(Reason.UNREACHABLE, f"no connection: {problem}") from None
        except (aiohttp.ClientConnectionError, aiohttp.ClientPayloadError) as problem:
            if isinstance(problem.__cause__, ContentEncodingError):
                raise self._failure(Reason.BAD_REPLY, "the body cannot be inflated") from None
            raise self._failure(Reason.UNREACHABLE, "the connection broke before an answer") from None
        except aiohttp.ClientError as problem:
            raise self._failure(Reason.BAD_REPLY, f"no HTTP response: {type(problem).__name__}") from None
        except TimeoutError:  # after aiohttp's own, which are both kinds
            if waiting:
                raise FullError(f"all {self._settings.max_connections} connections were in use") from None
            raise self._failure(Reason.TIMEOUT, "no answer in time") from None

    async def _exchange(self, call: Call, lease: Lease) -> Exchange:
        response = await self._send(call)
        try:
            reply = await self._reply(response, call.id, lease)
        except BaseException:
            response.close()
            raise
        if not response.content.at_eof():
            await self._linger(response)
        fields = response.headers
        wait = retry_after(fields.get("Retry-After"), fields.get("Date"), datetime.now(UTC))
        return Exchange(response.status, reply, wait, clean(fields.get("Cache-Status", "")))

    async def _send(self, call: Call) -> aiohttp.ClientResponse:
        """Send, follow redirects that stay here, and wait for the head of the response."""
        url = self._url
        for _ in range(MAX_REDIRECTS + 1):
            response = await self._post(url, call)
            if response.status not in _REDIRECTS:
                return response
            response.release()
            url = self._redirected(url, response)
        raise self._refusal(f"more than {MAX_REDIRECTS} redirects")

    def _redirected(self, url: URL, response: aiohttp.ClientResponse) -> URL:
        """Where a redirect leads.  Elsewhere is never followed: our headers may be secrets."""
        if response.status not in _SAME_REQUEST:
            raise self._refusal(f"a redirect ({response.status}) that does not keep the request")
        try:
            target = url.join(_as_written(response.headers["Location"]))
            if _origin(target) == _origin(url) and target.raw_user is None and target.raw_password is None:
                return target
        except (KeyError, ValueError):
            pass
        raise self._refusal(f"a redirect ({response.status}) to elsewhere")

    async def _post(self, url: URL, call: Call) -> aiohttp.ClientResponse:
        pools = self._pools
        if pools is None:
            raise self._failure(Reason.UNREACHABLE, "closed")
        headers = {**self._headers, **call.headers}
        attempt = Attempt()
        try:
            return await pools.post(url, call.body, headers, attempt)
        except aiohttp.ClientConnectorError:
            raise
        except _BROKEN:
            if not attempt.reused or not call.repeatable:
                raise
        return await pools.post(url, call.body, headers, attempt, kept=False)

    async def _reply(self, response: aiohttp.ClientResponse, number: int, lease: Lease) -> Reply | None:
        """The JSON-RPC response; None where the status says "failed" and the body does not say why."""
        failed = response.status >= HTTPStatus.BAD_REQUEST
        try:
            return await _read(response, number, lease)
        except (TooLargeError, aiohttp.ClientError):
            if not failed:
                raise
        except ValueError as problem:
            if not failed:
                raise self._failure(Reason.BAD_REPLY, str(problem)) from problem
        return None

    async def _linger(self, response: aiohttp.ClientResponse) -> None:
        """Let a response end in order after what counts in it, so that its connection is kept alive."""
        if self._free.locked():
            response.close()
            return
        await self._free.acquire()
        task = asyncio.get_running_loop().create_task(_end(response), name=f"end of stream {self._name}")
        self._lingering.add(task)

        def over(_: asyncio.Task[None]) -> None:
            self._lingering.discard(task)
            self._free.release()
            response.close()

        task.add_done_callback(over)

    def _failure(self, reason: Reason, detail: str) -> UpstreamFailure:
        return UpstreamFailure(self._name, reason, clean(detail))

    def _refusal(self, detail: str) -> UpstreamFailure:
        # Personal: some send to a sign-in page whom others answer with 401.
        return UpstreamFailure(self._name, Reason.REFUSED, clean(detail), personal=True, stale_ok=False)


def _as_written(text: str) -> URL:
    """A URL whose path and query stay as they are, where that can be sent; yarl would spell them anew."""
    return URL(text, encoded=_SENDABLE.fullmatch(text) is not None)


def _origin(url: URL) -> tuple[str, str, int | None]:
    return url.scheme, (url.host or "").lower(), url.port


async def _read(response: aiohttp.ClientResponse, number: int, lease: Lease) -> Reply:
    """The response to our call `number`; raises ValueError where what comes is something else."""
    match response.content_type:
        case "application/json":
            return decode_reply(await _whole(response, lease), number)
        case "text/event-stream":
            return await _from_stream(response, number, lease)
        case other:
            raise ValueError(f"HTTP {response.status} with content type {other}")


async def _whole(response: aiohttp.ClientResponse, lease: Lease) -> bytes:
    chunks = []
    while chunk := await response.content.readany():
        lease.take(len(chunk))
        chunks.append(chunk)
    return b"".join(chunks)


async def _from_stream(response: aiohttp.ClientResponse, number: int, lease: Lease) -> Reply:
    """The response among the messages of a stream; the others are notifications, which nobody waits for."""
    decoder = sse.Decoder(lease.limit)
    while chunk := await response.content.readany():
        lease.take(len(chunk))
        for event in decoder.feed(chunk):
            reply = decode_message(event.data, number) if event.event == "message" else None
            if reply is not None:
                return reply
    raise ValueError("the stream ended without an answer")


async def _end(response: aiohttp.ClientResponse) -> None:
    with suppress(TimeoutError, aiohttp.ClientError):
        async with asyncio.timeout(_LINGER):
            while await response.content.readany():
                pass
