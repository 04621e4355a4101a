"""A child process that does what a test says, good or bad; `stdio.Stage` starts it, and holds the other end.

    python -S -I stdio_child.py SOCKET

The plan comes from the socket, as JSON: `opening` holds steps done at once, `answers` steps for each method,
done when it comes.  A list of lists is used up in turn, and its last one stays; a method without steps gets
no answer.  A step is `[verb, argument]`, see `Child`.  Text stands for bytes (Latin-1), and `$ID` in it for
the id of the request.

Whatever reaches it goes to the socket, a JSON line each, and is answered with `heard`.  The socket stays open
in all that it forks, so its end tells that none of them is left.  Nothing but a few modules may be imported
here: this starts a hundred times.
"""

import json
import os
import signal
import socket
import sys
import time
from typing import Any, NoReturn


class Child:
    """The scripted process."""

    def __init__(self, path: str) -> None:
        self._control = socket.socket(socket.AF_UNIX)
        self._control.connect(path)
        self._orders = self._control.makefile("rb")
        self._plan: dict[str, Any] = json.loads(self._orders.readline())
        self._ordered: list[str] = []
        self._gathered: list[Any] = []
        self._refused: set[str] = set()
        self._stays = False
        self._report("born", os.getpid())

    def run(self) -> None:
        """Live until stdin ends, and longer where the plan says so."""
        self._do(self._plan.get("opening", []), None)
        for line in iter(sys.stdin.buffer.readline, b""):
            message = json.loads(line)
            self._report("got", message)
            if message.get("method") in self._refused:
                self.error(-32600, message.get("id"))
                continue
            steps = self._plan.get("answers", {}).get(message.get("method"), [])
            if steps and isinstance(steps[0], list) and isinstance(steps[0][0], list):
                steps = steps.pop(0) if len(steps) > 1 else steps[0]
            self._do(steps, message.get("id"))
        self._report("end of input", None)
        if self._stays:
            self._sleep()

    def result(self, value: Any, number: Any) -> None:
        """Answer with this result."""
        self.say(json.dumps({"jsonrpc": "2.0", "id": number, "result": value}) + "\n", number)

    def error(self, code: int, number: Any) -> None:
        """Answer with an error."""
        error = {"code": code, "message": "no"}
        self.say(json.dumps({"jsonrpc": "2.0", "id": number, "error": error}) + "\n", number)

    def refuse(self, method: str, _: Any) -> None:
        """Answer a method with an error from now on."""
        self._refused.add(method)

    def gather(self, count: int, number: Any) -> None:
        """Wait for so many requests, then answer all, the last one first, each with its number as text."""
        self._gathered.append(number)
        if len(self._gathered) == count:
            for one in reversed(self._gathered):
                self.result({"contents": [{"uri": "x://1", "text": str(one)}]}, one)

    def say(self, text: str, number: Any) -> None:
        """Write to stdout."""
        _write(1, text, number)

    def complain(self, text: str, number: Any) -> None:
        """Write to stderr."""
        _write(2, text, number)

    def flood(self, what: list[Any], number: Any) -> None:
        """Write text to a stream, many times over: `[stream, text, times]`."""
        for _ in range(what[2]):
            _write(what[0], what[1], number)

    def surroundings(self, _: Any, number: Any) -> None:
        """Answer with environment, working directory, and what the three streams are."""
        kinds = [oct(os.fstat(stream).st_mode >> 12) for stream in range(3)]
        descriptors = len(os.listdir("/dev/fd"))  # noqa: PTH208 - pathlib is a slow import, see above
        told = {"env": dict(os.environ), "cwd": os.getcwd(), "kinds": kinds, "descriptors": descriptors}  # noqa: PTH109 - likewise
        self.result({"contents": [{"uri": "x://1", "text": json.dumps(told)}]}, number)

    def wait(self, order: str, _: Any) -> None:
        """Do nothing until the test gives this order."""
        if order in self._ordered:
            self._ordered.remove(order)
            return
        for told in self._orders:
            if told.decode().strip() == order:
                return
        sys.exit()  # the test is over

    def leave(self, code: int, _: Any) -> None:
        """End at once, with this exit code."""
        sys.stdout.flush()
        os._exit(code)

    def die(self, number: int, _: Any) -> None:
        """End by this signal."""
        os.kill(os.getpid(), number)

    def close(self, stream: int, _: Any) -> None:
        """Close a stream."""
        os.close(stream)

    def stubborn(self, _: Any, __: Any) -> None:
        """Do not end for SIGTERM."""
        signal.signal(signal.SIGTERM, signal.SIG_IGN)

    def stay(self, _: Any, __: Any) -> None:
        """Do not end when stdin does."""
        self._stays = True

    def sleep(self, _: Any, __: Any) -> None:
        """Read no more, and do nothing."""
        self._sleep()

    def fork(self, _: Any, __: Any) -> None:
        """Start a child that holds all streams open, and does nothing."""
        if os.fork() == 0:
            self._sleep()

    def _do(self, steps: list[Any], number: Any) -> None:
        for verb, argument in steps:
            getattr(self, verb)(argument, number)

    def _report(self, what: str, value: Any) -> None:
        self._control.sendall(json.dumps([what, value]).encode() + b"\n")
        # What is seen of it elsewhere comes after: whoever has our answer knows that the test has heard this.
        for told in self._orders:
            order = told.decode().strip()
            if order == "heard":
                return
            self._ordered.append(order)

    def _sleep(self) -> NoReturn:
        while True:
            time.sleep(3600)


def _write(stream: int, text: str, number: Any) -> None:
    rest = memoryview(text.replace("$ID", json.dumps(number)).encode("latin-1"))
    while rest:
        rest = rest[os.write(stream, rest) :]


if __name__ == "__main__":
    Child(sys.argv[1]).run()
