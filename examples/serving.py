"""Runs one example server: a port to listen on, one line when it listens, exit 0 on Ctrl-C or SIGTERM."""

import argparse
import signal
import socket

import uvicorn
from starlette.types import ASGIApp


class _Server(uvicorn.Server):
    """uvicorn, which says in one line where it listens."""

    def __init__(self, name: str, config: uvicorn.Config) -> None:
        super().__init__(config)
        self.name = name

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        port = self.servers[0].sockets[0].getsockname()[1]
        print(f"{self.name} listens on http://127.0.0.1:{port}/mcp", flush=True)


def port(default: int) -> int:
    """The port asked for on the command line; 0 lets the system choose one."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--port", type=int, default=default, help="port to listen on (default: %(default)s)")
    return int(parser.parse_args().port)


def serve(name: str, app: ASGIApp, port: int) -> None:
    """Serve `app` on the loopback interface until a signal ends it."""
    # uvicorn raises the signal that ended it once more when it is done; by then it has done its work.
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, lambda *_: None)
    config = uvicorn.Config(
        app, host="127.0.0.1", port=port, log_level="warning", ws="none", timeout_graceful_shutdown=3
    )
    _Server(name, config).run()
