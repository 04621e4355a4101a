"""How a call to one upstream is put: the words of its era, our ids, and what goes along of the caller.

What may not come in: whether to ask, and what is answered.  The words themselves are `protocol`'s.

Hazard: a forwarded header is the caller's, of any bytes, and an exception that a library raises over one may
quote it.
"""

from itertools import count

import msgspec

from mcp_federator.config import Upstream
from mcp_federator.errors import Reason, UpstreamFailure
from mcp_federator.federation.partition import Credentials
from mcp_federator.model import Caller, Query, Wanted
from mcp_federator.protocol import legacy, modern
from mcp_federator.protocol.jsonrpc import encode_call
from mcp_federator.protocol.subscriptions import LISTEN
from mcp_federator.upstream.sessions import Session
from mcp_federator.upstream.transport import Call


class Dialect:
    """The calls to one upstream.

    Args:
        name: its configured name.
        settings: its part of the configuration.
        credentials: what of a caller goes along.
    """

    def __init__(self, name: str, settings: Upstream, credentials: Credentials) -> None:
        self._name = name
        self._credentials = credentials
        self._baggage = settings.baggage
        self._capabilities = msgspec.json.encode(settings.client_capabilities)
        self._ids = count(1)

    def modern(self, query: Query, caller: Caller) -> Call:
        """A query to a modern upstream; raises `UpstreamFailure` as `forwarded` does."""
        # A retry answers what was asked of this caller, with his capabilities.
        own = query.alone or query.retry is not None
        capabilities = caller.capabilities if own else self._capabilities
        params = modern.call_params(query, capabilities, caller.trace, baggage=self._baggage)
        headers = modern.call_headers(query, caller.trace, self._baggage) | self.forwarded(caller)
        number = next(self._ids)
        body = encode_call(number, query.method, params)
        return Call(number, query.method, body, headers, repeatable=query.retry is None)

    def legacy(self, query: Query, caller: Caller, session: Session) -> Call:
        """A query within a session of this caller's; raises `UpstreamFailure` as `forwarded` does."""
        headers = legacy.call_headers(session.version, session.id, caller.trace, baggage=self._baggage)
        number = next(self._ids)
        return Call(
            number,
            query.method,
            encode_call(number, query.method, legacy.call_params(query)),
            headers | self.forwarded(caller),
            legacy=True,
            incarnation=session.incarnation,
            context=self._credentials.partition(caller) or None,
        )

    def listen(self, caller: Caller, wanted: Wanted) -> Call:
        """A `subscriptions/listen` to a modern upstream; raises `UpstreamFailure` as `forwarded` does."""
        params, headers = modern.listen_call(wanted, self._capabilities)
        number = next(self._ids)
        return Call(number, LISTEN, encode_call(number, LISTEN, params), headers | self.forwarded(caller))

    def subscribing(self, method: str, uri: str, caller: Caller, session: Session) -> Call:
        """To be told of a resource from now on, or no more, within a session; raises likewise."""
        number = next(self._ids)
        return Call(
            number,
            method,
            encode_call(number, method, msgspec.json.encode({"uri": uri})),
            legacy.call_headers(session.version, session.id) | self.forwarded(caller),
            legacy=True,
            incarnation=session.incarnation,
            context=self._credentials.partition(caller) or None,
        )

    def initialize(self, caller: Caller) -> Call:
        """What opens a session; raises `UpstreamFailure` as `forwarded` does."""
        number = next(self._ids)
        params = legacy.encode_initialize(self._capabilities)
        return Call(
            number,
            legacy.INITIALIZE,
            encode_call(number, legacy.INITIALIZE, params),
            legacy.call_headers() | self.forwarded(caller),
            legacy=True,
        )

    def forwarded(self, caller: Caller) -> dict[str, str]:
        """The header fields of the caller that go along.

        Raises:
            UpstreamFailure: one of them is bytes beyond UTF-8, which came as surrogates and cannot be sent.
        """
        headers = dict(self._credentials.forwarded(caller))
        try:
            "".join(headers.values()).encode()
        except UnicodeEncodeError:
            raise UpstreamFailure(
                self._name,
                Reason.REFUSED,
                "a forwarded header is no text",
                personal=True,
                stale_ok=False,
            ) from None
        return headers
