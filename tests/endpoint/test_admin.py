import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest

from mcp_federator import config
from mcp_federator.endpoint.admin import Admin
from mcp_federator.endpoint.wire import Server
from mcp_federator.metrics import Metrics
from tests.endpoint.door import Client, Response, run


class Process:
    """What the admin listener shows."""

    def __init__(self) -> None:
        self.why: str | None = None
        self.state: Any = {"upstreams": {"docs": {"up": True}}}

    def status(self) -> Any:
        return self.state


@asynccontextmanager
async def listening(process: Process, settings: config.Server | None = None) -> AsyncIterator[Client]:
    """A connection to an admin listener."""
    admin = Admin(settings or config.Server(), Metrics("0"), lambda: process.why, process.status)
    web_server = Server(admin.handle)
    server = await asyncio.get_running_loop().create_server(web_server, "127.0.0.1", 0)
    client = Client(*await asyncio.open_connection("127.0.0.1", server.sockets[0].getsockname()[1]))
    try:
        yield client
    finally:
        await client.close()
        server.close()
        await web_server.shutdown(1)


async def ask(
    head: str,
    process: Process | None = None,
    settings: config.Server | None = None,
    *,
    head_only: bool = False,
) -> Response:
    async with listening(process or Process(), settings) as client:
        await client.send(head.replace("\n", "\r\n").encode() + b"\r\n\r\n")
        return await client.receive(head_only=head_only)


GET = "GET {} HTTP/1.1\nHost: 127.0.0.1:8081"


def test_metrics_are_shown() -> None:
    """Prometheus gets its text with its content type."""
    response = run(ask(GET.format("/metrics")))
    assert response.status == 200
    assert (response.header("Content-Type") or "").startswith("text/plain; version=")
    assert b"mcp_federator_build_info" in response.body


@pytest.mark.parametrize(
    ("path", "why", "status", "body"),
    [
        ("/healthz", None, 200, b"ok\n"),
        ("/healthz", "draining", 200, b"ok\n"),
        ("/readyz", None, 200, b"ready\n"),
        ("/readyz", "draining", 503, b"draining\n"),
        ("/readyz?verbose", None, 200, b"ready\n"),
    ],
)
def test_probes(path: str, why: str | None, status: int, body: bytes) -> None:
    """Liveness is of the process alone; readiness is what the process says of itself."""
    process = Process()
    process.why = why
    response = run(ask(GET.format(path), process))
    assert (response.status, response.body) == (status, body)
    assert response.header("Cache-Control") == "no-store"


def test_status_is_json() -> None:
    """`/status` shows what it is given."""
    response = run(ask(GET.format("/status")))
    assert json.loads(response.body) == {"upstreams": {"docs": {"up": True}}}
    assert response.header("Content-Type") == "application/json"


def test_head_has_no_body() -> None:
    """A HEAD gets the head that a GET would get, and nothing behind it."""

    async def body() -> None:
        async with listening(Process()) as client:
            await client.send(b"HEAD /healthz HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n")
            assert (await client.receive(head_only=True)).header("Content-Length") == "3"
            await client.send(b"GET /healthz HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n")
            assert (await client.receive()).body == b"ok\n"

    run(body())


@pytest.mark.parametrize(
    ("head", "status"),
    [
        ("GET /nowhere HTTP/1.1\nHost: 127.0.0.1", 404),
        ("GET / HTTP/1.1\nHost: 127.0.0.1", 404),
        ("POST /healthz HTTP/1.1\nHost: 127.0.0.1\nContent-Length: 0", 405),
        ("OPTIONS /metrics HTTP/1.1\nHost: 127.0.0.1", 405),
        ("GET /metrics HTTP/1.1\nHost: evil.test", 403),
        ("GET /metrics HTTP/1.1\nHost: 127.0.0.1.evil.test:8081", 403),
        ("GET /nowhere HTTP/1.1\nHost: evil.test", 403),
        ("GET /status HTTP/1.1\nHost: 127.0.0.1\nOrigin: http://localhost", 403),
        ("GET /status HTTP/1.1\nHost: 127.0.0.1\nOrigin: null", 403),
        ("GET /status HTTP/1.1\nHost: localhost:8081", 200),
        ("GET /status HTTP/1.1\nHost: [::1]:8081", 200),
        ("GET /status HTTP/1.1\nHost: 10.0.0.7:8081", 200),
        ("GET /status HTTP/1.1\nHost: Metrics.internal", 200),
        ("GET /healthz HTTP/1.0", 200),
    ],
)
def test_H36_admin_answers_no_page_of_a_browser(head: str, status: int) -> None:
    """Host is an address or a configured name and Origin absent, for every page and method."""
    response = run(ask(head, settings=config.Server(allowed_hosts=("metrics.internal",))))
    assert response.status == status


def test_admin_goes_on_after_a_page_that_failed(caplog: pytest.LogCaptureFixture) -> None:
    """An exception while a page is made is a 500, one traceback, and nothing more."""

    async def body() -> None:
        process = Process()
        process.state = {"object": object()}
        async with listening(process) as client:
            await client.send(GET.format("/status").replace("\n", "\r\n").encode() + b"\r\n\r\n")
            assert (await client.receive()).status == 500
            await client.send(b"GET /healthz HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n")
            assert (await client.receive()).status == 200

    run(body())
    assert [record.exc_info is not None for record in caplog.records] == [True]
