"""Times as Kubernetes writes them."""

from datetime import UTC, datetime


def instant(unix_seconds: float | None) -> str | None:
    """RFC 3339 in whole seconds."""
    if unix_seconds is None:
        return None
    return datetime.fromtimestamp(unix_seconds, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
