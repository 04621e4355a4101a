"""The command line.

Exit codes: 0 done, 1 it could not be done, 2 the command line or the configuration is wrong, 3 a list was
printed as far as it could be had; 130 and 141 for Ctrl-C and a pipe that nobody reads, as shells have them.
What was asked for goes to stdout, what is said about it to stderr, so that output can be piped.
"""

import argparse
import asyncio
import gc
import hashlib
import json
import os
import re
import sys
import threading
import time
from collections.abc import AsyncIterator, Callable, Coroutine, Sequence
from operator import attrgetter
from pathlib import Path
from typing import Any, Final, TypeAlias

import msgspec

from mcp_federator import __version__, config, ending, log
from mcp_federator.app import App
from mcp_federator.client import Change, Client, Content, ListTooLongError, Page, Reader, ReadResult
from mcp_federator.config import Config, Lists
from mcp_federator.errors import ConfigError, FederatorError, UpstreamFailure
from mcp_federator.federator import told
from mcp_federator.form import Form
from mcp_federator.metrics import Metrics
from mcp_federator.stacks import Federation, invalidate, load
from mcp_federator.terminal import ask_line, leave_streams, open_streams, print_table, remark
from mcp_federator.upstream.repository import AnyClient

_GC_THRESHOLDS: Final = (50_000, 20, 50)
_VERSION: Final = f"mcp-federator {__version__}"
_INCOMPLETE: Final = 3
_INTERRUPTED: Final = 130
_NOBODY_READS: Final = 141


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command and give its exit code."""
    others = threading.enumerate()
    open_streams()
    try:
        code = _obey(list(sys.argv[1:] if argv is None else argv))
        sys.stdout.flush()
    except BrokenPipeError:
        leave_streams()
        code = _NOBODY_READS
    except KeyboardInterrupt:
        code = _INTERRUPTED
    return ending.leave(code, others)


def _obey(words: list[str]) -> int:
    own, command = _split(words)
    parser = _parser()
    options = parser.parse_args(own)
    if command is not None and not hasattr(options, "command"):
        parser.error("a command after -- is for list, templates, read and listen")
    options.command = command
    try:
        run: Callable[[argparse.Namespace], int] = options.run
        return run(options)
    except BrokenPipeError:
        raise
    except ConfigError as error:
        print(f"mcp-federator: {error}", file=sys.stderr)
        return 2
    except UpstreamFailure as failure:
        print(f"mcp-federator: {told(failure).message} {failure.detail}".rstrip(), file=sys.stderr)
        return 1
    except (FederatorError, OSError) as error:
        print(f"mcp-federator: {error}", file=sys.stderr)
        return 1


def _split(words: list[str]) -> tuple[list[str], list[str] | None]:
    """What stands before `--`, and the server's command behind it; None where there is no `--`."""
    if "--" not in words:
        return words, None
    at = words.index("--")
    return words[:at], words[at + 1 :]


class _Command(argparse.ArgumentParser):
    """The parser of one command, whose options may stand anywhere among its arguments."""

    _mixed = False

    def parse_known_args(  # type: ignore[override] # typeshed has it overloaded by the namespace's type
        self, args: Sequence[str] | None = None, namespace: argparse.Namespace | None = None
    ) -> tuple[argparse.Namespace, list[str]]:
        if self._mixed:  # the other calls this one
            return super().parse_known_args(args, namespace)
        self._mixed = True
        try:
            return self.parse_known_intermixed_args(args, namespace)
        finally:
            self._mixed = False


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="mcp-federator",
        description="One MCP endpoint over several MCP servers, cached by their own hints.",
    )
    parser.add_argument("--version", action="version", version=_VERSION)
    commands = parser.add_subparsers(required=True, metavar="COMMAND", parser_class=_Command)

    def command(name: str, run: Callable[[argparse.Namespace], int], text: str) -> argparse.ArgumentParser:
        added = commands.add_parser(name, help=text, description=text)
        added.set_defaults(run=run)
        return added

    serve = command("serve", _serve, "Serve the endpoint.")
    _add_upstreams(serve)
    serve.add_argument("--host", help="address to listen on (server.host)")
    serve.add_argument("--port", type=int, help="port of the endpoint (server.port)")
    serve.add_argument("--admin-port", type=int, help="port of the admin listener (server.admin_port)")
    serve.add_argument("--redis", metavar="URL", help="Redis that processes share (cache.redis.url)")
    serve.add_argument("--log-format", choices=("text", "json"), help="form of log lines (server.log.format)")

    check = command("check", _check, "Read the configuration, then probe and count each upstream.")
    _add_upstreams(check)

    for name, run, text in (
        ("list", _list_resources, "List the resources of a server or of a configuration."),
        ("templates", _list_templates, "List the resource templates of a server or of a configuration."),
        ("read", _read, "Read one resource."),
        ("listen", _listen, "Print a line for each change, until interrupted."),
    ):
        asking = command(name, run, text)
        asking.set_defaults(command=None)
        asking.epilog = (
            "A server that is spoken to over stdio is given as its command: -- COMMAND ARGUMENT..."
        )
        if name == "read":
            asking.add_argument("uri", metavar="URI")
            asking.add_argument("--input", action="store_true", help="ask here what the server wants to know")
        if name == "listen":
            asking.add_argument("--lists", action="store_true", help="of the lists too; without a URI always")
        asking.add_argument("--url", help="an MCP server; a running federator is one")
        asking.add_argument(
            "--header",
            action="append",
            default=[],
            metavar="'NAME: VALUE'",
            help="header field to send to --url; ${VAR} and ${file:PATH} keep a secret off the command line",
        )
        _add_upstreams(
            asking, *(("URI or NAME=URL", "a resource, or an upstream") if name == "listen" else ())
        )
        asking.add_argument("--json", action="store_true", help="print what the server gave, as JSON")

    forget = command(
        "invalidate", _invalidate, "Make all processes that share a Redis fetch anew what they keep."
    )
    forget.add_argument("-c", "--config", type=Path, metavar="FILE", required=True, help="as they serve it")
    forget.add_argument("--redis", metavar="URL", help="Redis that they share (cache.redis.url)")
    forget.add_argument("upstream", metavar="UPSTREAM", help="the name of an upstream")
    forget.add_argument("uri", nargs="?", metavar="URI", help="one resource, as clients see it")
    forget.set_defaults(upstreams=[])

    command("schema", _schema, "Print the JSON Schema of the configuration.")
    command("version", _version, "Print the version.")
    return parser


def _add_upstreams(
    parser: argparse.ArgumentParser, what: str = "NAME=URL", means: str = "an upstream, without a file"
) -> None:
    parser.add_argument("-c", "--config", type=Path, metavar="FILE", help="configuration, YAML or JSON")
    parser.add_argument("upstreams", nargs="*", metavar=what, help=means)


def _config_of(options: argparse.Namespace) -> Config:
    """The configuration that the arguments name."""
    if options.config is not None:
        if options.upstreams:
            raise ConfigError("", "give either -c FILE or NAME=URL arguments, not both")
        given = load(options.config, os.environ)
        if not given.upstreams:
            # A file that was emptied, or is being written, must not take everything down on a reload.
            for note in given.notes:
                remark(note)
            expected = "expected at least one server under `upstreams` or `mcpServers`"
            raise ConfigError("", expected, source=str(options.config))
        if options.run is not _serve:  # which has a log
            for note in given.notes:
                remark(note)
        return given
    if not options.upstreams:
        raise ConfigError("", "no upstreams: give -c FILE or NAME=URL arguments")
    pairs = []
    for argument in options.upstreams:
        name, equals, url = argument.partition("=")
        if not equals:
            raise ConfigError("", "expected NAME=URL, found an argument without =")
        pairs.append((name, url))
    return config.of_urls(pairs, os.environ.get("MCP_FEDERATOR_SECRET", ""))


def _serve(options: argparse.Namespace) -> int:
    given = _served(options)
    log.configure(given.server.log.format, given.server.log.level)

    async def serve() -> None:
        if options.config is None:
            app = App(given)
        else:
            app = App(given, reload=lambda: _served(options), watch=_digest)
        await app.run(_say_ready)

    ending.run(serve())
    return 0


def _digest(given: Config) -> bytes:
    """Another value whenever a file the configuration was read from holds something else or is not there."""
    seen = hashlib.sha256(usedforsecurity=False)
    for path in given.files:
        try:
            seen.update(path.read_bytes())
        except OSError as problem:
            seen.update(repr(problem.errno).encode())
        seen.update(b"\x00")
    return seen.digest()


def _served(options: argparse.Namespace) -> Config:
    """The configuration to serve; what the command line says goes before what the file says."""
    given = _config_of(options)
    server = given.server
    if options.log_format is not None:
        server = msgspec.structs.replace(
            server, log=msgspec.structs.replace(server.log, format=options.log_format)
        )
    keys = {key: getattr(options, key) for key in ("host", "port", "admin_port")}
    return config.with_options(
        msgspec.structs.replace(given, server=server),
        {key: value for key, value in keys.items() if value is not None},
        redis=options.redis,
    )


def _say_ready(endpoint: str, admin: str) -> None:
    # What is there now stays; and a request leaves no cycles behind, so there is little to look for.
    gc.collect()
    gc.freeze()
    gc.set_threshold(*_GC_THRESHOLDS)
    try:
        print(f"MCP endpoint {endpoint}   admin {admin}", flush=True)
    except BrokenPipeError:  # whoever started us has read enough
        leave_streams()


def _check(options: argparse.Namespace) -> int:
    given = _config_of(options)
    log.configure("text", "error")
    rows: list[_Row] = []

    async def check() -> None:
        federation = Federation(given, Metrics(__version__))
        try:
            await federation.apply(given)
            rows.extend(
                await asyncio.gather(*(_probe(client, given) for client in federation.clients.values()))
            )
        finally:
            await federation.close()

    ending.run(check())
    heads = ("upstream", "era", "version", "resources", "templates", "time")
    print_table([heads, *(row.cells for row in rows)])
    return 0 if all(row.good for row in rows) else 1


class _Row(msgspec.Struct):
    """What `check` says of one upstream."""

    cells: tuple[str, ...]
    good: bool


async def _probe(client: AnyClient, given: Config) -> _Row:
    started = time.perf_counter()
    counts: list[str] = []
    problem = ""
    try:
        await client.probe()
        reader = Reader(client)
        most = {"max_pages": given.lists.max_pages, "max_items": given.lists.max_items}
        walks: list[AsyncIterator[Page[Any]]] = [reader.pages(**most), reader.template_pages(**most)]
        counts = [str(await _count(walk, client.status.name)) for walk in walks]
    except UpstreamFailure as failure:
        problem = f"{failure.reason}: {failure.detail}" if failure.detail else failure.reason
    except FederatorError as error:
        problem = str(error)
    took = f"{(time.perf_counter() - started) * 1000:.0f} ms"
    status = client.status
    era, version = status.era or "-", status.version or "-"
    if problem:
        return _Row((status.name, era, version, log.clean(problem)), good=False)
    return _Row((status.name, era, version, *counts, took), good=True)


async def _count(pages: AsyncIterator[Page[Any]], name: str) -> int:
    items = 0
    try:
        async for page in pages:
            items += len(page.items)
    except ListTooLongError as bound:
        remark(f"{name}: {bound}")
    return items


_Ask: TypeAlias = Callable[[Reader, Lists], Coroutine[Any, Any, int]]
"""Asks, prints what was asked for, and gives the exit code."""


def _asking(options: argparse.Namespace, ask: _Ask) -> int:
    """Ask the server that `--url` or a command names, or a federator made for the moment."""
    ways = (options.url is not None, options.command is not None, bool(options.config or options.upstreams))
    if sum(ways) > 1:
        raise ConfigError("", "give one of --url, -- COMMAND and upstreams, not both")
    if options.header and options.url is None:
        raise ConfigError("--header", "expected --url beside it; a file has `headers` for each upstream")
    log.configure("text", "error")
    if options.url is not None:
        keys = {"url": options.url, "headers": _fields(options.header)}
        return ending.run(_ask_server(Client(config.upstream(keys, os.environ)), ask))
    if options.command is not None:
        return ending.run(_ask_server(Client(options.command), ask))
    return ending.run(_ask_federation(_config_of(options), ask))


def _fields(given: Sequence[str]) -> dict[str, str]:
    """Header fields as they are written in HTTP."""
    fields: dict[str, str] = {}
    for field in given:
        name, colon, value = field.partition(":")
        if not colon or name in fields:
            raise ConfigError("--header", "expected 'NAME: VALUE', each name once")
        fields[name] = value.strip(" \t")
    return fields


async def _ask_server(client: Client, ask: _Ask) -> int:
    async with client:
        return await ask(client, Lists())


async def _ask_federation(given: Config, ask: _Ask) -> int:
    federation = Federation(given, Metrics(__version__))
    try:
        await federation.apply(given)
        return await ask(Reader(federation.federator, federation.hub), given.lists)
    finally:
        await federation.close()


def _list_resources(options: argparse.Namespace) -> int:
    async def ask(reader: Reader, lists: Lists) -> int:
        pages = reader.pages(max_pages=lists.max_pages, max_items=lists.max_items)
        return await _print_pages(pages, options, attrgetter("uri", "name", "mime_type"))

    return _asking(options, ask)


def _list_templates(options: argparse.Namespace) -> int:
    async def ask(reader: Reader, lists: Lists) -> int:
        pages = reader.template_pages(max_pages=lists.max_pages, max_items=lists.max_items)
        return await _print_pages(pages, options, attrgetter("uri_template", "name", "mime_type"))

    return _asking(options, ask)


async def _print_pages(
    pages: AsyncIterator[Page[Any]], options: argparse.Namespace, row: Callable[[Any], tuple[str | None, ...]]
) -> int:
    number = 0
    code = 0
    try:
        async for page in pages:
            number += 1
            if options.json:
                for item in page.items:
                    print(json.dumps(item.members, ensure_ascii=False))
            else:
                print_table([tuple(cell or "" for cell in row(item)) for item in page.items])
            remark(f"page {number}: {len(page.items)} items, {_hints(page)}")
            for missing in page.incomplete:
                remark(f"incomplete: {missing.upstream} ({missing.reason})")
                code = _INCOMPLETE
    except ListTooLongError as bound:
        remark(str(bound))
        code = _INCOMPLETE
    return code


def _read(options: argparse.Namespace) -> int:
    async def ask(reader: Reader, _: Lists) -> int:
        if options.input:
            form = Form(_name_of(reader), remark, ask_line)
            result = await reader.read_with_input(options.uri, form.fill_in)
        else:
            result = await reader.read_result(options.uri)
        interim = bool(result.input_requests or result.request_state)
        if options.json or interim:
            print(json.dumps(result.members, ensure_ascii=False, indent=2))
        else:
            for content in result.contents:
                _print_content(content)
        remark("the server wants input first: --input asks for it" if interim else _hints(result))
        return 0

    return _asking(options, ask)


_NAMED: Final = re.compile(r"[^:/?#]*=")
"""How an upstream begins, and no URI does: before its colon there is no `=`."""


def _apart(options: argparse.Namespace) -> list[str]:
    """The URIs among the arguments; what is left there are upstreams."""
    # Where something else says whom to ask, each argument is a URI.
    known = options.url is not None or options.command is not None or options.config is not None
    uris = [word for word in options.upstreams if known or not _NAMED.match(word)]
    options.upstreams = [word for word in options.upstreams if word not in uris]
    return uris


def _listen(options: argparse.Namespace) -> int:
    uris = _apart(options)

    async def ask(reader: Reader, _: Lists) -> int:
        async with reader.listen(*uris, lists=options.lists or not uris) as changes:
            if not (changes.lists or changes.uris):
                raise FederatorError("the server does not tell of these changes")
            for uri in uris:
                if uri not in changes.uris:
                    remark(log.clean(f"not told: {uri}", 1000))
            if options.lists and not changes.lists:
                remark("not told: the lists")
            remark("listening")
            async for change in changes:
                _print_change(change, as_json=options.json)
        return 0

    return _asking(options, ask)


def _print_change(change: Change, *, as_json: bool) -> None:
    said = {"change": "list_changed"} if change.uri is None else {"change": "updated", "uri": change.uri}
    line = json.dumps(said, ensure_ascii=False) if as_json else log.clean(" ".join(said.values()), 1000)
    print(line, flush=True)


def _name_of(reader: Reader) -> str:
    """What the one who asks is called before people."""
    return reader.status.address if isinstance(reader, Client) else "an upstream of this configuration"


def _print_content(content: Content) -> None:
    remark(log.clean(f"{content.uri} {content.mime_type or ''}".rstrip(), 1000))
    if content.text is not None:
        print(content.text)
        return
    try:
        data = content.data
    except ValueError:
        raise FederatorError("the blob is not base64; --json shows it as it is") from None
    if sys.stdout.isatty():
        remark(f"{len(data)} bytes; pipe them somewhere to have them")
    else:
        sys.stdout.flush()
        sys.stdout.buffer.write(data)
        sys.stdout.buffer.flush()


def _hints(given: Page[Any] | ReadResult) -> str:
    """Of a server it is what the server says; a federator made for the moment speaks for itself."""
    told_by_caches = f", Cache-Status: {given.cache_status}" if given.cache_status else ""
    return f"ttlMs {given.ttl_ms}, {given.cache_scope}{told_by_caches}"


def _invalidate(options: argparse.Namespace) -> int:
    log.configure("text", "error")
    given = config.with_options(_config_of(options), {}, redis=options.redis)
    ending.run(invalidate(given, options.upstream, options.uri))
    return 0


def _schema(_: argparse.Namespace) -> int:
    print(json.dumps(config.schema(), indent=2))
    return 0


def _version(_: argparse.Namespace) -> int:
    print(_VERSION)
    return 0
