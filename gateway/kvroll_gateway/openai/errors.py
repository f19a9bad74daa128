"""Errors in OpenAI's shape: `{"error": {"message", "type", "param", "code"}}`."""

from collections.abc import Mapping
from typing import Any

from starlette.responses import JSONResponse

from kvroll_gateway.sessions.phases import Failure

_RETRY_AFTER_SECONDS = 1
_MAX_MESSAGE_CHARS = 500  # it may quote what a client sent

# code of a failed session: HTTP status, OpenAI's type, the parameter at fault
_FAILURES: dict[str, tuple[int, str, str | None]] = {
    "invalid_request": (400, "invalid_request_error", None),
    "model_not_found": (404, "invalid_request_error", "model"),
    "no_worker_available": (503, "server_error", None),
    "gateway_draining": (503, "server_error", None),
    "gateway_stopping": (503, "server_error", None),
    "dropped": (503, "server_error", None),
    "NothingLeftToChoose": (400, "invalid_request_error", None),
    "fenced": (503, "server_error", None),
    "session_lost": (503, "server_error", None),
    "session_poisoned": (500, "server_error", None),
    "client_too_slow": (408, "invalid_request_error", None),
    "cancelled": (499, "invalid_request_error", None),
}

_FATAL = frozenset({"session_poisoned", "NonFiniteLogits", "SessionError"})


class OpenAiError(Exception):
    """An answer that is an error. `param` names the request field at fault; `close`: the connection is of no use after it."""

    def __init__(
        self,
        status: int,
        message: str,
        *,
        code: str,
        kind: str = "invalid_request_error",
        param: str | None = None,
        close: bool = False,
    ) -> None:
        super().__init__(message)
        self.status = status
        self.message = message if len(message) <= _MAX_MESSAGE_CHARS else f"{message[:_MAX_MESSAGE_CHARS]}…"
        self.close = close
        self.code = code
        self.kind = kind
        self.param = param

    @classmethod
    def of(cls, failure: Failure) -> "OpenAiError":
        """The error that a failed session is to its client; codes that a worker invented are server errors."""
        status, kind, param = _FAILURES.get(failure.code, (500, "server_error", None))
        return cls(status, failure.message, code=failure.code, kind=kind, param=param)

    def body(self) -> dict[str, Any]:
        return {"error": {"message": self.message, "type": self.kind, "param": self.param, "code": self.code}}

    def response(self, more_headers: Mapping[str, str] | None = None) -> JSONResponse:
        headers = {**(more_headers or {})}
        if self.status == 503:
            headers["Retry-After"] = str(_RETRY_AFTER_SECONDS)
        if self.code in _FATAL:  # OpenAI's clients send a 500 again by themselves unless they are told
            headers["x-should-retry"] = "false"
        if self.close:
            headers["Connection"] = "close"
        return JSONResponse(self.body(), status_code=self.status, headers=headers)
