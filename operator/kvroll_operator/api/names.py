"""Names that the operator gives: labels, annotations, finalizers, Pods."""

LABEL = "kvroll.dev/"
FINALIZER = "kvroll.dev/drain"
"""On a pool: its workers are drained before it goes."""
JOURNAL_FINALIZER = "kvroll.dev/journal"
"""On a WorkerDrain: its numbers are counted before it goes."""
REQUEST_ANNOTATION = "kvroll.dev/request"
ADMITTED_AT_ANNOTATION = "kvroll.dev/admitted-at"


def pod_name(pool: str, revision: str, group: int, index: int, incarnation: int) -> str:
    """Repeats the labels, because labels can be changed."""
    return f"{pool}-{revision}-{group}-{index}-{incarnation}"


def slot_labels(revision: str, group: int, index: int, incarnation: int) -> dict[str, str]:
    """What a worker Pod is for."""
    return {
        f"{LABEL}revision": revision,
        f"{LABEL}group": str(group),
        f"{LABEL}index": str(index),
        f"{LABEL}incarnation": str(incarnation),
    }
