"""RFC 6570 backwards: which values gave this URI?

A template becomes an automaton that reads one character at a time.  From the end to the beginning is found
which of its places can still reach the end; then, from the beginning, each character is given to the first
place that can.  So no choice is ever taken back: the time is linear in the URI's length, whatever it holds.

Not every expansion can be told from another.  Where several values give the same URI,

- a variable ends as soon as the rest fits: `{a}-{b}` splits `x-y-z` into `x` and `y-z`, `{+path}{?ref}` ends
  the path at the first `?ref=`;
- nothing is the empty text where a variable without operator or with `+` stands first in its expression, and
  otherwise an undefined one; in `{x,y}`, `{/x,y}`, `{.x,y}` and `{#x,y}` the undefined ones come last;
- with `*` a value is a list or a mapping, never a text; `?x=1` of `{?x*}` is a list;
- without `*` a comma that was not encoded makes a list, also of a mapping, and a list of one is a text; with
  `+` and `#`, where commas are never encoded, it is a text;
- with `+` and `#`, an escape such as `%41` stands for its character;
- of several variables with `*` in a row each but the last takes one item, and behind `;`, `?` and `&` all
  items that bear its own name.

Whatever a template expands to matches it, where no variable stands twice and one at most has `*`.  Elsewhere
it may be that nothing matches: the texts of a variable that stands twice are split each by itself, and may
come out different (`{x,x}`), and a name may be there twice in what becomes a mapping (`{x*,y*}`).

What has no reversal at all is a prefix length, `{x:3}`: the rest of the value is not there.

Hazard: the text matched comes from a client.  A cap on its length keeps the loop free.
"""

from collections.abc import Callable, Iterator
from string import ascii_letters, digits, hexdigits
from typing import Final, TypeAlias
from urllib.parse import unquote_to_bytes

import msgspec

Value: TypeAlias = str | list[str] | dict[str, str]

MAX_CHARACTERS: Final = 8192
"""Nobody names a resource at such length."""

_UNRESERVED: Final = frozenset(ascii_letters + digits + "-._~")
_ANY: Final = _UNRESERVED | frozenset(":/?#[]@!$&'()*+,;=")
_HEX: Final = frozenset(hexdigits)
_LEADS: Final = ("01234567", "CcDd", "Ee", "Ff")
"""The first digit of a character's first byte, for characters of one to four bytes."""
_CONTINUES: Final = "89AaBb"
"""The first digit of its other bytes."""
_OPERATORS: Final = frozenset("+#./;?&")
_NAMED: Final = frozenset(";?&")
_RESERVED: Final = frozenset("+#")
_BARE: Final = frozenset({"", "+"})
"""Nothing stands before the first variable, so it can be there without a trace."""

_NOBODY: Final = 1 << 20
_SEPARATORS: Final = {"": ",", "+": ",", "#": ",", ".": ".", "/": "/", ";": ";", "?": "&", "&": "&"}
_MEMO: Final = 4096
_END: Final = 0


class _Variable(msgspec.Struct, frozen=True):
    """A variable where it stands: `place` is its number in its expression."""

    name: str
    exploded: bool
    operator: str
    place: int
    last: bool


class _Builder:
    """Makes an automaton from its end to its beginning: each piece is told what comes after it.

    A state either takes one character of its set, or is a fork (no set), whose ways are tried in order.
    What it takes is part of the text of the variable that owns it, by number; `~number` owns what stands
    before that text.
    """

    def __init__(self) -> None:
        self.sets: list[frozenset[str]] = [frozenset()]
        self.owners: list[int] = [_NOBODY]
        self.ways: list[tuple[int, ...]] = [()]
        self.variables: list[_Variable] = []

    def fork(self, *ways: int) -> int:
        return self._add(frozenset(), _NOBODY, ways)

    def take(self, characters: frozenset[str] | str, owner: int, then: int) -> int:
        return self._add(frozenset(characters), owner, (then,))

    def _add(self, characters: frozenset[str], owner: int, ways: tuple[int, ...]) -> int:
        self.sets.append(characters)
        self.owners.append(owner)
        self.ways.append(ways)
        return len(self.sets) - 1

    def text(self, text: str, owner: int, then: int) -> int:
        for character in reversed(text):
            then = self.take(character, owner, then)
        return then

    def many(self, characters: frozenset[str], owner: int, then: int, *, least_one: bool = False) -> int:
        """Any number of these characters and of percent-encoded ones, as few as can be."""
        loop = self.fork()
        one = self.take(characters, owner, loop)
        escape = self._encoded(owner, loop)
        self.ways[loop] = (then, one, escape)
        return self.fork(one, escape) if least_one else loop

    def _encoded(self, owner: int, then: int) -> int:
        """One percent-encoded character of UTF-8, never a part of one."""
        after = then
        leads = []
        for lead in _LEADS:
            leads.append(self.take(lead, owner, self.take(_HEX, owner, after)))
            byte = self.take(_CONTINUES, owner, self.take(_HEX, owner, after))
            after = self.take("%", owner, byte)
        return self.take("%", owner, self.fork(*leads))

    def expression(self, text: str, then: int) -> int:
        """What stands between two braces."""
        operator = text[0] if text[0] in _OPERATORS else ""
        specs = text[len(operator) :].split(",")
        owners = []
        for place, spec in enumerate(specs):
            if ":" in spec:
                raise ValueError(f"the prefix length of {{{text}}} cannot be reversed")
            owners.append(len(self.variables))
            name = spec.removesuffix("*")
            last = place == len(specs) - 1
            self.variables.append(_Variable(name, spec.endswith("*"), operator, place, last))
        first = others = then
        for owner in reversed(owners):
            value = self._value(owner, others)
            # The first that is there has the operator before it, if any; the others have the separator.
            led = value if operator in _BARE else self.take(operator, ~owner, value)
            first = self.fork(led, first)
            others = self.fork(self.take(_SEPARATORS[operator], ~owner, value), others)
        return first

    def _value(self, owner: int, then: int) -> int:
        """What one variable gives, less what stands before it."""
        variable = self.variables[owner]
        operator = variable.operator
        if operator in _RESERVED:
            return self.many(_ANY, owner, then)
        if variable.exploded:
            pairs = self._items(owner, then, lambda end: self.many(_UNRESERVED, owner, self._of(owner, end)))
            if operator in _NAMED:
                return self.fork(self._list(owner, then), pairs)
            return self.fork(pairs, self._items(owner, then, lambda end: self.many(_UNRESERVED, owner, end)))
        if operator in _NAMED:
            return self.text(variable.name, owner, self._of(owner, then))
        return self.many(_UNRESERVED | {","}, owner, then)

    def _items(self, owner: int, then: int, item: Callable[[int], int]) -> int:
        """One item or several, separated."""
        end = self.fork()
        first = item(end)
        self.ways[end] = (then, self.take(_SEPARATORS[self.variables[owner].operator], owner, first))
        return first

    def _list(self, owner: int, then: int) -> int:
        """As many items as can be, each with the variable's own name."""
        again = self.fork()
        first = self.text(self.variables[owner].name, owner, self._of(owner, again))
        separator = _SEPARATORS[self.variables[owner].operator]
        self.ways[again] = (self.take(separator, owner, first), then)
        return first

    def _of(self, owner: int, then: int) -> int:
        """What stands behind a name; with `;` an empty value has no equals sign, but one is forgiven."""
        variable = self.variables[owner]
        characters = _UNRESERVED if variable.exploded else _UNRESERVED | {","}
        if variable.operator != ";":
            return self.take("=", owner, self.many(characters, owner, then))
        given = self.take("=", owner, self.many(characters, owner, then, least_one=True))
        return self.fork(given, self.take("=", owner, then), then)


class Reversal:
    """A template, ready to be matched.

    Args:
        parts: its literals as they stand in URIs, at even places, and its expressions without braces.

    Raises:
        ValueError: it has a prefix length, which cannot be reversed.
    """

    def __init__(self, parts: list[str]) -> None:
        self._head = parts[0]
        builder = _Builder()
        state = _END
        for at in range(len(parts) - 1, 0, -1):
            state = (
                builder.expression(parts[at], state) if at % 2 else builder.text(parts[at], _NOBODY, state)
            )
        self._variables = builder.variables
        self._owners = builder.owners
        self._begin = tuple(_reached(builder, (state,)))
        self._after = [tuple(_reached(builder, ways)) for ways in builder.ways]
        masks = [sum(1 << state for state in after) for after in self._after]
        takers = [(state, masks[state]) for state, characters in enumerate(builder.sets) if characters]
        self._takers = takers
        self._sets = builder.sets
        self._masks: dict[str, int] = {}
        self._before: dict[int, int] = {}

    def match(self, uri: str) -> dict[str, Value] | None:
        """The values; None where no values give this URI, or it has more than 8,192 characters."""
        if not uri.startswith(self._head) or len(uri) > MAX_CHARACTERS:
            return None
        texts = self._texts(uri[len(self._head) :])
        if texts is None:
            return None
        found: dict[str, Value] = {}
        try:
            for owner, variable in enumerate(self._variables):
                value = _value(variable, texts.get(owner))
                if value is not None and found.setdefault(variable.name, value) != value:
                    return None
        except ValueError:
            return None
        return found

    def _texts(self, text: str) -> dict[int, str] | None:
        """The part of each variable that is there, by its number."""
        states = self._states(text)
        if states is None:
            return None
        texts: dict[int, str] = {}
        led = set()
        for character, state in zip(text, states, strict=True):
            owner = self._owners[state]
            if owner < 0:
                led.add(~owner)
                texts[~owner] = ""
            elif owner != _NOBODY:
                texts.setdefault(owner, "")
                texts[owner] += character
        for owner, variable in enumerate(self._variables):
            if variable.place == 0 and variable.operator in _BARE:
                # It was there, perhaps without a character, unless another one begins without a separator.
                others = [other for other in self._beside(owner) if other in texts]
                if led.issuperset(others) and (others or not variable.exploded):
                    texts.setdefault(owner, "")
        return texts

    def _beside(self, owner: int) -> Iterator[int]:
        """The variables that stand behind the first of an expression."""
        while not self._variables[owner].last:
            owner += 1
            yield owner

    def _states(self, text: str) -> list[int] | None:
        """Which state takes each character."""
        possible = []
        goal = 1 << _END
        for character in reversed(text):
            goal = self._leading_to(goal) & self._taking(character)
            if not goal:
                return None
            possible.append(goal)
        states = []
        ways = self._begin
        for mask in reversed(possible):
            taken = next((state for state in ways if mask >> state & 1), None)
            if taken is None:
                return None
            states.append(taken)
            ways = self._after[taken]
        return states if _END in ways else None

    def _leading_to(self, goal: int) -> int:
        """The states after which one of `goal` can come."""
        known = self._before.get(goal)
        if known is None:
            if len(self._before) >= _MEMO:
                self._before.clear()
            known = self._before[goal] = sum(1 << state for state, after in self._takers if after & goal)
        return known

    def _taking(self, character: str) -> int:
        """The states that take this character."""
        known = self._masks.get(character)
        if known is None:
            known = sum(1 << state for state, _ in self._takers if character in self._sets[state])
            if character.isascii():
                self._masks[character] = known
        return known


def _reached(builder: _Builder, ways: tuple[int, ...]) -> Iterator[int]:
    """The states behind any number of forks, in order of preference; the end may be among them."""
    seen = set()
    waiting = list(reversed(ways))
    while waiting:
        state = waiting.pop()
        if state not in seen:
            seen.add(state)
            if builder.sets[state] or state == _END:
                yield state
            else:
                waiting += reversed(builder.ways[state])


def _value(variable: _Variable, body: str | None) -> Value | None:
    """The value that a variable had where this is its part of the URI; None where it was undefined.

    Raises:
        ValueError: no value gives this.
    """
    if body is None:
        return None
    separator = _SEPARATORS[variable.operator]
    if not variable.exploded:
        if variable.operator in _RESERVED:
            return _decoded(body)
        return _listed(body.partition("=")[2] if variable.operator in _NAMED else body)
    pairs = [item.partition("=") for item in body.split(separator)]
    if variable.operator in _NAMED:
        listed = all(name == variable.name for name, _, _ in pairs)
        return [_decoded(value) for _, _, value in pairs] if listed else _mapping(pairs)
    if all(equals for _, equals, _ in pairs) and not (
        variable.operator in _RESERVED and len({name for name, _, _ in pairs}) < len(pairs)
    ):
        return _mapping(pairs)
    return [_decoded("".join(pair)) for pair in pairs]


def _listed(text: str) -> Value:
    return [_decoded(item) for item in text.split(",")] if "," in text else _decoded(text)


def _mapping(pairs: list[tuple[str, str, str]]) -> dict[str, str]:
    found = {_decoded(name): _decoded(value) for name, _, value in pairs}
    if len(found) != len(pairs):
        raise ValueError("a name is there twice")
    return found


def _decoded(text: str) -> str:
    return unquote_to_bytes(text).decode()
