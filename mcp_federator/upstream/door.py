"""The upstream's door: what comes in becomes an answer in our words, or an error that says whose fault it is.

Results get public URIs and a hint that means something; errors pass the error table (design, section 5).
Pure: an exchange in, an answer or an exception out.

Hazards:
- The status is read before the body: with 401, 403, 429 or 5xx the body is no answer, whatever it says.
- Hints are the upstream's word, and it may say anything.  What leaves here is at most `max_ttl`, and public
  only where that was said or configured, and is trusted.
"""

from collections.abc import Callable
from http import HTTPStatus
from typing import Final

import msgspec

from mcp_federator.config import UpstreamCache
from mcp_federator.errors import Reason, UpstreamError, UpstreamFailure
from mcp_federator.federation import rewrite
from mcp_federator.federation.prefix import Mapping
from mcp_federator.model import Answer, Hint, Method, Query, Scope, Served
from mcp_federator.protocol.jsonrpc import ErrorObject, UnfitError
from mcp_federator.protocol.modern import Result, decode_result
from mcp_federator.protocol.vocabulary import Code, relay
from mcp_federator.upstream.hold import DEFAULT_HOLD
from mcp_federator.upstream.transport import Exchange

# Members of an enumeration are looked up slowly on Python 3.11, and this one with each answer.
_FAILED: Final = int(HTTPStatus.BAD_REQUEST)
_NOT_ALLOWED: Final = frozenset({HTTPStatus.UNAUTHORIZED, HTTPStatus.FORBIDDEN})
_LISTS: Final = frozenset({Method.LIST, Method.TEMPLATES})
_UNKEPT: Final = Hint(0, Scope.PRIVATE)


class Passed(msgspec.Struct, frozen=True):
    """An answer, the native URIs of a page's items, and how many items were left out."""

    answer: Answer
    uris: tuple[str, ...] = ()
    dropped: int = 0


class Door:
    """The door of one upstream.

    Args:
        mapping: its names.
        cache: its part of the configuration that speaks of hints.
        max_ttl: seconds that any answer may be kept.
    """

    def __init__(self, mapping: Mapping, cache: UpstreamCache, max_ttl: float) -> None:
        self._name = mapping.name
        self._mapping = mapping
        self._cache = cache
        self.adopt(max_ttl)

    def adopt(self, max_ttl: float) -> None:
        """Let hints promise no more than this from now on."""
        self._max_ttl_ms = int(max_ttl * 1000)

    def check(self, exchange: Exchange) -> None:
        """Pass an exchange whose status lets the body speak; raises `UpstreamFailure` for any other."""
        status = exchange.status
        if status < _FAILED:
            return
        if status >= HTTPStatus.INTERNAL_SERVER_ERROR:
            raise self._failure(Reason.BAD_REPLY, f"HTTP {status}", retry_after=exchange.retry_after)
        if status == HTTPStatus.TOO_MANY_REQUESTS:
            wait = DEFAULT_HOLD if exchange.retry_after is None else exchange.retry_after
            raise self._failure(Reason.REFUSED, f"HTTP {status}", personal=True, retry_after=wait)
        if status in _NOT_ALLOWED:
            raise self._barred(exchange, ": it wants credentials; ours go under `headers`")

    def passed(
        self,
        query: Query,
        exchange: Exchange,
        nothing: Callable[[], Hint],
        decode: Callable[[msgspec.Raw], Result] = decode_result,
    ) -> Passed:
        """What an upstream says to a query.

        Args:
            query: with native URI.
            exchange: what came.
            nothing: gives the hint of an empty list where the upstream does not know the method.
            decode: reads a result of the upstream's era; raises ValueError.

        Raises:
            UpstreamError: an error that is an answer.
            UpstreamFailure: no answer, or an error that must not leave this house.
            UnfitError: an answer, but not as the schema has it.
        """
        self.check(exchange)
        reply = exchange.reply
        if reply is None:
            raise self._barred(exchange)
        if reply.error is not None:
            if reply.error.code == Code.METHOD_NOT_FOUND and query.method in _LISTS:
                return self.empty(nothing())
            raise self.error(query, reply.error)
        if reply.result is None or exchange.status >= HTTPStatus.MULTIPLE_CHOICES:
            raise self._failure(Reason.BAD_REPLY, f"a result with HTTP {exchange.status}")
        try:
            return self._answer(query, decode(reply.result), Served(beyond=exchange.cache_status))
        except ValueError as problem:
            raise UnfitError(str(problem)) from problem

    def hint(self, ttl_ms: int | None = None, scope: Scope | None = None) -> Hint:
        """A hint as it may be believed (server/utilities/caching, "Cacheable Model"); None was not said."""
        scope = self._cache.default_scope if scope is None else scope
        if not self._cache.trust_public:
            scope = Scope.PRIVATE
        ttl_ms = int(self._cache.default_ttl * 1000) if ttl_ms is None else ttl_ms
        return self._clamped(Hint(ttl_ms, scope))

    def empty(self, hint: Hint) -> Passed:
        """The page of an upstream that has no such list."""
        return Passed(Answer(b"", self._clamped(hint)))

    def no_suggestions(self) -> Passed:
        """The completion of an upstream that has none."""
        return Passed(Answer(b'"completion":{"values":[],"hasMore":false}', _UNKEPT))

    def not_found(self, uri: str) -> UpstreamError:
        """What an upstream without resources would say to a read."""
        data = msgspec.json.encode({"uri": self._mapping.public(uri) or uri})
        return UpstreamError(
            self._name, Code.INVALID_PARAMS, "The upstream has no resources.", data=data, not_found=True
        )

    def error(self, query: Query, error: ErrorObject) -> UpstreamError | UpstreamFailure:
        """The error table: what the asker is told of an upstream's error."""
        # A completion knows the retired code too: what it refers to is not there.
        read = query.method is Method.READ or (
            query.method is Method.COMPLETE and error.code == Code.RESOURCE_NOT_FOUND_LEGACY
        )
        fate = relay(error.code, read=read)
        if fate in {"refuse", "probe"}:
            return self._failure(
                Reason.REFUSED, f"error {error.code}", personal=True, stale_ok=False, code=error.code
            )
        public = None if query.uri is None else self._mapping.public(query.uri)
        return UpstreamError(
            self._name,
            Code.INVALID_PARAMS if fate == "not_found" else error.code,
            error.message,
            data=rewrite.error_data(None if error.data is None else bytes(error.data), self._mapping, public),
            status=HTTPStatus.BAD_REQUEST if fate == "capability" else HTTPStatus.OK,
            not_found=fate == "not_found",
        )

    def _answer(self, query: Query, result: Result, served: Served) -> Passed:
        if result.interim:
            if query.method is not Method.READ:
                raise ValueError(f"an answer to {query.method} that requires input")
            # Its members are the protocol's own, and go back as they came (basic/patterns/mrtr).
            body = msgspec.json.encode(result.members)[1:-1]
            return Passed(Answer(body, _UNKEPT, meta=result.meta, interim=True, served=served))
        if query.method is Method.COMPLETE:
            body = rewrite.completion(result.members)
            return Passed(Answer(body, _UNKEPT, meta=result.meta, served=served))
        hint = self.hint(result.ttl_ms, result.scope)
        if query.method is Method.READ:
            contents = rewrite.contents(result.members, self._mapping, query.uri)
            others = tuple(uri for uri in dict.fromkeys(contents.uris) if uri != query.uri)
            answer = Answer(
                contents.body, hint, count=contents.count, meta=result.meta, served=served, uris=others
            )
            return Passed(answer, dropped=contents.dropped)
        page = rewrite.page(result.members, query.method, self._mapping)
        answer = Answer(
            page.items, hint, page.next_cursor, page.count, page.extra, result.meta, served=served
        )
        return Passed(answer, page.uris, page.dropped)

    def _clamped(self, hint: Hint) -> Hint:
        return hint if hint.ttl_ms <= self._max_ttl_ms else Hint(self._max_ttl_ms, hint.scope)

    def _barred(self, exchange: Exchange, hint: str = "") -> UpstreamFailure:
        return self._failure(
            Reason.REFUSED,
            f"HTTP {exchange.status}{hint}",
            personal=True,
            stale_ok=False,
            retry_after=exchange.retry_after,
        )

    def _failure(
        self,
        reason: Reason,
        detail: str,
        *,
        personal: bool = False,
        stale_ok: bool = True,
        code: int | None = None,
        retry_after: float | None = None,
    ) -> UpstreamFailure:
        return UpstreamFailure(
            self._name,
            reason,
            detail,
            personal=personal,
            stale_ok=stale_ok,
            code=code,
            retry_after=retry_after,
        )
