"""Where a Pod's output lies: written by the node agent, read by `pods/NAME/log`."""

from pathlib import Path


def log_path(state: Path, uid: str, container: str, previous: bool = False) -> Path:
    """The output of a container's present process, or of the one before. Older output of the same process is rotated to `….log.1`."""
    return state / "pods" / uid / f"{container}{'.previous' if previous else ''}.log"
