"""What can be asked of a server: lists by pages, reads by rounds of input, completions.

What may not come in: connections; a reader asks whatever has the verb of the house, a server or a federator
in this process.

Hazards:
- Nothing is kept: each call asks.  Hints are told, to be used by whoever keeps answers.
- `list` is a method here, so inside the class the word does not mean the type.
- A server may never be done: walks and rounds end at a bound, with an error and not with half an answer.
"""

from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from inspect import isawaitable
from types import MappingProxyType
from typing import Any, Final, TypeAlias, TypeVar

import msgspec

from mcp_federator import model
from mcp_federator.client import results
from mcp_federator.client.listening import Changes
from mcp_federator.client.results import (
    COMPLETE,
    Completion,
    Content,
    InputRequest,
    Page,
    ReadResult,
    Resource,
)
from mcp_federator.client.results import ResourceTemplate as Template
from mcp_federator.errors import FederatorError, Reason, UpstreamFailure
from mcp_federator.hub import Hub
from mcp_federator.model import ANYONE, Answer, Caller, Method, Query, Retry, Source, Wanted

MAX_PAGES: Final = 1000
MAX_ITEMS: Final = 100_000
MAX_ROUNDS: Final = 8

FORMS: Final[Mapping[str, Any]] = MappingProxyType({"elicitation": {"form": {}}})
"""The capabilities of a client that can fill in forms (client/elicitation, "Capabilities")."""

SERVER: Final = "server"
"""What messages call the server."""

Handler: TypeAlias = Callable[[InputRequest], Mapping[str, Any] | Awaitable[Mapping[str, Any]]]
"""Gives the result of an input request, in the form its method wants; may be a coroutine function."""

NO_CONNECTION: Final = "there is no connection: use `async with`"
"""What is said to whoever asks outside of it."""

_T = TypeVar("_T")
_MEMBERS: Final = msgspec.json.Decoder(dict[str, msgspec.Raw])


class InputRequiredError(FederatorError):
    """`read` asked for something that wants input; `result` is what the server said."""

    def __init__(self, uri: str, result: ReadResult) -> None:
        super().__init__(f"{uri}: the server wants input first; read_with_input gives it")
        self.result = result


class TooManyRoundsError(FederatorError):
    """The server still wants input after as many rounds as it was allowed; `result` is its last word."""

    def __init__(self, uri: str, rounds: int, result: ReadResult) -> None:
        super().__init__(f"{uri}: the server still wants input after {rounds} rounds (max_rounds)")
        self.result = result


class ListTooLongError(FederatorError):
    """A list did not end within its bounds, or went in a circle; `items` is how many had been read."""

    def __init__(self, why: str, items: int) -> None:
        super().__init__(f"stopped after {items} items: {why}")
        self.items = items


class Reader:
    """Asks one source, and listens at its hub where it has one.

    Beside what each method says, all raise these.

    Raises:
        McpError: the answer is an error, with its `code`, `message` and `data`.
        UpstreamFailure: there was no answer; `reason` is one of five words.
    """

    def __init__(self, source: Source | None = None, hub: Hub | None = None) -> None:
        self._source = source
        self._hub = hub

    async def list(self) -> tuple[Resource, ...]:
        """The resources on the first page."""
        return (await self.list_page()).items

    async def list_page(self, cursor: str | None = None) -> Page[Resource]:
        """The page that begins at a cursor, with hints; the first one without a cursor."""
        return results.page(await self._fetch(Query(Method.LIST, cursor=cursor)), results.resource)

    async def list_all(
        self, *, max_pages: int = MAX_PAGES, max_items: int = MAX_ITEMS
    ) -> tuple[Resource, ...]:
        """The resources on all pages.

        Raises:
            ListTooLongError: see `pages`.
        """
        walk = self.pages(max_pages=max_pages, max_items=max_items)
        return tuple([item async for page in walk for item in page.items])

    def pages(
        self, *, max_pages: int = MAX_PAGES, max_items: int = MAX_ITEMS
    ) -> AsyncIterator[Page[Resource]]:
        """Page after page, as they come.

        Raises:
            ListTooLongError: after `max_pages` pages or `max_items` items the list goes on; or the server
                gave a cursor that it had given before.
        """
        return _walk(self.list_page, max_pages, max_items)

    async def list_templates(self) -> tuple[Template, ...]:
        """The resource templates on the first page."""
        return (await self.list_templates_result()).items

    async def list_templates_result(self, cursor: str | None = None) -> Page[Template]:
        """The page of resource templates that begins at a cursor, with hints."""
        return results.page(await self._fetch(Query(Method.TEMPLATES, cursor=cursor)), results.template)

    def template_pages(
        self, *, max_pages: int = MAX_PAGES, max_items: int = MAX_ITEMS
    ) -> AsyncIterator[Page[Template]]:
        """Page after page of resource templates; bounds as of `pages`."""
        return _walk(self.list_templates_result, max_pages, max_items)

    async def read(self, uri: str) -> tuple[Content, ...]:
        """The contents of a resource.

        Raises:
            InputRequiredError: the server wants input first.
        """
        result = await self.read_result(uri)
        if result.result_type != COMPLETE:
            raise InputRequiredError(uri, result)
        return result.contents

    async def read_result(self, uri: str) -> ReadResult:
        """The whole result of a read: its type, contents, hints and metadata."""
        return _read_result(await self._fetch(Query(Method.READ, uri)))

    async def read_with_input(
        self,
        uri: str,
        handler: Handler,
        max_rounds: int = MAX_ROUNDS,
        *,
        capabilities: Mapping[str, Any] = FORMS,
    ) -> ReadResult:
        """The complete result of a read, after the server was told what it wanted to know.

        Args:
            uri: of the resource.
            handler: is called with each input request, one after another; what it raises ends the read.
            max_rounds: how often the server may ask; one round may hold several requests.
            capabilities: what the handler can do, as client capabilities; a server asks for nothing else.

        Raises:
            TooManyRoundsError: the server wants yet more.
            TypeError: the handler gave no mapping, or one that cannot be written as JSON.
        """
        caller = Caller(capabilities=msgspec.json.encode(dict(capabilities)))
        query = Query(Method.READ, uri, alone=True)
        rounds = 0
        while (answer := await self._fetch(query, caller)).interim:
            result = _read_result(answer)
            if rounds == max_rounds:
                raise TooManyRoundsError(uri, rounds, result)
            rounds += 1
            query = msgspec.structs.replace(query, retry=await _answered(answer, result, handler))
        return _read_result(answer)

    async def complete(
        self, ref_uri: str, argument: str, value: str, context: Mapping[str, str] | None = None
    ) -> Completion:
        """What an argument of a resource template may be completed to; nothing where a server does not say.

        Args:
            ref_uri: the template, or a URI.
            argument: the name of its variable.
            value: what is there of it so far.
            context: other variables that are settled already, by name.
        """
        given = msgspec.json.encode({"name": argument, "value": value})
        known = None if context is None else msgspec.json.encode({"arguments": dict(context)})
        query = Query(Method.COMPLETE, ref_uri, completion=model.Completion(given, known))
        return results.completion(await self._fetch(query))

    def listen(self, *uris: str, lists: bool = False) -> Changes:
        """What changes from now on: these resources, and with `lists` what is listed at all."""
        if self._hub is None:
            raise RuntimeError(NO_CONNECTION)
        return Changes(self._hub, Wanted(lists, frozenset(uris)))

    async def _fetch(self, query: Query, caller: Caller = ANYONE) -> Answer:
        if self._source is None:
            raise RuntimeError(NO_CONNECTION)
        return await self._source.fetch(query, caller)


async def _answered(answer: Answer, result: ReadResult, handler: Handler) -> Retry:
    """What goes along with the next try; what the server did not send is not sent back."""
    members = _MEMBERS.decode(b"{%b}" % answer.body)
    given = {}
    for request in result.input_requests:
        made = handler(request)
        told: object = await made if isawaitable(made) else made
        if not isinstance(told, Mapping):
            kind = type(told).__name__
            raise TypeError(f"expected the handler to return a mapping for {request.method}, found {kind}")
        given[request.key] = dict(told)
    return Retry(
        input_responses=msgspec.json.encode(given) if "inputRequests" in members else None,
        request_state=bytes(members["requestState"]) if "requestState" in members else None,
    )


def _read_result(answer: Answer) -> ReadResult:
    try:
        return results.read_result(answer)
    except ValueError as problem:
        raise UpstreamFailure(SERVER, Reason.BAD_REPLY, str(problem)) from problem


async def _walk(
    turn: Callable[[str | None], Awaitable[Page[_T]]], max_pages: int, max_items: int
) -> AsyncIterator[Page[_T]]:
    seen: set[str | None] = {None}
    cursor: str | None = None
    items = 0
    while True:
        page = await turn(cursor)
        yield page
        items += len(page.items)
        cursor = page.next_cursor
        if cursor is None:
            return
        if cursor in seen:
            raise ListTooLongError("the server gave a cursor that it had given before", items)
        if len(seen) >= max_pages or items >= max_items:
            raise ListTooLongError("the list goes on (max_pages, max_items)", items)
        seen.add(cursor)
