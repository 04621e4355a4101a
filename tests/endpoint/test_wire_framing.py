"""Odd HTTP: where a request ends and the next begins, and that whatever is refused is told and counted."""

import logging
from collections.abc import Sequence

import pytest

from tests.endpoint.door import Door, compact, read, read_fields, request, run

pytestmark = pytest.mark.usefixtures("each_loop")

GOOD = request(read())
BODY = compact(read())
SMUGGLED = request(read("docs+x://smuggled", id="smuggled"))
CHUNKED = {**read_fields(), "Content-Length": None, "Transfer-Encoding": "chunked"}
CHUNKS = b"%x\r\n%b\r\n0\r\n" % (len(BODY), BODY)

OK = (200, None)
BAD = (400, -32600)
BROKEN = (400, -32700)
LARGE = (431, -32600)
NOT_HERE = (404, -32600)
NOT_ALLOWED = (405, -32600)


def line(first: str, headers: dict[str, str | None] | None = None, sent: bytes = GOOD) -> bytes:
    """A good read with another request line, and `headers` put in place."""
    if headers is not None:
        sent = request(read(), headers)
    return first.encode("latin-1") + sent[sent.index(b"\r\n") :]


def field(text: bytes) -> bytes:
    """A good read with one more line in its head."""
    return GOOD.replace(b"\r\n", b"\r\n" + text + b"\r\n", 1)


def sized(length: str) -> bytes:
    """A good read that says another length."""
    return request(BODY, {**read_fields(), "Content-Length": length})


def chunked(framed: bytes, coding: str = "chunked") -> bytes:
    """A read whose body is framed like this."""
    return request(b"", {**CHUNKED, "Transfer-Encoding": coding}) + framed


def bodied(verb: str, target: str = "/mcp") -> bytes:
    """A request of another method, whose body is a read."""
    return request(SMUGGLED, {}, verb=verb, path=target)


Replies = Sequence[tuple[int, int | None]]
Rows = dict[str, tuple[bytes, Replies, bool]]

VERSIONS: Rows = {
    "HTTP/1.0": (line("POST /mcp HTTP/1.0", {"Connection": "keep-alive"}), [OK], True),
    "HTTP/0.9": (b"GET /mcp\r\n\r\n", [BAD], False),
    "HTTP/1.2": (line("POST /mcp HTTP/1.2"), [BAD], False),
    "HTTP/2 preface": (b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", [BAD], False),
    "no Host": (GOOD.replace(b"Host: 127.0.0.1\r\n", b""), [BAD], False),
    "pipelined": (GOOD * 3, [OK] * 3, True),
    "blank lines before": (b"\r\n\r\n" + GOOD, [OK], True),
}
TARGETS: Rows = {
    "absolute": (line("POST http://127.0.0.1/mcp HTTP/1.1"), [OK], True),
    "elsewhere": (line("POST http://evil.test/x HTTP/1.1"), [NOT_HERE], True),
    "authority": (line("POST evil.test:80 HTTP/1.1"), [BAD], False),
    "asterisk": (line("OPTIONS * HTTP/1.1"), [NOT_HERE], True),
    "empty": (line("POST  HTTP/1.1"), [BAD], False),
    "relative": (line("POST mcp HTTP/1.1"), [BAD], False),
    "dots": (line("POST /a/../mcp HTTP/1.1"), [NOT_HERE], True),
    "two slashes": (line("POST //mcp HTTP/1.1"), [NOT_HERE], True),
    "NUL": (line("POST /m\0cp HTTP/1.1"), [BAD], False),
    "letters": (line("POST /\xe4 HTTP/1.1"), [BAD], False),
    "blank": (line("POST /mcp x HTTP/1.1"), [BAD], False),
    "long": (line(f"POST /mcp?{'a' * 70_000} HTTP/1.1"), [LARGE], False),
    "lower-case method": (line("post /mcp HTTP/1.1"), [BAD], False),
    "unknown method": (line("FOO /mcp HTTP/1.1"), [BAD], False),
}
FIELDS: Rows = {
    "bare LF everywhere": (GOOD.replace(b"\r\n", b"\n"), [BAD], False),
    "bare LF once": (GOOD.replace(b"Host: 127.0.0.1\r\n", b"Host: 127.0.0.1\n"), [BAD], False),
    "bare CR": (field(b"X-A: b\rX-C: d"), [BAD], False),
    "NUL in a value": (field(b"X-A: b\0c"), [BAD], False),
    "NUL in a name": (field(b"X\0A: b"), [BAD], False),
    "folded": (field(b"X-A: b\r\n c"), [BAD], False),
    "blank before the colon": (field(b"X-A : b"), [BAD], False),
    "blank before the name": (field(b" X-A: b"), [BAD], False),
    "no name": (field(b": b"), [BAD], False),
    "no colon": (field(b"evil"), [BAD], False),
    "other bytes": (field(b"X-A: \xff\xfe"), [OK], True),
    "long name": (field(b"X" * 70_000 + b": a"), [LARGE], False),
}
LENGTHS: Rows = {
    "twice the same": (field(b"Content-Length: %d" % len(BODY)), [BAD], False),
    "twice": (field(b"Content-Length: 5"), [BAD], False),
    **{
        f"length {length or 'empty'}": (sized(length), [BAD], False)
        for length in ("-1", "+5", "0x10", "1e3", "5, 5", "5 5", "1_0", "9" * 20, "")
    },
    "none": (request(b"", {**read_fields(), "Content-Length": None}), [BROKEN], True),
    "too short": (sized("5"), [BAD], False),
    "with chunks": (request(b"", {**CHUNKED, "Content-Length": "4"}) + CHUNKS + b"\r\n", [BAD], False),
}
CHUNKINGS: Rows = {
    "chunks": (chunked(CHUNKS + b"\r\n"), [OK], False),
    "capital": (chunked(CHUNKS + b"\r\n", "Chunked"), [OK], False),
    "extensions": (chunked(CHUNKS.replace(b"\r\n", b';a=b;c="d"\r\n', 1) + b"\r\n"), [OK], False),
    "trailer": (chunked(CHUNKS + b"X-A: b\r\n\r\n"), [OK], False),
    "another coding first": (chunked(CHUNKS + b"\r\n", "gzip, chunked"), [BAD], False),
    **{
        f"coding {coding or 'empty'}": (chunked(CHUNKS + b"\r\n", coding), [BAD], False)
        for coding in ("chunked, gzip", "identity", "xchunked", "chunked, chunked", "\x0bchunked", "")
    },
    **{
        f"size {size.decode() or 'empty'}": (chunked(size + CHUNKS[2:] + b"\r\n"), [BAD], False)
        for size in (b"", b"-1", b"+5", b"0x5", b"g", b" 5", b"5 ", b"f" * 17)
    },
    "LF behind a size": (chunked(CHUNKS.replace(b"\r\n", b"\n") + b"\n"), [BAD], False),
    "nothing behind a chunk": (chunked(CHUNKS.replace(b"}\r\n", b"}") + b"\r\n"), [BAD], False),
    "LF in an extension": (chunked(CHUNKS.replace(b"\r\n", b";a\nb\r\n", 1) + b"\r\n"), [BAD], False),
    "no end": (chunked(CHUNKS), [BAD], False),
}
OTHERS: Rows = {
    **{verb: (bodied(verb), [NOT_ALLOWED], True) for verb in ("GET", "DELETE", "PUT", "TRACE", "PROPFIND")},
    "OPTIONS": (bodied("OPTIONS"), [(204, None)], True),
    "CONNECT": (bodied("CONNECT"), [NOT_ALLOWED], False),
    "CONNECT elsewhere": (bodied("CONNECT", "evil.test:80"), [NOT_HERE], False),
    "not found": (bodied("POST", "/elsewhere"), [NOT_HERE], True),
    "not JSON": (request(SMUGGLED, {"Content-Type": "text/plain"}), [(415, -32600)], True),
    "upgrade": (request(read(), {"Upgrade": "h2c", "Connection": "Upgrade"}), [OK], False),
    "upgrade refused": (bodied("GET").replace(b"\r\n", b"\r\nUpgrade: x\r\n", 1), [NOT_ALLOWED], False),
}
ROWS = {
    f"{kind}: {name}": row
    for kind, rows in {
        "version": VERSIONS,
        "target": TARGETS,
        "field": FIELDS,
        "length": LENGTHS,
        "chunking": CHUNKINGS,
        "method": OTHERS,
    }.items()
    for name, row in rows.items()
}


@pytest.mark.parametrize(("sent", "expected", "stays"), ROWS.values(), ids=ROWS)
def test_each_request_is_one(
    sent: bytes, expected: Replies, stays: bool, caplog: pytest.LogCaptureFixture
) -> None:
    """Each gets its reply, nothing of it becomes part of the next, and what is refused is a client's error.

    Where it may be unclear what follows, nothing does.
    """

    async def body() -> None:
        async with Door() as door:
            client = await door.connect()
            await client.send(sent + SMUGGLED)
            replies = [await client.receive() for _ in expected]
            assert [reply.status for reply in replies] == [status for status, _ in expected]
            assert [reply.code for reply in replies if reply.body] == [
                code for status, code in expected if status != 204
            ]
            if stays:
                assert (await client.receive()).message["id"] == "smuggled"
            else:
                assert replies[-1].header("Connection") == "close"
                assert await client.at_end()
            good = [status for status, _ in expected].count(200)
            uris = ["docs+x://1"] * good + ["docs+x://smuggled"] * stays
            assert [query.uri for query in door.source.asked] == uris
            told = [line["status"] for line in door.told]
            assert told == ["ok" if s < 400 else "client_error" for s, _ in expected] + ["ok"] * stays
            assert sum(door.counted.values()) == len(told)
            assert not any("internal" in labels for labels in door.counted)

    run(body())
    assert [record for record in caplog.records if record.levelno > logging.DEBUG] == []
