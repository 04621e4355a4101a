"""An MCP server over HTTP, of the 2025 revisions, in plain Python without any library.

It is what most servers in the field are: a handshake that begins a session, and no word on how long its
answers hold.  The federator finds out by itself; how long to keep them stands in its configuration.
"""

import argparse
import json
import secrets
import signal
import threading
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from types import FrameType

from answering import Answers, page, text

ENTRIES = {
    f"ledger://2026/{month:02}": f"Month {month}: {sold} sold, {returned} returned."
    for month, (sold, returned) in enumerate([(31, 2), (28, 0), (40, 5), (37, 1), (44, 3), (52, 4)], start=1)
}
MAX_BODY = 1 << 20


answers = Answers(
    "ledger",
    {
        "resources/list": lambda params: page(
            [{"uri": uri, "name": uri.rpartition("//")[2]} for uri in ENTRIES], params
        ),
        "resources/templates/list": lambda _: {
            "resourceTemplates": [{"uriTemplate": "ledger://{year}/{month}", "name": "a month"}]
        },
        "resources/read": lambda params: text(uri := params.get("uri"), ENTRIES.get(str(uri))),
    },
)


class Handler(BaseHTTPRequestHandler):
    """One connection: POST asks, DELETE ends a session, and there is no stream to GET."""

    protocol_version = "HTTP/1.1"
    # The head and the body go out apart; without this the second waits for the first one's receipt.
    disable_nagle_algorithm = True
    timeout = 60
    sessions: set[str] = set()  # noqa: RUF012 - of all connections

    def do_POST(self) -> None:
        """Answer one message."""
        length = self.headers.get("Content-Length", "")
        if not (length.isdecimal() and int(length) <= MAX_BODY):
            self.close_connection = True
            self.reply(HTTPStatus.LENGTH_REQUIRED)
            return
        message = json.loads(self.rfile.read(int(length)))
        session = self.headers.get("Mcp-Session-Id")
        if message.get("method") == "initialize":
            session = secrets.token_urlsafe(16)
            self.sessions.add(session)
        elif session is None:
            self.reply(HTTPStatus.BAD_REQUEST)
            return
        elif session not in self.sessions:
            self.reply(HTTPStatus.NOT_FOUND)
            return
        if "id" in message and "method" in message:
            self.reply(HTTPStatus.OK, {"jsonrpc": "2.0", "id": message["id"], **answers(message)}, session)
        else:
            self.reply(HTTPStatus.ACCEPTED)

    def do_DELETE(self) -> None:
        """End a session."""
        self.sessions.discard(self.headers.get("Mcp-Session-Id", ""))
        self.reply(HTTPStatus.NO_CONTENT)

    def do_GET(self) -> None:
        """There is nothing that we would say unasked."""
        self.reply(HTTPStatus.METHOD_NOT_ALLOWED)

    def reply(self, status: HTTPStatus, message: object = None, session: str = "") -> None:
        """Send one whole reply."""
        body = b"" if message is None else json.dumps(message).encode()
        self.send_response(status)
        if body:
            self.send_header("Content-Type", "application/json")
            self.send_header("Mcp-Session-Id", session)
        if status is not HTTPStatus.NO_CONTENT:
            self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - the base class's word
        """Say nothing."""


class Server(ThreadingHTTPServer):
    """A thread for each connection; none of them keeps the process."""

    daemon_threads = True


def main() -> None:
    """Serve on the loopback interface until a signal ends it."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--port", type=int, default=9104, help="port to listen on (default: %(default)s)")
    server = Server(("127.0.0.1", parser.parse_args().port), Handler)

    def end(_: int, __: FrameType | None) -> None:
        # It waits for the loop that this interrupts.
        threading.Thread(target=server.shutdown).start()

    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, end)
    print(f"ledger listens on http://127.0.0.1:{server.server_port}/mcp", flush=True)
    with server:
        server.serve_forever()


if __name__ == "__main__":
    main()
