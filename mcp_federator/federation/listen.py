"""Listening, seen from both sides of the federator: whom a wish concerns, and whom a change.

A client names public URIs; each upstream is listened to for native ones.  A change of a resource is a change
of all that it is a part of, so it concerns whoever listens to one of these (schema,
`ResourceUpdatedNotificationParams`: "a sub-resource of the one that the client actually subscribed to").

Hazard: who listens is told of what he asked for and of nothing else.  Where a URI has more levels than are
looked up, the wanted ones are gone through instead.
"""

import re
from collections.abc import Callable, Collection, Iterable
from typing import Final, TypeAlias

MAX_LEVELS: Final = 64
"""Levels of a URI that are told apart where it is looked up by its beginnings."""

_LEVEL: Final = re.compile("[/?#]")
_LEVELS: Final = frozenset("/?#")

Spellings: TypeAlias = dict[str, tuple[str, ...]]
"""Native URI -> the public URIs that one listener named it by: its scheme may be written in either case."""


def routed(uris: Iterable[str], route: Callable[[str], tuple[str, str] | None]) -> dict[str, Spellings]:
    """What each upstream is to be listened to for; a URI that no upstream has the prefix of is left out."""
    found: dict[str, Spellings] = {}
    for uri in uris:
        way = route(uri)
        if way is not None:
            name, native = way
            spellings = found.setdefault(name, {})
            spellings[native] = (*spellings.get(native, ()), uri)
    return found


def reach(uri: str) -> set[str] | None:
    """What changes when `uri` does: it, and whatever it is a part of; None where that is too much to tell."""
    levels = [match.start() for match in _LEVEL.finditer(uri)]
    if len(levels) > MAX_LEVELS:
        return None
    # `a/b` is a part of `a` as well as of `a/`: servers write a folder either way.
    return {uri, *(uri[:end] for level in levels for end in (level, level + 1))}


def concerned(uri: str, wanted: Collection[str]) -> list[str]:
    """Those of the wanted URIs that a change of `uri` concerns."""
    reached = reach(uri)
    if reached is None:
        return [one for one in wanted if _is_part(uri, one)]
    return [one for one in reached if one in wanted]


def _is_part(uri: str, whole: str) -> bool:
    """Whether `uri` is `whole` or a part of it."""
    if not uri.startswith(whole):
        return False
    rest = uri[len(whole) : len(whole) + 1]
    return not rest or rest in _LEVELS or whole[-1:] in _LEVELS
