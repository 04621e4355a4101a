"""From a file (or a few URLs) to a `Config`, or to one `ConfigError` that names everything that is wrong.

Three steps: the text becomes a tree (`document`; `desktop` makes a desktop client's tree one of ours), `${…}`
in its strings is filled in, the tree is read by the fields of `settings`.  Filling comes after parsing, so a
secret's value cannot add structure, and what was filled in is not searched for `${` again.

Hazards:
- A message names the place and what was expected there, never what was found: any value can be a secret.
- Only a filled-in text may stand for a number or a truth value (`port: ${PORT}`): the environment knows
  nothing but text.  `port: "8080"` is a mistake.
"""

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from difflib import get_close_matches
from pathlib import Path
from typing import Any, Final, TypeAlias, TypeVar, cast

import msgspec
from msgspec import inspect

from mcp_federator.config import desktop, document
from mcp_federator.config.document import join
from mcp_federator.config.schema import BYTES, DURATION, MILLISECONDS, SIZE, expected, fields, unwrap, words
from mcp_federator.config.settings import Config, Duration, Redis, Section, Server, Size, Upstream
from mcp_federator.errors import ConfigError

_MAX_FILE_BYTES: Final = 1 << 20
_MAX_SECONDS: Final = 10 * 366 * 86_400
_MAX_BYTES: Final = 1 << 50

_REFERENCE: Final = re.compile(
    r"\$\$\{"
    r"|\$\{(?:(?:env:)?(?P<name>[A-Za-z_][A-Za-z0-9_]*)(?::-(?P<default>[^}]*))?|file:(?P<file>[^}\x00]+))\}"
    r"|(?P<broken>\$\{)"
)

_SECRET: Final = frozenset({"secret", "redis", "headers", "env", "args", "options"})
"""Keys below which credentials stand."""

_CONFIG: Final = inspect.type_info(Config)
_SERVER: Final = cast("inspect.StructType", inspect.type_info(Server))
_REDIS: Final = cast("inspect.StructType", inspect.type_info(Redis))
_UPSTREAM: Final = inspect.type_info(Upstream)

_Read = TypeVar("_Read")


Names: TypeAlias = Callable[[Sequence[tuple[str, str | None, str]]], Iterable[ConfigError]]
"""What is wrong with the names of several upstreams: (name, `prefix`, `native_prefix`) of each."""


def load(path: Path, environ: Mapping[str, str], names: Names | None = None) -> Config:
    """Read the file; its `files` begin with itself."""
    try:
        text = _read_file(path)
    except ConfigError as error:
        raise ConfigError("", error.problem, source=str(path)) from None
    config = parse(text, source=str(path), directory=path.parent, environ=environ, names=names)
    return msgspec.structs.replace(config, files=(path, *config.files))


def parse(
    text: str, *, source: str, directory: Path, environ: Mapping[str, str], names: Names | None = None
) -> Config:
    """Read YAML or JSON text.

    Args:
        text: what stands in the file.
        source: the file's name, for messages.
        directory: where the paths in it begin.
        environ: the variables for `${…}`.
        names: says which names collide, in the same message as all else; None leaves that for later.

    Raises:
        ConfigError: naming all that is wrong, each on a line.
    """
    problems: list[ConfigError] = []
    try:
        tree = document.read(text, source, problems)
    except ConfigError as error:
        raise ConfigError(error.path, error.problem, source=source) from None
    notes: list[str] = []
    translated = desktop.is_desktop(tree)
    if translated:
        tree = desktop.translated(tree, problems, notes)
    filler = _Filler(directory, environ, problems)
    filled = filler.fill(tree, "")
    config: Config = _Reader(directory, problems).read(filled, _CONFIG, "")
    if names is not None:
        problems.extend(names(_names(filled)))
    if translated:
        problems = [_as_desktop(problem) for problem in problems]
    return msgspec.structs.replace(
        _settled(config, problems, source), files=tuple(dict.fromkeys(filler.files)), notes=tuple(notes)
    )


def of_urls(pairs: Sequence[tuple[str, str]]) -> Config:
    """The configuration of `NAME=URL` arguments, all else by default."""
    problems = [
        ConfigError(join("upstreams", name), "expected once, stands twice")
        for index, (name, _) in enumerate(pairs)
        if name in {earlier for earlier, _ in pairs[:index]}
    ]
    tree = {"upstreams": {name: {"url": url} for name, url in pairs}}
    config: Config = _Reader(Path(), problems).read(tree, _CONFIG, "")
    return _settled(config, problems, "")


def upstream(keys: Mapping[str, Any], environ: Mapping[str, str] | None = None) -> Upstream:
    """One upstream's settings of plain values, read as if they stood under its name in a file.

    `environ` has the variables for `${…}`; where it is None nothing is filled in.

    Raises:
        ConfigError: as of a file; paths begin at the upstream.
    """
    problems: list[ConfigError] = []
    given: Any = dict(keys)
    if environ is not None:
        given = _Filler(Path(), environ, problems).fill(given, "")
    settings: Upstream = _Reader(Path(), problems).read(given, _UPSTREAM, "")
    return _settled(settings, problems, "")


def with_options(config: Config, keys: Mapping[str, Any], *, redis: str | None = None) -> Config:
    """The same with other values for some keys of `server`, as options of the command line.

    `redis` is another `cache.redis.url`.

    Raises:
        ConfigError: as of a file; `admin_port` is called `--admin-port`.
    """
    problems: list[ConfigError] = []
    known, reader = fields(_SERVER), _Reader(Path(), problems)
    options = {key: f"--{key.replace('_', '-')}" for key in keys}
    read = {key: reader.read(value, known[key].type, options[key]) for key, value in keys.items()}
    url = None if redis is None else reader.read(redis, fields(_REDIS)["url"].type, "--redis")
    server = msgspec.structs.replace(config.server, **_settled(read, problems, ""))
    problems += [
        ConfigError(options.get(key, f"server.{key}"), problem) for key, problem in server.conflicts()
    ]
    cache = config.cache
    if url is not None:
        shared = Redis(url=url) if cache.redis is None else msgspec.structs.replace(cache.redis, url=url)
        cache = msgspec.structs.replace(cache, redis=shared)
    changed = msgspec.structs.replace(config, server=server, cache=cache)
    problems += [ConfigError(path, problem) for path, problem in changed.conflicts()]
    return _settled(changed, problems, "")


def _names(tree: Any) -> list[tuple[str, str | None, str]]:
    """The names in a tree whose values may be of any shape; what is wrong by itself is told elsewhere."""
    upstreams = tree.get("upstreams") if isinstance(tree, dict) else None
    given = []
    for name, keys in upstreams.items() if isinstance(upstreams, dict) else ():
        if desktop.NAME.fullmatch(name):
            of_one = keys if isinstance(keys, dict) else {}
            prefix, within = of_one.get("prefix"), of_one.get("native_prefix")
            given.append(
                (name, prefix if isinstance(prefix, str) else None, within if isinstance(within, str) else "")
            )
    return given


def _as_desktop(problem: ConfigError) -> ConfigError:
    """The same, at the place where it stands in a desktop client's file."""
    path = re.sub(r"^upstreams\b", desktop.BLOCK, problem.path)
    return ConfigError(path, problem.problem)


def _settled(read: _Read, problems: Sequence[ConfigError], source: str) -> _Read:
    if problems:
        first, *more = problems
        raise ConfigError(first.path, first.problem, source=source, more=more)
    return read


def _read_file(path: Path) -> str:
    try:
        with path.open("rb") as file:
            data = file.read(_MAX_FILE_BYTES + 1)
    except OSError as error:
        raise ConfigError("", f"cannot be read: {error.strerror}") from None
    if len(data) > _MAX_FILE_BYTES:
        raise ConfigError("", "expected at most 1 MiB")
    try:
        return data.decode()
    except UnicodeDecodeError:
        raise ConfigError("", "expected text in UTF-8") from None


class _Filled(str):
    """A text that holds a value from outside the file."""

    __slots__ = ()


class _Wrong:
    """Stands for a value whose problem is already written down."""


_WRONG: Final = _Wrong()


class _Filler:
    """Fills in `${…}` in all strings of a tree, but not in keys."""

    def __init__(self, directory: Path, environ: Mapping[str, str], problems: list[ConfigError]) -> None:
        self._directory = directory
        self._environ = environ
        self._problems = problems
        self.files: list[Path] = []

    def fill(self, value: Any, path: str) -> Any:
        match value:
            case dict():
                return {key: self.fill(item, join(path, key)) for key, item in value.items()}
            case list():
                return [self.fill(item, f"{path}[{index}]") for index, item in enumerate(value)]
            case str():
                try:
                    text = self._fill_text(value, path)
                    text.encode()
                except ConfigError as error:
                    self._problems.append(ConfigError(path, error.problem))
                except UnicodeEncodeError:
                    self._problems.append(ConfigError(path, "expected Unicode text"))
                else:
                    return text
                return _WRONG
        return value

    def _fill_text(self, text: str, path: str) -> str:
        from_outside = any(match["name"] or match["file"] for match in _REFERENCE.finditer(text))
        filled = _REFERENCE.sub(lambda reference: self._value(reference, path), text)
        return _Filled(filled) if from_outside else filled

    def _value(self, reference: re.Match[str], path: str) -> str:
        name, default, file = reference["name"], reference["default"], reference["file"]
        if reference["broken"]:
            raise ConfigError(
                "", "expected ${VAR}, ${VAR:-default} or ${file:PATH}; $${ stands for a literal ${"
            )
        if file is not None:
            there = self._directory / file
            self.files.append(there)
            try:
                return _read_file(there).rstrip("\r\n")
            except ConfigError as error:
                raise ConfigError("", f"file {file!r}: {error.problem}") from None
        if name is None:
            return "${"
        value = self._environ.get(name)
        if default is not None:
            return value or default
        if value is None:
            # A default for a credential would be a secret that stands in the file.
            secret = any(part in _SECRET for part in re.split(r"[.\[]", path))
            advice = (
                "set it, or put the value in a file and write ${file:PATH}"
                if secret
                else f"${{{name}:-default}} gives it a default"
            )
            raise ConfigError("", f"environment variable {name} is not set; {advice}")
        return value


class _Reader:
    """Reads a tree by the fields of `settings`, and goes on after a problem."""

    def __init__(self, directory: Path, problems: list[ConfigError]) -> None:
        self._directory = directory
        self._problems = problems

    def read(self, value: Any, type_: inspect.Type, path: str) -> Any:  # noqa: PLR0911 - a case per type
        """The value as its key wants it, or `_WRONG`."""
        if value is _WRONG:
            return _WRONG
        bare, notes, _ = unwrap(type_)
        match bare:
            case inspect.UnionType(types=types):
                return None if value is None else self.read(value, types[0], path)
            case inspect.AnyType():
                return _plain(value)
            case inspect.StructType() if isinstance(value, dict | None):
                return self._section(value or {}, bare, path)
            case inspect.DictType() if isinstance(value, dict | None):
                return self._mapping(value or {}, bare, path)
            case inspect.VarTupleType(item_type=item) if isinstance(value, list | None):
                places = [(one, f"{path}[{index}]") for index, one in enumerate(value or [])]
                return self._items(places, item)
            case inspect.VarTupleType(item_type=item) if isinstance(value, str) and notes.get("single"):
                return self._items([(value, path)], item)
        read = _scalar(value, bare, notes)
        if read is not _WRONG:
            read = self._placed(read, notes)
        if read is _WRONG:
            self._problem(path, f"expected {expected(type_)}{_found(value, bare)}")
        return read

    def _section(self, tree: dict[str, Any], type_: inspect.StructType, path: str) -> Any:
        keys = fields(type_)
        values = {}
        for key, item in tree.items():
            if key in keys:
                values[key] = self.read(item, keys[key].type, join(path, key))
            else:
                self._problem(join(path, key), _unknown(key, keys))
        for key, field in keys.items():
            if field.required and key not in tree:
                self._problem(join(path, key), f"missing, expected {expected(field.type)}")
                values[key] = _WRONG
        if _WRONG in values.values():
            return _WRONG
        section = cast("Section", type_.cls(**values))
        for key, problem in section.conflicts():
            self._problem(".".join(filter(None, (path, key))), problem)
        return section

    def _mapping(self, tree: dict[str, Any], type_: inspect.DictType, path: str) -> Any:
        key_type, notes, _ = unwrap(type_.key_type)
        for key in tree:
            if _scalar(key, key_type, notes) is _WRONG:
                self._problem(join(path, key), f"expected {expected(type_.key_type)} as the key")
        values = {key: self.read(item, type_.value_type, join(path, key)) for key, item in tree.items()}
        return _WRONG if _WRONG in values.values() else values

    def _items(self, items: list[tuple[Any, str]], type_: inspect.Type) -> Any:
        values = tuple(self.read(item, type_, path) for item, path in items)
        return _WRONG if _WRONG in values else values

    def _placed(self, value: Any, notes: Mapping[str, Any]) -> Any:
        """A path where it really is, if it is there; any other value as it is."""
        if notes.get("program") and "/" in value:
            return str((self._directory / value).absolute())
        there = Path.is_dir if notes.get("directory") else Path.is_file if notes.get("file") else None
        if there is None:
            return value
        path = (self._directory / value).absolute()
        try:
            return str(path) if there(path) else _WRONG
        except OSError:
            return _WRONG

    def _problem(self, path: str, problem: str) -> None:
        self._problems.append(ConfigError(path, problem))


def _scalar(value: Any, type_: inspect.Type, notes: Mapping[str, Any]) -> Any:  # noqa: PLR0911 - likewise
    if isinstance(value, _Filled) and isinstance(
        type_, inspect.BoolType | inspect.IntType | inspect.CustomType
    ):
        try:
            value = document.scalar(value)
        except ValueError:
            return _WRONG
    match type_, value:
        case inspect.BoolType(), bool():
            return value
        case inspect.IntType(ge=least, le=most), int() if not isinstance(value, bool):
            return value if (least or 0) <= value <= (value if most is None else most) else _WRONG
        case inspect.StrType(pattern=pattern, min_length=least), str():
            fits = len(value) >= (least or 0) and (pattern is None or re.fullmatch(pattern, value))
            fits = fits and ("check" not in notes or notes["check"](value))
            return (value.lower() if notes.get("lower") else str(value)) if fits else _WRONG
        case inspect.LiteralType(), str() if value in words(type_):
            return str(value)
        case inspect.EnumType(cls=cls), str() if value in words(type_):
            return cls(value)
        case inspect.CustomType(cls=cls), int() | float() | str() if not isinstance(value, bool):
            return _quantity(value, cls, notes.get("least", 0))
    return _WRONG


def _quantity(value: float | str, cls: type, least: float) -> Any:
    if isinstance(value, str):
        match = re.fullmatch(DURATION if cls is Duration else SIZE, value)
        if match is None:
            return _WRONG
        amount, unit = float(match[1]), match[2]
        value = amount * MILLISECONDS[unit] / 1000 if cls is Duration else amount * BYTES[unit]
    most = _MAX_SECONDS if cls is Duration else _MAX_BYTES
    if not least <= value <= most or (cls is Size and value != int(value)):
        return _WRONG
    return cls(value)


def _plain(value: Any) -> Any:
    match value:
        case dict():
            return {key: _plain(item) for key, item in value.items()}
        case list():
            return [_plain(item) for item in value]
        case str():
            return str(value)
    return value


def _found(value: Any, type_: inspect.Type) -> str:  # noqa: PLR0911 - likewise
    """What was found instead, where its kind is the mistake; never the value."""
    match value:
        case None:
            return ", found null"
        case bool():
            quotes = ": put it in quotes" if isinstance(type_, inspect.StrType) else ""
            return f", found true or false{quotes}"
        case int() | float():
            if isinstance(type_, inspect.IntType | inspect.CustomType):
                return ""
            return ", found a number" + (": put it in quotes" if isinstance(type_, inspect.StrType) else "")
        case str():
            texts = inspect.StrType | inspect.LiteralType | inspect.EnumType | inspect.CustomType
            return "" if isinstance(type_, texts) else ", found text"
        case list():
            return ", found a list"
    return ", found a mapping"


def _unknown(key: str, keys: Iterable[str]) -> str:
    near = get_close_matches(key.lower().replace("-", "_"), keys, n=1)
    return "unknown key, " + (f"did you mean `{near[0]}`?" if near else f"expected one of {', '.join(keys)}")
