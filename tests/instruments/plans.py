"""What tests of the plan of a page share: upstreams as a plan knows them, pages, and a run of its rounds."""

from collections.abc import Callable
from dataclasses import dataclass

from mcp_federator.errors import Reason, UpstreamFailure
from mcp_federator.federation.merge import (
    Ask,
    ListScope,
    Merged,
    Plan,
)
from mcp_federator.federation.scopes import ListScopes
from mcp_federator.model import Answer, Hint, Scope, Served

PUBLIC, PRIVATE = Scope.PUBLIC, Scope.PRIVATE
NOW = 1000.0
FETCHED = Served()


@dataclass(frozen=True)
class Upstream:
    """What a plan knows of an upstream."""

    name: str
    identity: bytes = b"0123456789"
    required: bool = False
    list_scope: ListScope = "auto"


def named(*names: str) -> dict[str, Upstream]:
    return {name: Upstream(name) for name in names}


def page(
    *items: str, then: str | None = None, ttl: int = 1000, scope: Scope = PUBLIC, served: Served = FETCHED
) -> Answer:
    body = ",".join(items).encode()
    return Answer(body, Hint(ttl, scope), next_cursor=then, count=len(items), served=served)


def scopes() -> ListScopes:
    return ListScopes(max_ttl=86400)


def down(name: str) -> UpstreamFailure:
    return UpstreamFailure(name, Reason.UNREACHABLE)


def items(merged: Merged) -> list[str]:
    return [item for part in merged.parts if part.count for item in part.body.decode().split(",")]


def ask_all(plan: Plan, reply: Callable[[Ask], Answer | UpstreamFailure | None]) -> list[list[str]]:
    """Run the plan; None is a page that comes too late.  Who was asked in each round comes back."""
    rounds = []
    while asks := plan.asks():
        rounds.append([ask.upstream for ask in asks])
        for ask in asks:
            match reply(ask):
                case None:
                    plan.late(ask)
                case Answer() as answer:
                    plan.answered(ask, answer)
                case failure:
                    plan.failed(ask, failure)
    return rounds
