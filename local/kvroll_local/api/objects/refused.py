"""A request that the server refuses: what a Status object says."""

from typing import Any

Json = dict[str, Any]


class Refused(Exception):
    """A refusal with its HTTP code and the reason word of a Status."""

    def __init__(self, code: int, reason: str, message: str, details: Json | None = None) -> None:
        super().__init__(message)
        self.code, self.reason, self.details = code, reason, details or {}

    def status(self) -> Json:
        made = {
            "kind": "Status",
            "apiVersion": "v1",
            "metadata": {},
            "status": "Failure",
            "message": str(self),
            "reason": self.reason,
            "code": self.code,
        }
        return made | ({"details": self.details} if self.details else {})


def not_built(what: str, instead: str = "a Kubernetes cluster does it") -> Refused:
    """A part of the Kubernetes API that is left out on purpose."""
    return Refused(501, "NotImplemented", f"{what}: kvroll's embedded API server does not do this; {instead}")
