"""A reader that is connected to one server, wherever it is.

The connection is a federation of one upstream, less what a federation adds: no prefix, no cache, hints as
they were given, and no look at the list that the caller has not asked for.
"""

from collections.abc import Sequence
from contextlib import AsyncExitStack
from types import TracebackType
from typing import Any, Final, Self

import msgspec

from mcp_federator import __version__, config
from mcp_federator.client.reader import NO_CONNECTION, SERVER, Reader
from mcp_federator.config import Cache, Config, Duration, Lists, Size, Upstream
from mcp_federator.errors import ConfigError
from mcp_federator.metrics import Metrics
from mcp_federator.stacks import Federation
from mcp_federator.upstream.client import UpstreamStatus

_FOREVER: Final = Duration(10 * 366 * 86_400)
"""Seconds that no hint exceeds in earnest."""


class Client(Reader):
    """A client of one server, to be entered with `async with`.

    Args:
        server: the URL of its MCP endpoint; or a program and its arguments, to be spoken to over stdio; or an
            upstream's settings, in which prefixes mean nothing here.
        settings: keys of `upstreams.NAME` in docs/configuration.md, in the same forms (`timeout="5s"`,
            `headers={...}`, `env={...}`), where `server` is not settings already.

    Raises:
        ConfigError: the settings cannot be used; the paths in its message begin at the upstream.
    """

    def __init__(self, server: str | Sequence[str] | Upstream, **settings: Any) -> None:
        super().__init__()
        self._settings = _settings_of(server, settings)
        self._closing = AsyncExitStack()
        self._federation: Federation | None = None
        self._entered = False

    async def __aenter__(self) -> Self:
        """Connect, and ask the server what it is; raises what every call may raise."""
        if self._entered:
            # The first connection, and a program, would never be closed.
            raise RuntimeError("it is entered already: one use after the other, or a client for each")
        self._entered = True
        try:
            await self._connect()
        except BaseException:
            self._entered = False
            raise
        return self

    async def _connect(self) -> None:
        given = Config(
            upstreams={SERVER: msgspec.structs.replace(self._settings, prefix="", native_prefix="")},
            cache=Cache(memory=Size(0), max_ttl=_FOREVER),
            lists=Lists(max_pages=0),
        )
        async with AsyncExitStack() as undo:
            federation = Federation(given, Metrics(__version__))
            undo.push_async_callback(federation.close)
            await federation.apply(given)
            upstream = federation.clients[SERVER]
            await upstream.probe()
            self._closing = undo.pop_all()
        self._federation, self._source, self._hub = federation, upstream, federation.hub

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        problem: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        await self.close()

    async def close(self) -> None:
        """End all that is under way, every connection, and a program that was started."""
        self._federation = self._source = self._hub = None
        try:
            await self._closing.aclose()
        finally:
            self._entered = False

    @property
    def status(self) -> UpstreamStatus:
        """What is known of the server: its era, the version spoken, its software, how it is reached."""
        if self._federation is None:
            raise RuntimeError(NO_CONNECTION)
        return self._federation.clients[SERVER].status


def _settings_of(server: str | Sequence[str] | Upstream, settings: dict[str, Any]) -> Upstream:
    match server:
        case Upstream():
            if settings:
                raise ConfigError("", "give either settings or keys of them, not both")
            return server
        case str():
            return _made(settings, url=server)
        case [str(command), *arguments]:
            return _made(settings, command=command, args=arguments)
    raise ConfigError("command", "expected a program and its arguments")


def _made(settings: dict[str, Any], **said: Any) -> Upstream:
    for key in said:
        if key in settings:
            raise ConfigError(key, "given twice: the first argument says it already")
    return config.upstream({**said, **settings})
