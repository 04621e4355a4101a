"""What can go wrong, told apart by whose fault it is.

An error is made once, where the fault is seen, and translated once, at the endpoint's door.  Nothing of the
outside world stands in the classes' names: a rule that treats failures differently reads their fields.
"""

from collections.abc import Sequence
from enum import StrEnum


class Reason(StrEnum):
    """Why an upstream gave no answer; the word stands in `data.reason`, in metrics and in the log."""

    UNREACHABLE = "unreachable"
    """No connection, a broken one, or an open breaker."""
    TIMEOUT = "timeout"
    """A deadline passed."""
    BAD_REPLY = "bad_reply"
    """HTTP 5xx, or bytes that are no MCP answer to our request."""
    REFUSED = "refused"
    """The upstream does not want this request: HTTP 4xx, a redirect elsewhere, a code not to be relayed."""
    OVERLOADED = "overloaded"
    """Our own limit of requests in flight; the upstream was not asked."""


class FederatorError(Exception):
    """Anything this program raises on purpose."""


class ConfigError(FederatorError):
    """The configuration cannot be used.

    `path` is the place in the file (`upstreams.docs.url`), `problem` says what was expected there.  Neither
    holds a value that may be a secret.  `source` names the file, `more` holds what else is wrong in it: each
    takes a line of the message.
    """

    def __init__(
        self, path: str, problem: str, *, source: str = "", more: Sequence["ConfigError"] = ()
    ) -> None:
        self.path = path
        self.problem = problem
        lines = [(error.path, error.problem) for error in (self, *more)]
        super().__init__("\n".join(": ".join(filter(None, (source, *line))) for line in lines))


class McpError(FederatorError):
    """A JSON-RPC error as the asker is told.

    Attributes:
        code: JSON-RPC error code, allowed by basic/index "Error Codes".
        message: one sentence that says whose fault it is.
        data: the `data` member as JSON bytes, or None.
        status: HTTP status of the reply to a modern client.
        id: the request's id as JSON bytes where it could be read although the request was not accepted.
    """

    def __init__(
        self,
        code: int,
        message: str,
        *,
        data: bytes | None = None,
        status: int = 200,
        id: bytes | None = None,  # noqa: A002 - the protocol's word
    ) -> None:
        super().__init__(f"{code} {message}")
        self.code = code
        self.message = message
        self.data = data
        self.status = status
        self.id = id


class UpstreamError(McpError):
    """An upstream's JSON-RPC error that is an answer: it is relayed, its URIs already public.

    `not_found` says that it means "no such resource" in whichever code the upstream's era uses.
    """

    def __init__(
        self,
        upstream: str,
        code: int,
        message: str,
        *,
        data: bytes | None = None,
        status: int = 200,
        not_found: bool = False,
    ) -> None:
        super().__init__(code, message, data=data, status=status)
        self.upstream = upstream
        self.not_found = not_found


class UpstreamFailure(FederatorError):  # noqa: N818 - `UpstreamError` is the answer that is an error
    """An upstream gave no answer.

    Attributes:
        upstream: its configured name.
        reason: the word the asker, the metrics and the log get.
        detail: for the log alone; never the upstream's raw text to a client.
        personal: true where another caller might fare otherwise (401, 403, 429, a refused code): a follower
            of another partition must not take it as its own.
        stale_ok: true where a stale copy may be served instead (design, section 6, stale_if_error).
        code: the upstream's JSON-RPC code, where a code was not to be relayed.
        retry_after: seconds the upstream asked us to hold, already capped, or None.
        asked: false where it was not even asked: its breaker is open, it is held, we are overloaded.
    """

    def __init__(
        self,
        upstream: str,
        reason: Reason,
        detail: str = "",
        *,
        personal: bool = False,
        stale_ok: bool = True,
        code: int | None = None,
        retry_after: float | None = None,
        asked: bool = True,
    ) -> None:
        super().__init__(f"{upstream}: {reason.value}" + (f" ({detail})" if detail else ""))
        self.upstream = upstream
        self.reason = reason
        self.detail = detail
        self.personal = personal
        self.stale_ok = stale_ok
        self.code = code
        self.retry_after = retry_after
        self.asked = asked
