"""A writer of lines whose other end a test holds."""

import os
from contextlib import suppress

from mcp_federator.log import Writer


class Pipe:
    """A writer's descriptor, and what came out of its other end."""

    def __init__(self) -> None:
        self.reading, self.writing = os.pipe()
        self.writer = Writer(self.writing)

    def take(self) -> str:
        """All that was written, once the writer is done."""
        self.writer.close()
        os.close(self.writing)
        with os.fdopen(self.reading, closefd=False) as file:
            return file.read()

    def close(self) -> None:
        """Ends the reader first: that frees a waiting writer before its descriptor's number is used anew."""
        with suppress(OSError):
            os.close(self.reading)
        self.writer.close()
        with suppress(OSError):
            os.close(self.writing)
