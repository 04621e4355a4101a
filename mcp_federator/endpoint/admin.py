"""The operators' listener, on a port of its own: `/metrics`, `/healthz`, `/readyz`, `/status`.

It only tells; nothing can be changed through it.  Its readers are probes, Prometheus and people with curl,
and no browser's page: a request with an Origin, or to a Host that is no name of this listener, is refused.

Hazards:
- `/status` names upstreams and their addresses.  It holds no credential, and no path and no user-info of an
  address; whoever makes the callable sees to that (design, section 7).
- Liveness must not depend on anything beyond this process, or a trouble elsewhere restarts every replica.
"""

import logging
from collections.abc import Callable, Mapping
from typing import Any, Final

import msgspec
from aiohttp import web

from mcp_federator import config
from mcp_federator.endpoint import guard
from mcp_federator.endpoint.wire import JSON, Reply
from mcp_federator.metrics import Metrics

_TEXT: Final = b"Content-Type: text/plain; charset=utf-8\r\n"
_NO_STORE: Final = b"Cache-Control: no-store\r\n"
_ALLOW: Final = b"Allow: GET, HEAD\r\n"

_log = logging.getLogger(__name__)


class Admin:
    """The handler of the admin listener: `wire.Server(admin.handle)`.

    Args:
        settings: the `server` section.
        metrics: what `/metrics` shows.
        unready: None while requests are welcome, else a word that says why not (`starting`, `draining`).
        status: what `/status` shows, of any shape that JSON has.
    """

    def __init__(
        self,
        settings: config.Server,
        metrics: Metrics,
        unready: Callable[[], str | None],
        status: Callable[[], Mapping[str, Any]],
    ) -> None:
        self._hosts = guard.Hosts(settings.allowed_hosts, settings.admin_host)
        self._metrics = metrics
        self._unready = unready
        self._status = status
        self._pages: dict[str, Callable[[], Reply]] = {
            "/metrics": self._show_metrics,
            "/healthz": self._show_health,
            "/readyz": self._show_readiness,
            "/status": self._show_status,
        }

    async def handle(self, request: web.BaseRequest) -> web.StreamResponse:
        """Answer one HTTP request; never fails."""
        try:
            reply = self._reply(request)
        except Exception:  # noqa: BLE001 - the listener must outlive a page that fails
            _log.exception("the admin listener failed at a page")
            reply = _text(500, "internal error")
        reply.fields += _NO_STORE
        return reply

    def _reply(self, request: web.BaseRequest) -> Reply:
        # HTTP/1.0 knows no Host; the probes that still speak it send none, and no browser does.
        host = request.headers.get("Host")
        if host is not None and not self._hosts.allow(host):
            return _text(
                403,
                "this Host is not allowed; server.allowed_hosts names those that are, beyond IP addresses",
            )
        if "Origin" in request.headers:
            return _text(403, "no page of a browser may read this")
        page = self._pages.get(request.path)
        if page is None:
            return _text(404, f"there is nothing here but {', '.join(self._pages)}")
        if request.method not in {"GET", "HEAD"}:
            return _text(405, "GET is all there is", _ALLOW)
        return page()

    def _show_metrics(self) -> Reply:
        body, content_type = self._metrics.render()
        return Reply(200, body, b"Content-Type: %b\r\n" % content_type.encode())

    def _show_health(self) -> Reply:
        return _text(200, "ok")

    def _show_readiness(self) -> Reply:
        why = self._unready()
        return _text(200, "ready") if why is None else _text(503, why)

    def _show_status(self) -> Reply:
        body = msgspec.json.format(msgspec.json.encode(self._status()), indent=2)
        return Reply(200, body + b"\n", JSON)


def _text(status: int, text: str, fields: bytes = b"") -> Reply:
    return Reply(status, text.encode() + b"\n", _TEXT + fields)
