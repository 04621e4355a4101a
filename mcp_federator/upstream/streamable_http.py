"""An upstream reached over streamable HTTP (basic/transports/streamable-http, "Sending Messages").

One call is one POST; its reply is one JSON object or an event stream that carries it.  What may not come in:
what a reply means for resources, and whether the upstream should be asked at all.

Hazards:
- Whoever leaves early must close the connection: that is how the upstream learns of it ("Cancellation").  In
  the legacy revisions a disconnect says nothing, and a message of its own is needed.
- A legacy server may hold its reply back until what it asks us on the stream was answered.
- What it says of changes may come on any of its streams, each time on one of them.
- Keep-alives and progress must not extend the wait: one deadline covers all of a call.
- A connection may be dead already when it is used.  aiohttp repeats no POST; we do, once, on a connection of
  its own.
- aiohttp's exceptions hold the URL and our headers, which may be secrets: none of them leaves this file.
- Bytes are counted after decompression; aiohttp inflates piece by piece, so a bomb is seen while it goes off.
"""

import asyncio
import os
import re
import ssl
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from datetime import UTC, datetime
from http import HTTPStatus
from math import inf
from typing import Final

import aiohttp
from aiohttp.http_exceptions import ContentEncodingError
from msgspec.structs import replace
from yarl import URL

from mcp_federator.config import Tls, Upstream
from mcp_federator.deadline import until
from mcp_federator.errors import ConfigError, Reason, UpstreamFailure
from mcp_federator.log import clean
from mcp_federator.protocol import legacy, sse
from mcp_federator.protocol.jsonrpc import Reply, UnfitError, decode_message
from mcp_federator.protocol.vocabulary import SESSION_HEADER
from mcp_federator.upstream.connecting import Pools, proxy_for, tls_context
from mcp_federator.upstream.hold import retry_after
from mcp_federator.upstream.limits import Budget, FullError, Lease, TooLargeError
from mcp_federator.upstream.replies import names_endpoint, read, to_end
from mcp_federator.upstream.transport import MAX_EVENT, Call, Changed, Exchange, StrangerError, unheard

MAX_REDIRECTS: Final = 3

_SAME_REQUEST: Final = frozenset({307, 308})
"""The redirects that keep method and body (RFC 9110, 15.4)."""

_SENDABLE: Final = re.compile(r"[!-~]*")
_REDIRECTS: Final = _SAME_REQUEST | {301, 302, 303}
_ENCODINGS: Final = "gzip, deflate"
"""Said outright: left to aiohttp it would depend on what else is installed."""

_NO_SUCH_ENDPOINT: Final = frozenset({400, 404, 405})

_PATIENCE: Final = 5.0
"""Seconds for what is sent beside a call: a cancellation, an answer to the server, a look for what it is."""

_BROKEN: Final = (aiohttp.ServerDisconnectedError, aiohttp.ClientOSError)


class StreamableHttp:
    """The HTTP endpoint of one upstream.

    `address` is what may be shown of it: no path, no query, no user-info.

    Raises:
        ConfigError: the URL, the TLS files or the proxy cannot be used.
    """

    kind = "streamable_http"
    incarnation = 0

    def __init__(self, name: str, settings: Upstream, changed: Changed = unheard) -> None:
        self._name = name
        self._changed = changed
        self._settings = settings
        try:
            url = settings.url or ""
            self.address = str(URL(url).origin())
            self._url = _as_written(url)
        except ValueError as problem:
            raise ConfigError(f"upstreams.{name}.url", "expected an http:// or https:// URL") from problem
        self._proxy = proxy_for(name, self._url, settings.proxy)
        encrypted = "https" in {self._url.scheme, self._proxy and self._proxy.scheme}
        # To read the system's authorities takes 20 ms, in which the process does nothing else.
        self._tls = tls_context(name, settings.tls) if encrypted or settings.tls != Tls() else None
        self._headers = {"user-agent": "mcp-federator", "accept-encoding": _ENCODINGS}
        self._headers |= {name.lower(): value for name, value in settings.headers.items()}
        self._answered = False
        self._pools: Pools | None = None
        self._free = asyncio.Semaphore(settings.max_connections)
        self._lingering: set[asyncio.Task[None]] = set()
        self._telling: set[asyncio.Task[None]] = set()

    async def start(self) -> None:
        """See `Transport.start`."""
        self._pools = Pools(self._settings, self._tls, self._proxy)

    async def close(self) -> None:
        """See `Transport.close`."""
        tasks = (*self._lingering, *self._telling)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        if self._pools is not None:
            pools, self._pools = self._pools, None
            await pools.close()

    async def exchange(self, call: Call, lease: Lease, deadline: float) -> Exchange:
        """See `Transport.exchange`.  Waiting for one of `max_connections` counts toward the deadline."""
        await self._take_connection(deadline)
        try:
            with self._named(), until(deadline):
                return await self._exchange(call, lease)
        finally:
            self._free.release()

    async def _take_connection(self, deadline: float) -> None:
        try:
            with until(deadline):
                await self._free.acquire()
        except TimeoutError:
            raise FullError(f"all {self._settings.max_connections} connections were in use") from None

    async def notify(self, body: bytes, headers: Mapping[str, str], deadline: float) -> None:
        """See `Transport.notify`.

        It waits for no free connection: those in use may be waiting for what this says.
        """
        await self._tell("POST", body, headers, deadline)

    async def end(self, headers: Mapping[str, str], deadline: float) -> None:
        """See `Transport.end`; servers may refuse it (2025-11-25, basic/transports, "Session Management")."""
        await self._tell("DELETE", None, headers, deadline)

    async def subscribe(self, call: Call, hear: Callable[[bytes], None]) -> Exchange:
        """See `Transport.subscribe`."""
        with self._named():
            async with asyncio.timeout(self._settings.timeout):
                response = await self._send("POST", call.body, call.headers)
            try:
                if response.status != HTTPStatus.OK or response.content_type != "text/event-stream":
                    return await self._no_stream(response, call)
                decoder = sse.Decoder(MAX_EVENT, max_lines=inf)
                while chunk := await response.content.readany():
                    for event in decoder.feed(chunk):
                        if event.event != "message":
                            continue
                        reply = decode_message(event.data, call.id)
                        if reply is not None:
                            return Exchange(response.status, reply)
                        hear(event.data)
                return Exchange(response.status, None)
            finally:
                response.close()

    async def _no_stream(self, response: aiohttp.ClientResponse, call: Call) -> Exchange:
        """What is said instead of a stream; it is short, or it is nothing."""
        with suppress(TooLargeError, FullError, ValueError, UpstreamFailure):
            async with asyncio.timeout(self._settings.timeout):
                with Budget(MAX_EVENT).lease(MAX_EVENT) as lease:
                    return Exchange(response.status, await self._reply(response, call, lease))
        # A promise of an answer, and none: as much as a method that is not there.
        failed = response.status >= HTTPStatus.BAD_REQUEST
        return Exchange(response.status if failed else HTTPStatus.METHOD_NOT_ALLOWED, None)

    def on_end(self, ended: Callable[[], None]) -> None:
        """See `Transport.on_end`."""

    async def listen(
        self,
        headers: Mapping[str, str],
        decoder: sse.Decoder,
        begins: Callable[[], None],
        context: bytes | None = None,
    ) -> int:
        """See `Transport.listen`.  It is none of `max_connections`, which are for calls."""
        with self._named():
            async with asyncio.timeout(self._settings.timeout):
                response = await self._send("GET", None, legacy.listen_headers(headers, decoder.id))
            try:
                if response.status != HTTPStatus.OK:
                    return response.status
                if response.content_type != "text/event-stream":
                    return HTTPStatus.METHOD_NOT_ALLOWED
                begins()
                while chunk := await response.content.readany():
                    for event in decoder.feed(chunk):
                        if event.event == "message":
                            await self._hear_all(event.data, headers, context)
                return response.status
            finally:
                response.close()

    async def _hear_all(self, data: bytes, headers: Mapping[str, str], context: bytes | None) -> None:
        with suppress(ValueError):  # what is no JSON says nothing
            for message in legacy.messages(data):
                await self._hear(message, headers, context)

    async def _hear(self, message: bytes, headers: Mapping[str, str], context: bytes | None) -> None:
        """Take what a legacy server says of its own accord; `headers` are those of its session."""
        answer = legacy.answer_request(message)
        if answer is not None:
            await self._say(answer, headers)
        elif (event := legacy.change_of(self._name, message)) is not None:
            self._changed(replace(event, context=context))

    async def _tell(self, verb: str, body: bytes | None, headers: Mapping[str, str], deadline: float) -> None:
        with self._named():
            async with asyncio.timeout_at(deadline):
                response = await self._send(verb, body, headers)
        response.release()

    @contextmanager
    def _named(self) -> Iterator[None]:
        """What aiohttp raises, in our words."""
        try:
            yield
        except (aiohttp.ClientError, TimeoutError) as problem:
            # aiohttp keeps it with the stream that broke; on the way it came lies all that was received.
            problem.__traceback__ = None
            raise self._failure(*self._in_words(problem)) from None

    def _in_words(self, problem: aiohttp.ClientError | TimeoutError) -> tuple[Reason, str]:
        """What is the matter; the first class that fits counts, for some are several."""
        reason = Reason.UNREACHABLE
        match problem:
            case aiohttp.ClientHttpProxyError():
                detail = f"the proxy answered {problem.status}"
            case aiohttp.ClientConnectorCertificateError():
                why = _why(problem.certificate_error)
                detail = f"its certificate is not trusted ({why}); see `tls.ca_file` and `tls.server_name`"
            case aiohttp.ClientConnectorSSLError():
                detail = f"no TLS ({_why(problem.os_error)}); is it an http:// URL?"
            case aiohttp.ClientConnectorError():
                detail = f"no connection ({_refused(problem.os_error)})"
            case aiohttp.ConnectionTimeoutError():
                detail = "no connection within `connect_timeout`"
            case _ if isinstance(problem.__cause__, ContentEncodingError):
                reason, detail = Reason.BAD_REPLY, "the body cannot be inflated"
            case aiohttp.ClientConnectionError() | aiohttp.ClientPayloadError():
                detail = f"the connection broke before an answer{self._perhaps_tls()}"
            case aiohttp.ClientError():
                kind = type(problem).__name__
                reason, detail = Reason.BAD_REPLY, f"no HTTP response: {kind}{self._perhaps_tls()}"
            case _:
                reason, detail = Reason.TIMEOUT, "no answer in time"
        return reason, detail

    def _perhaps_tls(self) -> str:
        return "" if self._answered or self._url.scheme == "https" else "; is it an https:// URL?"

    async def _exchange(self, call: Call, lease: Lease) -> Exchange:
        try:
            response = await self._send("POST", call.body, call.headers, repeatable=call.repeatable)
            try:
                reply = await self._reply(response, call, lease)
            except BaseException:
                response.close()
                raise
        except (asyncio.CancelledError, TooLargeError, FullError):
            self._tell_cancelled(call)
            raise
        if not response.content.at_eof():
            await self._linger(response)
        if call.method == legacy.INITIALIZE and response.status in _NO_SUCH_ENDPOINT:
            await self._check_older(call)
        fields = response.headers
        wait = retry_after(fields.get("Retry-After"), fields.get("Date"), datetime.now(UTC))
        status = clean(fields.get("Cache-Status", ""))
        return Exchange(response.status, reply, wait, status, fields.get(SESSION_HEADER))

    async def _check_older(self, call: Call) -> None:
        """Raise `StrangerError` where the server has the transport of 2024-11-05 instead.

        That one opens with a stream whose first event names an endpoint (2025-11-25, basic/transports,
        "Backwards Compatibility").
        """
        headers = {name: value for name, value in call.headers.items() if name != "Content-Type"}
        older = False
        with suppress(aiohttp.ClientError, TimeoutError, ValueError, UpstreamFailure):
            async with asyncio.timeout(_PATIENCE):
                response = await self._send("GET", None, headers | {"Accept": "text/event-stream"})
                try:
                    older = await names_endpoint(response)
                finally:
                    response.close()
        if older:
            detail = "its transport is HTTP+SSE (2024-11-05), which is not supported"
            raise StrangerError(self._name, Reason.REFUSED, detail, personal=True, stale_ok=False)

    def _tell_cancelled(self, call: Call) -> None:
        """Let a legacy server know that nobody waits any more (2025-11-25, basic/utilities/cancellation).

        Its `initialize` must not be cancelled.
        """
        if not call.legacy or call.method == legacy.INITIALIZE or self._pools is None:
            return
        task = asyncio.get_running_loop().create_task(
            self._say(legacy.cancelled(call.id), call.headers), name=f"cancellation {self._name}"
        )
        self._telling.add(task)
        task.add_done_callback(self._telling.discard)

    async def _say(self, body: bytes, headers: Mapping[str, str]) -> None:
        """Send a message about which nothing can be done when it does not arrive."""
        with suppress(UpstreamFailure):
            await self.notify(body, headers, asyncio.get_running_loop().time() + _PATIENCE)

    async def _send(
        self, verb: str, body: bytes | None, headers: Mapping[str, str], *, repeatable: bool = True
    ) -> aiohttp.ClientResponse:
        """Send, follow redirects that stay here, and wait for the head of the response."""
        url = self._url
        for _ in range(MAX_REDIRECTS + 1):
            response = await self._send_to(url, verb, body, headers, repeatable=repeatable)
            self._answered = True
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

    async def _send_to(
        self, url: URL, verb: str, body: bytes | None, headers: Mapping[str, str], *, repeatable: bool
    ) -> aiohttp.ClientResponse:
        pools = self._pools
        if pools is None:
            raise self._failure(Reason.UNREACHABLE, "closed")
        fields = {**self._headers, **headers}
        try:
            return await pools.send(verb, url, body, fields)
        except aiohttp.ClientConnectorError:
            raise
        except _BROKEN:
            if not repeatable:
                raise
        return await pools.send(verb, url, body, fields, kept=False)

    async def _reply(self, response: aiohttp.ClientResponse, call: Call, lease: Lease) -> Reply | None:
        """The JSON-RPC response; None where the status says "failed" and the body does not say why."""
        failed = response.status >= HTTPStatus.BAD_REQUEST
        try:
            return await read(
                response, call, lease, lambda message: self._hear(message, call.headers, call.context)
            )
        except (TooLargeError, UnfitError, aiohttp.ClientError):
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
        task = asyncio.get_running_loop().create_task(to_end(response), name=f"end of stream {self._name}")
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


def _why(problem: BaseException) -> str:
    """What OpenSSL has against a handshake, without the place in its sources."""
    if isinstance(problem, ssl.SSLCertVerificationError):
        return problem.verify_message
    return getattr(problem, "reason", None) or type(problem).__name__


def _refused(problem: OSError) -> str:
    """Why there is no connection, in the system's words; asyncio's and aiohttp's name what was tried."""
    number = problem.errno or 0
    # Those of the resolver are negative, and have texts of their own.
    why = os.strerror(number) if number > 0 else problem.strerror if number else None
    return (why or "no address answered").lower()


def _origin(url: URL) -> tuple[str, str, int | None]:
    return url.scheme, (url.host or "").lower(), url.port
