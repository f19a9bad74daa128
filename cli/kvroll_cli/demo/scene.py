"""What is to be seen at one moment: streams on one side, groups and the sessions on their workers on the other. Pure."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from kvroll_cli.demo.backends.objects import Object
from kvroll_cli.demo.load.transcript import Transcript

_LABEL = "kvroll.dev/"
COUNTED = ("held", "exact", "converted", "replayed", "finishedSoon", "finished", "checkpointed", "lost")


def letter(slot: int) -> str:
    """A stream's name on the screen: a to z, then A to Z, then again."""
    letters = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ"
    return letters[slot % len(letters)]


@dataclass(frozen=True)
class StreamRow:
    """One client. `group` is -1 until its worker is known."""

    letter: str
    group: int
    precision: str
    moves: int
    tokens: int
    text: str
    is_streaming: bool


@dataclass(frozen=True)
class WorkerRow:
    """One worker of a group and the streams that it sends, by letter."""

    group: int
    phase: str
    precision: str
    is_new: bool
    letters: str


@dataclass(frozen=True)
class Scene:
    """All of it. `counts` are the operator's, of the roll in force; `duplicated` and `missing` the clients', so far."""

    title: str = ""
    seconds: float = 0.0
    streams: tuple[StreamRow, ...] = ()
    workers: tuple[WorkerRow, ...] = ()
    groups: tuple[tuple[int, str, int], ...] = ()
    counts: dict[str, int] = field(default_factory=dict)
    tokens: int = 0
    tokens_per_second: float = 0.0
    duplicated: int = 0
    missing: int = 0

    @property
    def num_streaming(self) -> int:
        """Clients that receive tokens now."""
        return sum(row.is_streaming for row in self.streams)


class Precisions:
    """Which precision a revision is: learnt from the pool's status, and kept when no worker of it is left."""

    def __init__(self) -> None:
        self._known: dict[str, str] = {}

    def learn(self, pool: Object) -> None:
        """Takes the revisions that the status names."""
        for share in pool.get("status", {}).get("precisionMix", ()):
            self._known[share["revision"]] = f"{share['weights']}/{share['kvCache']}"
        update = pool.get("status", {}).get("updateRevision")
        generation, observed = pool["metadata"].get("generation"), pool.get("status", {}).get("observedGeneration")
        if update and generation == observed:
            precision = pool["spec"]["precision"]
            self._known.setdefault(update, f"{precision['weights']}/{precision['kvCache']}")

    def of(self, revision: str) -> str:
        """`weights/kvCache`, or the revision itself while it is unknown."""
        return self._known.get(revision, revision)


def scene(
    *,
    title: str,
    seconds: float,
    slots: Sequence[Transcript | None],
    transcripts: Sequence[Transcript],
    pool: Object,
    pods: Sequence[Object],
    precisions: Precisions,
    tokens_per_second: float | None,
) -> Scene:
    """The moment that these say."""
    status = pool.get("status", {})
    groups = {group["id"]: group for group in status.get("groups", ())}
    workers = {pod["metadata"]["uid"]: _worker(pod, precisions) for pod in pods}
    streams, at = [], dict.fromkeys(workers, "")
    for slot, transcript in enumerate(slots):
        if transcript is None:
            continue
        uid = transcript.workers[-1].partition("/")[0] if transcript.workers else ""
        if uid in at and transcript.is_streaming:
            at[uid] += letter(slot)
        group, precision = workers.get(uid, (-1, ""))
        streams.append(_stream(slot, transcript, group, precision))
    update = precisions.of(status.get("updateRevision", ""))
    rows = [
        WorkerRow(group, str(groups.get(group, {}).get("phase", "")), precision, precision == update, at[uid])
        for uid, (group, precision) in workers.items()
    ]
    return Scene(
        title=title,
        seconds=seconds,
        streams=tuple(streams),
        workers=tuple(sorted(rows, key=lambda row: (row.group, row.is_new))),
        groups=tuple((g["id"], str(g.get("phase", "?")), int(g.get("sessions", 0))) for g in groups.values()),
        counts=_counts(status),
        tokens=sum(len(t.arrivals) for t in transcripts),
        tokens_per_second=(tokens_per_second or 0.0) * sum(row.is_streaming for row in streams),
        duplicated=sum(t.num_duplicated() for t in transcripts),
        missing=sum(t.num_missing() for t in transcripts),
    )


def _worker(pod: Object, precisions: Precisions) -> tuple[int, str]:
    labels: dict[str, Any] = pod["metadata"].get("labels", {})
    return int(labels.get(f"{_LABEL}group", -1)), precisions.of(str(labels.get(f"{_LABEL}revision", "")))


def _stream(slot: int, transcript: Transcript, group: int, precision: str) -> StreamRow:
    return StreamRow(
        letter=letter(slot),
        group=group,
        precision=precision,
        moves=transcript.num_moves(),
        tokens=len(transcript.arrivals),
        text=" ".join(transcript.text.split()),
        is_streaming=transcript.is_streaming,
    )


def _counts(status: dict[str, Any]) -> dict[str, int]:
    sessions = status.get("rollout", {}).get("sessions", {})
    return {way: int(sessions[way]) for way in COUNTED if sessions.get(way)}
