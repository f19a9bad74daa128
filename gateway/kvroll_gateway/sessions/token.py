"""The `id:` of an SSE event: which session, signed so that nobody can name another's, and how far its client got."""

import base64
import hashlib
import hmac
import secrets
from pathlib import Path

from kvroll_core.epoch import Epoch

_SIGNATURE_BYTES = 16


class SessionKey:
    """Signs session ids; gateways that share a key file can check each other's."""

    def __init__(self, key: bytes) -> None:
        if len(key) < 16:
            raise ValueError(
                f"expected a session key of at least 16 bytes, found {len(key)}; make one with `openssl rand -hex 32`"
            )
        self._key = key

    @classmethod
    def load(cls, path: Path | None) -> "SessionKey":
        """The key in the file, or a random one that dies with the process.

        Raises:
            OSError: the file cannot be read.
            ValueError: the key is too short.
        """
        return cls(path.read_bytes().strip() if path is not None else secrets.token_bytes(32))

    def sign(self, session_id: str) -> str:
        """The session token: id and signature, without a dot."""
        mac = hmac.new(self._key, session_id.encode(), hashlib.sha256).digest()[:_SIGNATURE_BYTES]
        return f"{session_id}~{base64.urlsafe_b64encode(mac).rstrip(b'=').decode()}"

    def verify(self, token: str) -> str | None:
        """The session id of a token that this key signed, else None."""
        session_id = token.partition("~")[0]
        return session_id if hmac.compare_digest(self.sign(session_id).encode(), token.encode()) else None


def event_id(session_token: str, epoch: Epoch, index: int) -> str:
    """`<signed session token>.<epoch>.<index>`; an epoch holds no dot because `main` keeps them out of gateway ids."""
    return f"{session_token}.{epoch}.{index}"
