"""A repository from its name in the configuration to an object whose rules were looked at.

What may not come in: the calls that answer queries, and asyncio.  All here may block, for it imports and runs
code that is not ours: whoever calls it does so in a thread.

Hazards:
- Options may hold secrets, and an exception may quote them.  A message names the exception's type; the whole
  of it goes to the log, as it would if the code ran by itself.
- To look at an object, even to ask for its class, is to run code of theirs, which may raise anything.
"""

import inspect
import logging
import re
from collections.abc import Callable, Mapping
from importlib import import_module
from typing import Any, Final

import msgspec

from mcp_federator.errors import ConfigError
from mcp_federator.federation.reversal import Reversal
from mcp_federator.federation.template import literal_head, reversal, valid
from mcp_federator.log import clean
from mcp_federator.upstream.given import control, template_item

_PREFIX: Final = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*:[^\x00-\x20\x7f{}]*")

_log = logging.getLogger(__name__)


class Mounted(msgspec.Struct, frozen=True):
    """A repository that keeps the rules that can be seen before it is asked.

    Attributes:
        label: names its class in messages.
        prefix: of all its URIs.
        list, read, parse_uri, watch, want, close: its methods.
        template: as an item of the list of templates.
        reversal: finds the variables of a URI; None where there is no template, or `parse_uri` in its place.
        cache_control: a method, or a scope and milliseconds.
    """

    label: str
    prefix: str
    list: Callable[[Any], Any]
    read: Callable[[Any], Any]
    template: bytes | None = None
    reversal: Reversal | None = None
    parse_uri: Callable[[Any], Any] | None = None
    cache_control: Any = None
    watch: Callable[[Callable[..., None]], Any] | None = None
    want: Callable[[bool, frozenset[str]], Any] | None = None
    close: Callable[[], Any] | None = None


def mount(path: str, where: str, options: Mapping[str, Any]) -> Mounted:
    """Import a class, make a repository of it, and look at its rules.

    Args:
        path: of the key in the configuration, for messages.
        where: `module:Class`.
        options: keyword arguments of the class.

    Raises:
        ConfigError: something of this cannot be; the message names the class.
    """
    try:
        return _mounted(path, where, options)
    except ConfigError:
        raise
    except BaseException as problem:
        raise _broken(path, f"{where} cannot be looked at", problem) from problem


def _mounted(path: str, where: str, options: Mapping[str, Any]) -> Mounted:
    module_name, _, class_name = where.partition(":")
    try:
        made: Any = import_module(module_name)
        for part in class_name.split("."):
            made = getattr(made, part)
    except BaseException as problem:
        raise _broken(path, f"{where} cannot be imported", problem) from problem
    if not inspect.isclass(made):
        raise ConfigError(path, f"{where} is no class")
    if inspect.isabstract(made):
        missing = " and ".join(f"`{name}`" for name in sorted(getattr(made, "__abstractmethods__", ())))
        raise ConfigError(path, f"{where} has no {missing}")
    if unfit := _unfit(made, options):
        raise ConfigError(path, f"{where} does not take these options: {unfit}")
    try:
        instance = made(**options)
    except BaseException as problem:
        raise _broken(path, f"{where} could not be made with its options", problem) from problem
    return examine(instance, where, path)


def examine(instance: Any, label: str, path: str) -> Mounted:
    """Look at the rules of a repository; raises `ConfigError`."""
    rules = _Rules(instance, label, path)
    prefix = rules.attribute("prefix")
    if not isinstance(prefix, str) or not _PREFIX.fullmatch(prefix):
        raise rules.refusal(".prefix: expected text that begins with a scheme, such as people: or people://")
    parse_uri = rules.method("parse_uri", "the URI")
    template, found = rules.template(prefix, parsed=parse_uri is not None)
    return Mounted(
        label=label,
        prefix=prefix,
        list=rules.required("list", "the cursor"),
        read=rules.required("read", "what to read"),
        template=template,
        reversal=found,
        parse_uri=parse_uri,
        cache_control=rules.cache_control(),
        watch=rules.method("watch", "what to tell of changes"),
        want=rules.method("want", "whether of lists", "of which URIs"),
        close=rules.method("close"),
    )


class _Rules:
    """One repository under examination."""

    def __init__(self, instance: Any, label: str, path: str) -> None:
        self._instance = instance
        self._label = label
        self._path = path

    def refusal(self, problem: str) -> ConfigError:
        return ConfigError(self._path, f"{self._label}{problem}")

    def attribute(self, name: str) -> Any:
        try:
            return getattr(self._instance, name, None)
        except BaseException as problem:
            raise _broken(self._path, f"{self._label}.{name} cannot be read", problem) from problem

    def required(self, name: str, *arguments: str) -> Callable[..., Any]:
        found = self.method(name, *arguments)
        if found is None:
            raise self.refusal(f" has no `{name}`")
        return found

    def method(self, name: str, *arguments: str) -> Callable[..., Any] | None:
        """A method that takes these arguments, or None where there is none."""
        found: Callable[..., Any] | None = self.attribute(name)
        if found is None:
            return None
        if not callable(found):
            raise self.refusal(f".{name} is no method")
        if inspect.isgeneratorfunction(found) or inspect.isasyncgenfunction(found):
            raise self.refusal(f".{name} yields; expected it to return a result")
        if unfit := _unfit(found, {}, *arguments):
            counted = ("no argument", f"one argument, {', '.join(arguments)}", f"two: {', '.join(arguments)}")
            taken = counted[len(arguments)]
            raise self.refusal(f".{name}: expected it to take {taken} ({unfit})")
        return found

    def template(self, prefix: str, *, parsed: bool) -> tuple[bytes | None, Reversal | None]:
        """The template as an item; and ready to be matched, unless URIs are `parsed` otherwise."""
        given = self.attribute("template")
        if given is None:
            return None, None
        try:
            text, item = template_item(given, type(self._instance).__name__)
            found = None if parsed or not valid(text) else reversal(text)
        except ValueError as problem:
            raise self.refusal(f".template: {problem}") from None
        if misfit := _misfit(text, prefix):
            raise self.refusal(f".template: {misfit}")
        return item, found

    def cache_control(self) -> Any:
        found = self.attribute("cache_control")
        if callable(found):
            return self.method("cache_control", "the URI or None")
        if found is None:
            return None
        try:
            return control(found)
        except ValueError as problem:
            raise self.refusal(f".cache_control: {problem}") from None


def _misfit(template: str, prefix: str) -> str:
    """What is wrong with a template, or `""`."""
    if not valid(template):
        return "expected a URI template (RFC 6570)"
    if not literal_head(template).startswith(prefix):
        return f"expected it to begin with the prefix, {clean(prefix)}"
    return ""


def _unfit(function: Callable[..., Any], options: Mapping[str, Any], *arguments: object) -> str:
    """What is wrong with a call, or `""`; what cannot be looked at is right."""
    try:
        inspect.signature(function).bind(*arguments, **options)
    except TypeError as problem:
        return clean(str(problem))
    except ValueError:
        pass
    return ""


def _broken(path: str, what: str, problem: BaseException) -> ConfigError:
    """Their exception, as one of ours: a reload that meets it must leave the process alone."""
    _log.error("%s", what, exc_info=problem)
    named = f" ({clean(problem.name or '')})" if isinstance(problem, ModuleNotFoundError) else ""
    return ConfigError(path, f"{what}: {type(problem).__name__}{named}")
