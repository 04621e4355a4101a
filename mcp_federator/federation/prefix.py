"""Public and native names: what stands before an upstream's URI, and how a read finds its way back.

The public form of a URI is a prefix and the native URI, byte for byte (design, section 3).  Names depend on
the configuration alone, so a read needs no earlier list and no upstream is asked to find out whose a URI is.

Hazards:
    URL classes write the scheme of a URI in lower case, so the scheme part of a prefix is matched without
    regard to case.  Only ASCII letters have case here: `str.lower` would fold the Kelvin sign into a `k`.
    A native prefix names, it does not fence: `docs://../secret` goes upstream as `file:///srv/docs/../secret`,
    and keeping that in is the upstream's affair.
"""

import re
from bisect import bisect_right
from collections.abc import Sequence
from hashlib import sha256
from string import ascii_lowercase, ascii_uppercase
from typing import Final, TypeAlias

import msgspec

from mcp_federator.errors import ConfigError
from mcp_federator.federation.template import literal_head, valid

_UI = "ui://"
"""The scheme of MCP Apps.  Hosts insist on it, so it stays in front (rule 3)."""

_NAME = re.compile(r"[a-z][a-z0-9-]{0,30}")
"""Rule 2.  What a scheme can carry after URL classes wrote it in lower case; `+` never stands in a name."""

_PREFIX = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*(:[A-Za-z0-9._~:/?#\[\]@!$&'()*+,;=-]*)?")
"""A scheme or its beginning (RFC 3986, 3.1), then what no URL class and no template processor encodes."""

_RULES = 1
"""Stands in every fingerprint; to be raised when the same configuration begins to give other public URIs."""

_LOWER = str.maketrans(ascii_uppercase, ascii_lowercase)


def _fold(text: str) -> str:
    """`text` with its scheme part, all before the first colon, in lower case."""
    scheme, colon, rest = text.partition(":")
    return scheme.translate(_LOWER) + colon + rest


class Mapping:
    """The names of one upstream: native URI <-> public URI (rules 1, 3, 4, 6, 8).

    Attributes:
        name: of the upstream.
        prefix: what public URIs begin with; `None` on construction means the name and `+`.
        native_prefix: what the prefix replaces; URIs that do not begin with it are not published.
        forms: pairs (beginning of public URIs, what it stands for natively); the first is the general one.
        fingerprint: 32 bytes, another for every other mapping; part of the cache identity.
    """

    __slots__ = ("_ui", "fingerprint", "forms", "name", "native_prefix", "prefix")

    def __init__(self, name: str, prefix: str | None = None, native_prefix: str = "") -> None:
        self.name: Final = name
        self.prefix: Final = f"{name}+" if prefix is None else prefix
        self.native_prefix: Final = native_prefix
        # Without a prefix nothing is rewritten, ui:// neither.
        self._ui: Final = f"{_UI}{name}/" if self.prefix else ""
        general = (self.prefix, native_prefix)
        self.forms: Final[tuple[tuple[str, str], ...]] = (
            (general, (self._ui, _UI)) if self._ui else (general,)
        )
        identity = msgspec.json.encode((_RULES, name, self.prefix, native_prefix))
        self.fingerprint: Final = sha256(identity).digest()

    def __repr__(self) -> str:
        return f"Mapping({self.name!r}, {self.prefix!r}, {self.native_prefix!r})"

    def public(self, native: str) -> str | None:
        """The URI that clients see, or None for one that is not published."""
        if self.native_prefix and not native.startswith(self.native_prefix):
            return None
        if self._ui and native.startswith(_UI):
            return self._ui + native[len(_UI) :]
        return self.prefix + native[len(self.native_prefix) :]

    def native(self, public: str) -> str | None:
        """The URI as the upstream knows it, or None where `public` is no URI of this upstream.

        More is accepted than `public()` gives: the prefix before a `ui://` URI, because a template without a
        literal scheme can expand to that (rule 3).
        """
        for shown, meant in self.forms:
            if public.startswith(shown) or _fold(public[: len(shown)]) == _fold(shown):
                native = meant + public[len(shown) :]
                return native if native.startswith(self.native_prefix) else None
        return None

    def template(self, text: str) -> str | None:
        """The public form of a URI template, or None where it is withheld or no template (RFC 6570).

        A template is prefixed as text, so expanding it and prefixing commute.  What is known of every URI it
        can give is its literal head: that decides whether the native prefix is there to be replaced.
        """
        if not valid(text):
            return None
        head = literal_head(text)
        shown = self.public(head)
        return None if shown is None else shown + text[len(head) :]


class Router:
    """Public URI -> (upstream, native URI), for all upstreams (rules 2, 5, 7).

    No prefix begins another, so at most one fits, and among the sorted prefixes it is the last that is not
    greater than the URI: the cost of a route hardly depends on how many upstreams there are.

    Raises:
        ConfigError: a name or prefix that cannot stand in a URI, prefixes of which one begins another, or
            `""` for one of several upstreams.
    """

    __slots__ = ("_longest", "_routes", "_shown")

    def __init__(self, mappings: Sequence[Mapping]) -> None:
        if wrong := problems(mappings):
            first, *more = wrong
            raise ConfigError(first.path, first.problem, more=more)
        forms = _forms(mappings)
        self._shown = [form[0] for form in forms]
        self._routes = [(len(shown), name, meant, within) for shown, _, name, meant, within in forms]
        self._longest = max(map(len, self._shown), default=0)

    def route(self, public: str) -> tuple[str, str] | None:
        """The upstream's name and its native URI, or None where no upstream has that prefix."""
        at = bisect_right(self._shown, public) - 1
        if at < 0 or not public.startswith(self._shown[at]):
            head = _fold(public[: self._longest])
            at = bisect_right(self._shown, head) - 1
            if at < 0 or not head.startswith(self._shown[at]):
                return None
        length, name, meant, native_prefix = self._routes[at]
        native = meant + public[length:]
        return (name, native) if native.startswith(native_prefix) else None


_Form: TypeAlias = tuple[str, int, str, str, str]
"""What public URIs begin with; which of its mapping's forms this is; of whom; what it stands for; where."""


def _forms(mappings: Sequence[Mapping]) -> list[_Form]:
    """All beginnings of public URIs, sorted."""
    return sorted(
        (_fold(shown), second, mapping.name, meant, mapping.native_prefix)
        for mapping in mappings
        for second, (shown, meant) in enumerate(mapping.forms)
    )


def problems(mappings: Sequence[Mapping]) -> list[ConfigError]:
    """All that keeps these upstreams from being told apart; see `Router`."""
    found = []
    usable = []
    for mapping in mappings:
        try:
            _check(mapping, alone=len(mappings) == 1)
        except ConfigError as problem:
            found.append(problem)
        else:
            usable.append(mapping)
    head: _Form | None = None
    for form in _forms(usable):
        if head is None or not form[0].startswith(head[0]):
            head = form
            continue
        # The second form is nobody's choice: whoever set a prefix is told.
        (shown, second, owner, *_), (other_shown, _, other, *_) = head, form
        found.append(
            ConfigError(
                f"upstreams.{other if second else owner}.prefix",
                f"URIs of {owner!r} begin with {shown!r} and those of {other!r} with {other_shown!r};"
                " expected prefixes of which none repeats or begins another or any ui://NAME/",
            )
        )
    return found


def _check(mapping: Mapping, *, alone: bool) -> None:
    """Refuse what could be listed but never read."""
    if not _NAME.fullmatch(mapping.name):
        raise ConfigError(
            "upstreams",
            f"the name {mapping.name!r} cannot begin a URI;"
            " expected 1 to 31 of a-z, 0-9 and -, the first a letter",
        )
    where = f"upstreams.{mapping.name}.prefix"
    if not mapping.prefix:
        if not alone:
            raise ConfigError(where, 'expected a prefix: "" (no rewriting) is for a single upstream')
    elif not _PREFIX.fullmatch(mapping.prefix):
        raise ConfigError(
            where,
            f"{mapping.prefix!r} cannot begin a URI; expected a scheme such as docs+ or docs://,"
            " without spaces, braces, % or letters beyond ASCII",
        )
