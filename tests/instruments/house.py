"""The whole product in this process: a federator on free ports, and a client that says what a test says.

    async with house({"alpha": wire.url}) as it:
        reply = await it.read("alpha+x://1")
        assert reply.result["contents"][0]["text"] == "text"

`it.post` sends a well-formed modern request unless told otherwise; every reply is told as status, header
fields and JSON.
"""

import asyncio
import json
import time
from base64 import b64encode
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Any

import aiohttp
import msgspec
from multidict import CIMultiDictProxy

from mcp_federator import config
from mcp_federator.app import App
from mcp_federator.config import Config

MODERN = "2026-07-28"
PREFIX = "io.modelcontextprotocol/"
PATIENCE = 15.0
"""Seconds after which a start or a stop is a failed test."""


class Reply(msgspec.Struct):
    """What came back."""

    status: int
    headers: CIMultiDictProxy[str]
    body: bytes

    @property
    def message(self) -> Any:
        return json.loads(self.body)

    @property
    def result(self) -> Any:
        message = self.message
        assert "result" in message, message
        return message["result"]

    @property
    def error(self) -> Any:
        message = self.message
        assert "error" in message, message
        return message["error"]

    @property
    def uris(self) -> list[str]:
        result = self.result
        items = result.get("resources", result.get("contents", []))
        return [item["uri"] for item in items]

    @property
    def cache_status(self) -> str:
        return self.headers.get("Cache-Status", "")


def body_of(
    method: str,
    params: Mapping[str, Any] | None = None,
    *,
    id: Any = 1,  # noqa: A002 - the protocol's word
    version: str | None = MODERN,
    capabilities: Any = None,
    meta: Mapping[str, Any] | None = None,
) -> dict[str, Any]:
    """A request with its `_meta`."""
    told: dict[str, Any] = {} if version is None else {PREFIX + "protocolVersion": version}
    told[PREFIX + "clientCapabilities"] = capabilities or {}
    return {
        "jsonrpc": "2.0",
        "id": id,
        "method": method,
        "params": {**(params or {}), "_meta": {**told, **(meta or {})}},
    }


def headers_of(method: str, params: Mapping[str, Any] | None = None) -> dict[str, str]:
    """The header fields that go with a request."""
    headers = {
        "Content-Type": "application/json",
        "Accept": "application/json, text/event-stream",
        "MCP-Protocol-Version": MODERN,
        "Mcp-Method": method,
    }
    uri = (params or {}).get("uri")
    if isinstance(uri, str) and method == "resources/read":
        plain = uri.isascii() and uri.isprintable() and uri == uri.strip() and not uri.startswith("=?base64?")
        headers["Mcp-Name"] = uri if plain else f"=?base64?{b64encode(uri.encode()).decode()}?="
    return headers


class House:
    """A running federator."""

    def __init__(self, app: App, url: str, admin: str, session: aiohttp.ClientSession) -> None:
        self.app = app
        self.url = url
        self.admin = admin
        self.session = session

    async def post(
        self,
        method: str,
        params: Mapping[str, Any] | None = None,
        *,
        headers: Mapping[str, str] | None = None,
        **said: Any,
    ) -> Reply:
        """Send one request; `said` goes to `body_of`, `headers` are added or put in place."""
        return await self.send(
            json.dumps(body_of(method, params, **said)).encode(),
            {**headers_of(method, params), **(headers or {})},
        )

    async def send(self, body: bytes, headers: Mapping[str, str], verb: str = "POST") -> Reply:
        """Send these bytes."""
        async with self.session.request(verb, self.url, data=body, headers=headers) as response:
            return Reply(response.status, response.headers, await response.read())

    async def read(self, uri: str, **how: Any) -> Reply:
        return await self.post("resources/read", {"uri": uri}, **how)

    async def page(self, cursor: str | None = None, method: str = "resources/list", **how: Any) -> Reply:
        return await self.post(method, {} if cursor is None else {"cursor": cursor}, **how)

    async def walk(self, method: str = "resources/list", most: int = 100, **how: Any) -> list[Reply]:
        """All pages of a list."""
        pages = [await self.page(None, method, **how)]
        while (cursor := pages[-1].result.get("nextCursor")) is not None:
            assert len(pages) < most, "the list does not end"
            pages.append(await self.page(cursor, method, **how))
        return pages

    async def get(self, page: str, **how: Any) -> Reply:
        """A page of the admin listener."""
        async with self.session.get(self.admin + page, **how) as response:
            return Reply(response.status, response.headers, await response.read())

    async def status(self) -> Any:
        return (await self.get("/status")).message

    async def samples(self, name: str, **labels: str) -> float:
        """The sum of a metric's samples that bear these labels."""
        total = 0.0
        text = (await self.get("/metrics")).body.decode()
        for line in text.splitlines():
            series, _, value = line.rpartition(" ")
            if series.partition("{")[0] == name and all(
                f'{key}="{word}"' in series for key, word in labels.items()
            ):
                total += float(value)
        return total


def configured(upstreams: Mapping[str, Any], **sections: Any) -> Config:
    """A configuration on free ports; an upstream may be its URL alone."""
    tree: dict[str, Any] = {
        **sections,
        "server": {"port": 0, "admin_port": 0, "grace": 2, **sections.get("server", {})},
        "upstreams": {
            name: {"url": it} if isinstance(it, str) else dict(it) for name, it in upstreams.items()
        },
    }
    return config.parse(json.dumps(tree), source="test", directory=Path(), environ={})


@asynccontextmanager
async def house(
    upstreams: Mapping[str, Any],
    *,
    probed: bool = True,
    clock: Callable[[], float] = time.monotonic,
    **sections: Any,
) -> AsyncIterator[House]:
    """Run a federator over these upstreams until the block ends; `probed` waits until it knows them all."""
    async with running(App(configured(upstreams, **sections), clock=clock)) as it:
        if probed:
            async with asyncio.timeout(PATIENCE):
                while not all(one["era"] or one["error"] for one in (await it.status())["upstreams"]):
                    pass  # each look is a round trip, in which the probes go on
        yield it


@asynccontextmanager
async def running(app: App) -> AsyncIterator[House]:
    """Run this app until the end of the block."""
    told: asyncio.Future[tuple[str, str]] = asyncio.get_running_loop().create_future()
    serving = asyncio.create_task(app.run(lambda url, admin: told.set_result((url, admin))))
    try:
        serving.add_done_callback(lambda _: told.done() or told.cancel())
        async with asyncio.timeout(PATIENCE):
            await asyncio.wait([told])
        if told.cancelled():
            await serving
        url, admin = told.result()
        connector = aiohttp.TCPConnector(limit=0)
        async with aiohttp.ClientSession(
            connector=connector, cookie_jar=aiohttp.DummyCookieJar(), max_field_size=1 << 16
        ) as session:
            yield House(app, url, admin, session)
    finally:
        app.stop()
        with suppress(asyncio.CancelledError):
            async with asyncio.timeout(PATIENCE):
                await serving
