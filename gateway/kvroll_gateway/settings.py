"""What an operator of the gateway may choose."""

from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True)
class GatewaySettings:
    """The flags of `python -m kvroll_gateway`, resolved; `main` says what each means."""

    namespace: str | None = None
    workers: tuple[str, ...] = ()
    host: str = "0.0.0.0"
    port: int = 8080
    worker_lost_seconds: float = 3.0
    worker_silent_seconds: float = 6.0
    replay_deadline_seconds: float = 300.0
    replay_limit: int = 2
    quarantine_seconds: float = 10.0
    drain_seconds: float = 3600.0
    session_key_file: Path | None = None
    body_seconds: float = 60.0
    log_frames: int = 65_536
    keep_alive_seconds: float = 10.0
    default_max_tokens: int = 0  # as many as fit
