"""The command line.

Exit codes: 0 done, 1 it could not be done, 2 the command line or the configuration is wrong.  What was asked
for goes to stdout, what is said about it to stderr, so that output can be piped.
"""

import argparse
import asyncio
import base64
import gc
import hashlib
import json
import os
import sys
import time
from collections.abc import AsyncIterator, Callable, Coroutine, Sequence
from pathlib import Path
from typing import Any, Final

import msgspec
import uvloop

from mcp_federator import __version__, config, log
from mcp_federator.app import App, Federation
from mcp_federator.config import Config
from mcp_federator.errors import ConfigError, FederatorError, UpstreamFailure
from mcp_federator.federator import told
from mcp_federator.metrics import Metrics
from mcp_federator.model import ANYONE, Answer, Method, Query, Source
from mcp_federator.protocol.headers import cache_status
from mcp_federator.upstream.client import Client

_GC_THRESHOLDS: Final = (50_000, 20, 50)
_SERVER: Final = "server"
"""The name of the one upstream that `--url` makes; its prefix is empty, so it never shows."""


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command and give its exit code."""
    parser = _parser()
    options = parser.parse_args(argv)
    try:
        run: Callable[[argparse.Namespace], int] = options.run
        return run(options)
    except ConfigError as error:
        print(f"mcp-federator: {error}", file=sys.stderr)
        return 2
    except UpstreamFailure as failure:
        print(f"mcp-federator: {told(failure).message} {failure.detail}".rstrip(), file=sys.stderr)
        return 1
    except (FederatorError, OSError) as error:
        print(f"mcp-federator: {error}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        return 130


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="mcp-federator",
        description="One MCP endpoint over several MCP servers, cached by their own hints.",
    )
    commands = parser.add_subparsers(required=True, metavar="COMMAND")

    def command(name: str, run: Callable[[argparse.Namespace], int], text: str) -> argparse.ArgumentParser:
        added = commands.add_parser(name, help=text, description=text)
        added.set_defaults(run=run)
        return added

    serve = command("serve", _serve, "Serve the endpoint.")
    _add_upstreams(serve)
    serve.add_argument("--host", help="address to listen on (server.host)")
    serve.add_argument("--port", type=int, help="port of the endpoint (server.port)")
    serve.add_argument("--admin-port", type=int, help="port of the admin listener (server.admin_port)")
    serve.add_argument("--log-format", choices=("text", "json"), help="form of log lines (server.log.format)")

    check = command("check", _check, "Read the configuration, then probe and count each upstream.")
    _add_upstreams(check)

    for name, run, text in (
        ("list", _list_resources, "List the resources of a server or of a configuration."),
        ("templates", _list_templates, "List the resource templates of a server or of a configuration."),
        ("read", _read, "Read one resource."),
    ):
        asking = command(name, run, text)
        if name == "read":
            asking.add_argument("uri", metavar="URI")
        asking.add_argument("--url", help="an MCP server; a running federator is one")
        _add_upstreams(asking)
        asking.add_argument("--json", action="store_true", help="print what the server gave, as JSON")

    command("schema", _schema, "Print the JSON Schema of the configuration.")
    command("version", _version, "Print the version.")
    return parser


def _add_upstreams(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("-c", "--config", type=Path, metavar="FILE", help="configuration, YAML or JSON")
    parser.add_argument("upstreams", nargs="*", metavar="NAME=URL", help="an upstream, without a file")


def _config_of(options: argparse.Namespace) -> Config:
    """The configuration that the arguments name."""
    if options.config is not None:
        if options.upstreams:
            raise ConfigError("", "give either -c FILE or NAME=URL arguments, not both")
        return config.load(options.config, os.environ)
    if not options.upstreams:
        raise ConfigError("", "no upstreams: give -c FILE or NAME=URL arguments")
    pairs = []
    for argument in options.upstreams:
        name, equals, url = argument.partition("=")
        if not equals:
            raise ConfigError("", f"{log.clean(argument)}: expected NAME=URL")
        pairs.append((name, url))
    return config.of_urls(pairs)


def _serve(options: argparse.Namespace) -> int:
    given = _served(options)
    log.configure(given.server.log.format, given.server.log.level)

    async def serve() -> None:
        if options.config is None:
            app = App(given)
        else:
            app = App(given, reload=lambda: _served(options), watch=_digest)
        await app.run(_say_ready)

    _run(serve())
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
    for key in ("host", "port", "admin_port"):
        value = getattr(options, key)
        if value is not None:
            server = msgspec.structs.replace(server, **{key: value})
    return msgspec.structs.replace(given, server=server)


def _say_ready(endpoint: str, admin: str) -> None:
    # What is there now stays; and a request leaves no cycles behind, so there is little to look for.
    gc.collect()
    gc.freeze()
    gc.set_threshold(*_GC_THRESHOLDS)
    print(f"MCP endpoint {endpoint}   admin {admin}", flush=True)


def _run(work: Coroutine[Any, Any, None]) -> None:
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(work)


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

    _run(check())
    heads = ("upstream", "era", "version", "resources", "templates", "time")
    _print_table([heads, *(row.cells for row in rows)])
    return 0 if all(row.good for row in rows) else 1


class _Row(msgspec.Struct):
    """What `check` says of one upstream."""

    cells: tuple[str, ...]
    good: bool


async def _probe(client: Client, given: Config) -> _Row:
    started = time.perf_counter()
    counts: list[str] = []
    problem = ""
    try:
        await client.probe()
        counts = [str(await _count(client, method, given)) for method in (Method.LIST, Method.TEMPLATES)]
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


async def _count(source: Source, method: Method, given: Config) -> int:
    return sum([page.count async for page in _pages(source, method, given)])


async def _pages(source: Source, method: Method, given: Config) -> AsyncIterator[Answer]:
    """All pages of a list, within `lists.max_pages` and `lists.max_items`."""
    cursor: str | None = None
    items = 0
    for _ in range(given.lists.max_pages):
        page = await source.fetch(Query(method, cursor=cursor), ANYONE)
        yield page
        items += page.count
        cursor = page.next_cursor
        if cursor is None:
            return
        if items >= given.lists.max_items:
            break
    _remark(f"stopped after {items} items: the list goes on (lists.max_pages, lists.max_items)")


def _asking(options: argparse.Namespace, ask: Callable[[Source, Config], Coroutine[Any, Any, None]]) -> int:
    """Ask the server that `--url` names, or a federator made for the moment."""
    if options.url is None:
        given = _config_of(options)
    elif options.config is None and not options.upstreams:
        given = config.of_urls([(_SERVER, options.url)])
        bare = msgspec.structs.replace(given.upstreams[_SERVER], prefix="")
        given = msgspec.structs.replace(given, upstreams={_SERVER: bare})
    else:
        raise ConfigError("", "give either --url or upstreams, not both")
    log.configure("text", "error")

    async def work() -> None:
        federation = Federation(given, Metrics(__version__))
        try:
            await federation.apply(given)
            await ask(federation.federator if options.url is None else federation.clients[_SERVER], given)
        finally:
            await federation.close()

    _run(work())
    return 0


def _list_resources(options: argparse.Namespace) -> int:
    return _list(options, Method.LIST, "uri")


def _list_templates(options: argparse.Namespace) -> int:
    return _list(options, Method.TEMPLATES, "uriTemplate")


def _list(options: argparse.Namespace, method: Method, key: str) -> int:
    async def ask(source: Source, given: Config) -> None:
        number = 0
        async for page in _pages(source, method, given):
            number += 1
            items = json.loads(b"[%b]" % page.body)
            if options.json:
                print("\n".join(json.dumps(item, ensure_ascii=False) for item in items))
            else:
                _print_table(
                    [(item[key], item.get("name", ""), item.get("mimeType") or "") for item in items]
                )
            _remark(f"page {number}: {page.count} items, {_hints(page)}")
            for missing in page.incomplete:
                _remark(f"incomplete: {missing.upstream} ({missing.reason})")

    return _asking(options, ask)


def _read(options: argparse.Namespace) -> int:
    async def ask(source: Source, _: Config) -> None:
        answer = await source.fetch(Query(Method.READ, options.uri), ANYONE)
        result = json.loads(b"{%b}" % answer.body)
        if options.json or answer.interim:
            print(json.dumps(result, ensure_ascii=False, indent=2))
        else:
            for content in result["contents"]:
                _print_content(content)
        _remark("the server wants input first" if answer.interim else _hints(answer))

    return _asking(options, ask)


def _print_content(content: dict[str, Any]) -> None:
    _remark(f"{content['uri']} {content.get('mimeType') or ''}".rstrip())
    if "text" in content:
        print(content["text"])
        return
    try:
        data = base64.b64decode(content["blob"])
    except ValueError:
        raise FederatorError("the blob is not base64; --json shows it as it is") from None
    if sys.stdout.isatty():
        _remark(f"{len(data)} bytes; pipe them somewhere to have them")
    else:
        sys.stdout.flush()
        sys.stdout.buffer.write(data)
        sys.stdout.buffer.flush()


def _hints(answer: Answer) -> str:
    # Of a server it is what the server says; a federator made for the moment speaks for itself.
    told_by_caches = answer.served.beyond or cache_status(answer.served)
    return f"ttlMs {answer.hint.ttl_ms}, {answer.hint.scope}, Cache-Status: {told_by_caches}"


def _remark(text: str) -> None:
    sys.stdout.flush()
    print(f"# {text}", file=sys.stderr, flush=True)


def _print_table(rows: Sequence[tuple[str, ...]]) -> None:
    """Columns as wide as their widest cell; what comes from outside is made printable."""
    shown = [tuple(log.clean(cell, 1000) for cell in row) for row in rows]
    columns = max((len(row) for row in shown), default=0)
    # A row with fewer cells ends in free text, which sets no width.
    widths = [max((len(row[at]) for row in shown if at < len(row) - 1), default=0) for at in range(columns)]
    for row in shown:
        print("  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=False)).rstrip())


def _schema(_: argparse.Namespace) -> int:
    print(json.dumps(config.schema(), indent=2))
    return 0


def _version(_: argparse.Namespace) -> int:
    print(f"mcp-federator {__version__}")
    return 0
