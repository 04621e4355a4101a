"""The form under which a URI and what a URL class makes of it are equal (design, section 3, rule 10).

Clients that keep URIs in URL objects send them back rewritten.  Those in use follow WHATWG's URL standard
(pydantic's AnyUrl, JavaScript's URL) or RFC 3986, section 6.2.2 (yarl), and they differ: one encodes a space
as `%20`, another as `+`, a third cuts it off.  The form is coarse enough for all of them.

Hazards:
    A form is for comparing and names nothing.  Two URIs of one form may be two resources, and what is asked
    of the upstream is the original, never the form.
    A client's class saw the public URI, so it is public URIs that are compared: behind `docs+http` a host and
    a path are treated otherwise than behind `http`.

Not covered: IPv4 addresses in any other spelling than four numbers, Windows drive letters, and what yarl
makes of backslashes and missing slashes behind the few schemes that it knows.
"""

import re
import unicodedata
from contextlib import suppress
from ipaddress import IPv6Address
from urllib.parse import quote, unquote

_PLAIN = re.compile(
    r"(?!(?:file|ftp|https?|wss?):)[a-z][a-z0-9+.-]*:"
    r"//(?:[a-z0-9]+[.-])*+[a-z0-9]*+"
    r"(?:/(?!\.)[A-Za-z0-9._~-]*+)++"
)
"""Most public URIs are their own form."""

_LONGEST = 8192
"""Characters.  Nobody names a resource at such length, but a form costs up to half a microsecond for each."""

_LONGEST_NAME = 255
"""Characters.  A longer host is no name that could be looked up: it is not normalised as one, by which each
character can become eighteen."""

_CONTROLS_AND_SPACE = "".join(map(chr, range(0x21)))
_SCHEME = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*:")
_PORT = re.compile(r":([0-9]*)$")

_DEFAULT_PORTS = {"ftp:": "21", "http:": "80", "https:": "443", "ws:": "80", "wss:": "443"}
"""WHATWG's special schemes beside `file:`; behind these comes a host, however many slashes there are."""

_UNIT = re.compile(r"%([0-9A-Fa-f]{2})|[^\x00-\x7f]+|[^A-Za-z0-9._~-]")
_UNRESERVED = frozenset(b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789._~-")
_ENDINGS = frozenset(f"%{byte:02X}" for byte in range(0x21))


def normal_form(uri: str) -> str:
    """The common form of `uri` and of all that URL classes write for it.

    Any text has one; a text of more than 8,192 characters is its own.  So a form has at most twelve times as
    many, and what a URL class wrote at that length is the form already.
    """
    return uri if _PLAIN.fullmatch(uri) or len(uri) > _LONGEST else _form(uri)


def _form(uri: str) -> str:
    text = re.sub(r"[\t\n\r]", "", uri.lstrip(_CONTROLS_AND_SPACE))
    head, _, fragment = text.partition("#")
    head, _, query = head.partition("?")
    found = _SCHEME.match(head)
    scheme = found[0].lower() if found else ""
    rest = head[len(scheme) :]
    if scheme in _DEFAULT_PORTS:
        rest = "//" + rest.replace("\\", "/").lstrip("/")
    elif scheme == "file:":
        rest = rest.replace("\\", "/")
        rest = rest if rest.startswith("/") else "/" + rest
    authority = ""
    if rest.startswith("//"):
        authority, slash, rest = rest[2:].partition("/")
        authority = _authority(authority, scheme)
        if not slash and (authority or scheme == "file:"):
            slash = "/"
        rest = slash + rest
    path = _encoded(rest, keep="/")
    if path.startswith("/"):
        path = _without_dot_segments(path)
        if scheme == "file:":
            path = "/" + path.lstrip("/")
        path = "//" + authority + path
    # A space in a query may be written as a plus; a plus that is meant comes encoded.
    query = _encoded(query.replace("+", " "), keep="&=;")
    fragment = _encoded(fragment)
    return scheme + path + (query and "?" + query) + (fragment and "#" + fragment)


def _authority(text: str, scheme: str) -> str:
    userinfo, _, host = text.rpartition("@")
    user, _, password = userinfo.partition(":")
    login = _encoded(user) + (password and ":" + _encoded(password))
    port = ""
    if found := _PORT.search(host):
        host, port = host[: found.start()], found[1] and (found[1].lstrip("0") or "0")
    host = _host(host)
    if host == "localhost" and scheme == "file:":
        host = ""
    if port == _DEFAULT_PORTS.get(scheme):
        port = ""
    return (login and login + "@") + host + (port and ":" + port)


def _host(text: str) -> str:
    """A host has no case; international names come encoded as UTF-8 or as Punycode."""
    with suppress(ValueError):
        if text.startswith("[") and text.endswith("]"):
            return f"[{IPv6Address(text[1:-1]).exploded}]"
    text = unquote(text).lower()
    if len(text) > _LONGEST_NAME:
        return _encoded(text)
    labels = text.split(".")
    for at, label in enumerate(labels):
        if label.startswith("xn--"):
            with suppress(ValueError):
                labels[at] = label[4:].encode("ascii").decode("punycode")
    name = unicodedata.normalize("NFKC", ".".join(labels)).casefold()
    return _encoded(unicodedata.normalize("NFKC", name))


def _encoded(text: str, keep: str = "") -> str:
    """Unreserved characters as themselves, all others percent-encoded, except those of `keep` that are not.

    White space and controls at the end are cut off: classes differ on where a URI ends.
    """

    def unit(found: re.Match[str]) -> str:
        if found[1] is not None:
            byte = int(found[1], 16)
            return chr(byte) if byte in _UNRESERVED else f"%{byte:02X}"
        if found[0] in keep:
            return found[0]
        return quote(found[0], safe="", errors="surrogatepass")

    encoded = _UNIT.sub(unit, text)
    end = len(encoded)
    while encoded[end - 3 : end] in _ENDINGS:
        end -= 3
    return encoded[:end]


def _without_dot_segments(path: str) -> str:
    """RFC 3986, section 5.2.4, for a path that begins with a slash."""
    kept: list[str] = []
    segments = path.split("/")[1:]
    for segment in segments:
        if segment == "..":
            del kept[-1:]
        elif segment != ".":
            kept.append(segment)
    if segments[-1] in {".", ".."}:
        kept.append("")
    return "/" + "/".join(kept)
