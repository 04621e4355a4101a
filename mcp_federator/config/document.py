"""Text of a configuration file -> a tree of dict, list, str, int, float, bool and None.

JSON is read as JSON, everything else as YAML with the core schema of YAML 1.2: `on`, `no`, `1:30`, `0123` and
dates are what they look like, not what YAML 1.1 made of them.  No tag makes an object, `<<` merges nothing.

Hazards:
- A few lines of aliases can stand for gigabytes: nodes are counted as they are expanded.
- A message quotes keys and positions, never a value: any value can be a secret, also one that YAML takes for
  an alias (`*word`) or a tag (`!word`) because its quotes were forgotten.
"""

import json
import math
import re
from typing import Any, Final, NoReturn

import yaml

from mcp_federator.errors import ConfigError

_MAX_NODES: Final = 50_000
_MAX_DEPTH: Final = 32

_NULL: Final = "tag:yaml.org,2002:null"
_BOOL: Final = "tag:yaml.org,2002:bool"
_INT: Final = "tag:yaml.org,2002:int"
_FLOAT: Final = "tag:yaml.org,2002:float"
_STR: Final = "tag:yaml.org,2002:str"
_COLLECTIONS: Final[dict[type[yaml.Node], str]] = {
    yaml.SequenceNode: "tag:yaml.org,2002:seq",
    yaml.MappingNode: "tag:yaml.org,2002:map",
}

# YAML 1.2.2, section 10.3.2, less `.inf` and `.nan`, which no key can mean.
_CORE: Final = {
    _NULL: re.compile(r"(?:~|null|Null|NULL|)\Z"),
    _BOOL: re.compile(r"(?:true|True|TRUE|false|False|FALSE)\Z"),
    _INT: re.compile(r"(?:[-+]?[0-9]+|0o[0-7]+|0x[0-9a-fA-F]+)\Z"),
    _FLOAT: re.compile(r"[-+]?(?:\.[0-9]+|[0-9]+(?:\.[0-9]*)?)(?:[eE][-+]?[0-9]+)?\Z"),
}


class _Loader(yaml.SafeLoader):
    """PyYAML's parser with the core schema alone."""

    yaml_implicit_resolvers: dict[str, list[tuple[str, re.Pattern[str]]]] = {}  # noqa: RUF012 - PyYAML's


for _tag, _pattern in _CORE.items():
    _Loader.add_implicit_resolver(_tag, _pattern, None)


def read(text: str, source: str, problems: list[ConfigError]) -> Any:
    """The tree that `text` stands for.

    Adds to `problems` what leaves a tree to go on with (a key that stands twice); raises `ConfigError` for
    text that is no tree at all.  A `source` whose name ends in `.json` allows nothing but JSON.
    """
    text = text.removeprefix("\ufeff")
    builder = _Builder(problems)
    try:
        if text.lstrip().startswith("{") or source.endswith(".json"):
            try:
                pairs = json.loads(text, object_pairs_hook=_Pairs, parse_constant=_refuse_constant)
            except json.JSONDecodeError as error:
                if source.endswith(".json"):
                    raise ConfigError("", f"no JSON: {error.msg}, line {error.lineno}") from None
            else:
                return builder.of_json(pairs, "", 0)
        node = yaml.compose(text, Loader=_Loader)
        return None if node is None else builder.of_yaml(node, "", 0)
    except yaml.YAMLError as error:
        raise ConfigError("", f"no YAML: {_explain(error, text)}") from None
    except RecursionError:
        raise ConfigError("", f"expected at most {_MAX_DEPTH} levels") from None
    except ValueError:  # an integer of thousands of digits, or NaN in JSON
        raise ConfigError("", "expected finite numbers of reasonable size") from None


def scalar(text: str) -> str | int | float | bool | None:
    """What `text` means where no quotes stand around it; raises ValueError for a number out of bounds."""
    return _value(next((tag for tag, pattern in _CORE.items() if pattern.match(text)), _STR), text)


class _Pairs(list[tuple[str, Any]]):
    """A JSON object before its keys were compared."""


class _Builder:
    def __init__(self, problems: list[ConfigError]) -> None:
        self._problems = problems
        self._nodes = 0

    def of_json(self, value: Any, path: str, depth: int) -> Any:
        self._count(depth)
        if isinstance(value, _Pairs):
            tree: dict[str, Any] = {}
            for key, item in value:
                if key in tree:
                    self._problems.append(ConfigError(join(path, key), "expected once, stands twice"))
                else:
                    tree[key] = self.of_json(item, join(path, key), depth + 1)
            return tree
        if isinstance(value, list):
            return [self.of_json(item, f"{path}[{index}]", depth + 1) for index, item in enumerate(value)]
        if isinstance(value, float) and not math.isfinite(value):
            raise ValueError
        return value

    def of_yaml(self, node: yaml.Node, path: str, depth: int) -> Any:
        self._count(depth)
        if not _has_own_tag(node):
            line = node.start_mark.line + 1
            raise ConfigError(path, f"expected no tag, line {line}: put text that begins with ! in quotes")
        if isinstance(node, yaml.MappingNode):
            tree: dict[str, Any] = {}
            for key_node, item in node.value:
                key_line = key_node.start_mark.line + 1
                if not isinstance(key_node, yaml.ScalarNode) or key_node.tag != _STR:
                    self._problems.append(
                        ConfigError(path, f"expected keys that are text, line {key_line}: put it in quotes")
                    )
                elif key_node.value in tree:
                    self._problems.append(
                        ConfigError(
                            join(path, key_node.value), f"expected once, stands again in line {key_line}"
                        )
                    )
                else:
                    tree[key_node.value] = self.of_yaml(item, join(path, key_node.value), depth + 1)
            return tree
        if isinstance(node, yaml.SequenceNode):
            return [
                self.of_yaml(item, f"{path}[{index}]", depth + 1) for index, item in enumerate(node.value)
            ]
        return _value(node.tag, node.value)

    def _count(self, depth: int) -> None:
        self._nodes += 1
        if self._nodes > _MAX_NODES:
            raise ConfigError("", f"expected at most {_MAX_NODES} values, aliases expanded")
        if depth > _MAX_DEPTH:
            raise ConfigError("", f"expected at most {_MAX_DEPTH} levels")


def join(path: str, key: str) -> str:
    """The path of a key below `path`; a key with odd characters is quoted and cut."""
    shown = key if re.fullmatch(r"[0-9A-Za-z_+-]{1,64}", key) else repr(key[:64])
    return f"{path}.{shown}" if path else shown


def _has_own_tag(node: yaml.Node) -> bool:
    """Whether the tag is the one the node would have without it, or makes text of a scalar."""
    if isinstance(node, yaml.ScalarNode):
        return node.tag == _STR or (node.tag in _CORE and bool(_CORE[node.tag].match(node.value)))
    return node.tag == _COLLECTIONS[type(node)]


def _value(tag: str, text: str) -> str | int | float | bool | None:
    if tag == _STR:
        return text
    if tag == _NULL:
        return None
    if tag == _BOOL:
        return text.lower() == "true"
    if tag == _INT:
        return int(text, 0) if text.startswith(("0o", "0x")) else int(text)
    number = float(text)
    if not math.isfinite(number):
        raise ValueError
    return number


def _refuse_constant(_: str) -> NoReturn:
    raise ValueError


def _explain(error: yaml.YAMLError, text: str) -> str:
    if isinstance(error, yaml.reader.ReaderError):
        return f"a character that may not stand there, line {text.count(chr(10), 0, error.position) + 1}"
    if not isinstance(error, yaml.MarkedYAMLError) or error.problem_mark is None:
        return "it cannot be read"
    problem = error.problem or ""
    if "tag handle" in problem:
        problem = "an unknown tag; put text that begins with ! in quotes"
    elif isinstance(error, yaml.composer.ComposerError):
        problem = {
            "expected a single document in the stream": "expected a single document",
            None: "an alias without its anchor; put text that begins with * in quotes",
        }.get(error.context, "an anchor that is defined twice")
    return f"{problem}, line {error.problem_mark.line + 1}, column {error.problem_mark.column + 1}"
