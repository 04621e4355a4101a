"""Sources that answer from a script: small real implementations of the one verb."""

import asyncio
from collections.abc import Mapping

import msgspec

from mcp_federator.model import Answer, Caller, Hint, Method, Outcome, Query, Scope, Served, Tier

MINUTE = Hint(60_000, Scope.PUBLIC)

Key = str | None
Reply = Answer | Exception


def page(*items: str, then: str | None = None, hint: Hint = MINUTE) -> Answer:
    """A page of these items; what they are is nobody's business here."""
    return Answer(",".join(items).encode(), hint, next_cursor=then, count=len(items))


class Scripted:
    """A source that answers by cursor, or by URI, from a script, each after its delay in seconds."""

    def __init__(self, script: Mapping[Key, Reply], delays: Mapping[Key, float] | None = None) -> None:
        self.script = dict(script)
        self.delays = dict(delays or {})
        self.queries: list[Query] = []
        self.cancelled = 0

    @property
    def asked(self) -> list[Key]:
        return [query.uri if query.method is Method.READ else query.cursor for query in self.queries]

    async def fetch(self, query: Query, caller: Caller) -> Answer:  # noqa: ARG002 - the verb's shape
        self.queries.append(query)
        key = query.uri if query.method is Method.READ else query.cursor
        if self.delays.get(key):
            try:
                await asyncio.sleep(self.delays[key])
            except asyncio.CancelledError:
                self.cancelled += 1
                raise
        said = self.script[key]
        if isinstance(said, Exception):
            raise said
        return said


def same(found: Answer, copy: Answer) -> bool:
    """Whether two copies are one, but for their lives and how they were served."""
    aged = Hint(copy.hint.ttl_ms, found.hint.scope)
    return found.body is copy.body and msgspec.structs.replace(found, hint=aged, served=copy.served) == copy


class Kept(Scripted):
    """The same behind a cache: `peek` gives the copy with the life that is left of it."""

    def __init__(self, script: Mapping[Key, Reply], delays: Mapping[Key, float] | None = None) -> None:
        super().__init__(script, delays)
        self.copies: dict[tuple[Method, Key], tuple[float, Answer]] = {}
        self.peeks = 0

    def peek(self, query: Query, caller: Caller) -> Answer | None:  # noqa: ARG002 - the verb's shape
        at, copy = self.copies.get((query.method, query.cursor), (0.0, None))
        left = 0 if copy is None else copy.hint.ttl_ms - int(1000 * (asyncio.get_running_loop().time() - at))
        if copy is None or left <= 0:
            return None
        self.peeks += 1
        served = Served(Outcome.HIT, Tier.MEMORY, fresh_for=left // 1000)
        return msgspec.structs.replace(copy, hint=Hint(left, copy.hint.scope), served=served)

    def still(self, query: Query, caller: Caller, copy: Answer) -> int | None:
        peeks = self.peeks
        found = self.peek(query, caller)
        if found is None or not same(found, copy):
            self.peeks = peeks
            return None
        return found.hint.ttl_ms

    async def fetch(self, query: Query, caller: Caller) -> Answer:
        answer = await super().fetch(query, caller)
        self.copies[query.method, query.cursor] = (asyncio.get_running_loop().time(), answer)
        return answer


class Closed(Scripted):
    """A source whose flights are cancelled by its own side."""

    async def fetch(self, query: Query, caller: Caller) -> Answer:  # noqa: ARG002 - the verb's shape
        raise asyncio.CancelledError
