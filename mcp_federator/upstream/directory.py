"""The repository we ship: the files of a directory, each as `file:///` and its path in there.

It keeps the contract of `mcp_federator.repository` like anyone's; what keeps it inside its directory is
`tree`.  In its URIs each byte of a name that is not unreserved (RFC 3986, section 2.3) is percent-encoded, so
names need not be UTF-8.  On a read any spelling of a path is understood that says the same names; `.`, `..`
and empty names, `/` and NUL in a name, a backslash in whatever spelling, and hidden names are not found.

Hazard: all of this blocks; it is called in threads.
"""

import errno
import re
import time
from base64 import urlsafe_b64decode, urlsafe_b64encode
from collections.abc import Callable
from contextlib import suppress
from datetime import UTC, datetime
from mimetypes import MimeTypes
from typing import Final
from urllib.parse import quote_from_bytes, unquote_to_bytes

import msgspec

from mcp_federator.repository import Content, Invalid, NotFound, Page, Resource, Unavailable
from mcp_federator.upstream import tree
from mcp_federator.upstream.orders import Orders
from mcp_federator.upstream.watch import Watch

PAGE: Final = 500
"""Files on a page."""

_STEPS: Final = 20_000
_NAME: Final = re.compile(r"(?:[A-Za-z0-9._~!$&'()*+,;=:@-]|%[0-9A-Fa-f]{2})+")
_CURSOR: Final = b"1"
_encode: Final = msgspec.json.Encoder().encode
_TYPES: Final = MimeTypes()
"""Without the system's tables: the same file has the same type everywhere."""

for _type, *_endings in (
    ("text/markdown", ".md", ".markdown"),
    ("application/yaml", ".yaml", ".yml"),
    ("application/toml", ".toml"),
    ("application/jsonl", ".jsonl"),
):
    for _ending in _endings:
        _TYPES.add_type(_type, _ending)

_ENCODED_TYPES: Final = {"gzip": "application/gzip", "bzip2": "application/x-bzip2", "xz": "application/x-xz"}
_ABSENT: Final = frozenset(
    (errno.ENOENT, errno.ENOTDIR, errno.ELOOP, errno.EACCES, errno.EPERM, errno.EISDIR, errno.ENXIO)
) | {errno.ENAMETOOLONG, errno.ESTALE, errno.ENODEV}
"""What the system says of a name under which no regular file can be read."""


class Directory:
    """The files below a directory.

    Args:
        path: of the directory.
        max_bytes: larger files are neither listed nor read; a page of the list is no longer, as JSON.
        timeout: seconds that one page of the list may take.
    """

    prefix = "file:///"

    def __init__(self, path: str, max_bytes: int, timeout: float) -> None:
        self._path = path
        self._max_bytes = max_bytes
        self._timeout = timeout
        self._orders = Orders()
        self._watch = Watch(path)

    def watch(self, tell: Callable[[str | None], None]) -> None:
        """Look for changes of what is wanted, until it is closed."""
        self._watch.run(tell)

    def want(self, lists: bool, uris: frozenset[str]) -> None:
        """Look for these changes from now on."""
        paths = {}
        for uri in uris:
            with suppress(NotFound):
                paths[uri] = _path(uri.removeprefix(self.prefix))
        self._watch.want(paths, lists=lists)

    def close(self) -> None:
        """Look no more."""
        self._watch.end()

    def problem(self) -> str:
        """Why the directory cannot be served, or `""`."""
        try:
            with tree.root(self._path):
                return ""
        except OSError as problem:
            return f"expected a directory that can be read: {problem.strerror}"

    def list(self, cursor: str | None) -> Page:
        """A page of the files, in the order of their paths.

        A cursor names the last file of its page, so it holds whatever comes and goes meanwhile.
        """
        after = () if cursor is None else _opened(cursor)
        walk = tree.Walk(_STEPS, time.monotonic() + self._timeout, orders=self._orders)
        items: list[Resource] = []
        left = self._max_bytes
        last = after
        try:
            with tree.root(self._path) as folder:
                for entry in walk.files(folder, after):
                    item = _resource(entry)
                    length = len(_encode(item))
                    if max(entry.size, length) > self._max_bytes:
                        continue
                    if len(items) == PAGE or length > left:
                        return Page(items, _cursor(last))
                    items.append(item)
                    left -= length
                    last = entry.path
        except OSError as problem:
            raise Unavailable(problem.strerror or "the directory took too long") from problem
        return Page(items, _cursor(walk.last) if walk.cut else None)

    def read(self, uri: str) -> Content:
        """The bytes of a file, as a text where they are UTF-8 without NUL."""
        path = _path(uri.removeprefix(self.prefix))
        try:
            with tree.root(self._path) as folder:
                body = _read(folder, path, self._max_bytes)
        except OSError as problem:
            raise Unavailable(problem.strerror or "") from problem
        mime_type = _mime_type(path[-1])
        try:
            if b"\x00" not in body:
                return Content(body=body.decode(), mime_type=mime_type)
        except UnicodeDecodeError:
            pass
        return Content(body=body, mime_type=mime_type)


def _read(folder: int, path: tree.Path, limit: int) -> bytes:
    try:
        return tree.read(folder, path, limit)
    except OSError as problem:
        if problem.errno in _ABSENT:
            raise NotFound from problem
        raise


def _path(text: str) -> tree.Path:
    """The names that the path of a URI says; raises NotFound."""
    names = text.split("/")
    if not all(map(_NAME.fullmatch, names)):
        raise NotFound
    path = tuple(map(unquote_to_bytes, names))
    if any(b"/" in name or b"\x00" in name or not tree.is_shown(name) for name in path):
        raise NotFound
    return path


def _resource(entry: tree.Entry) -> Resource:
    try:
        changed = f"{datetime.fromtimestamp(int(entry.changed), UTC):%Y-%m-%dT%H:%M:%SZ}"
    except (ValueError, OverflowError, OSError):  # a time that no calendar has
        changed = ""
    return Resource(
        uri=Directory.prefix + "/".join(quote_from_bytes(name, safe="") for name in entry.path),
        name=entry.path[-1].decode(errors="replace"),
        mime_type=_mime_type(entry.path[-1]),
        size=entry.size,
        annotations={"lastModified": changed} if changed else None,
    )


def _mime_type(name: bytes) -> str | None:
    """By the end of the name, and None where that says nothing."""
    # A name with a colon must not look like a URL.
    found, encoding = _TYPES.guess_type("./" + name.decode(errors="replace"))
    return found if encoding is None else _ENCODED_TYPES.get(encoding, "application/octet-stream")


def _cursor(path: tree.Path) -> str:
    return urlsafe_b64encode(_CURSOR + b"/".join(path)).decode()


def _opened(cursor: str) -> tree.Path:
    try:
        text = urlsafe_b64decode(cursor.encode())
    except ValueError:
        text = b""
    if not text.startswith(_CURSOR):
        raise Invalid("the cursor is none of ours")
    return tuple(text[len(_CURSOR) :].split(b"/"))
