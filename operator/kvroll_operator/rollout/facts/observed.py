"""What was observed in one pass, frozen: pods, revisions, drains, worker reports and the time."""

from dataclasses import dataclass, field, fields, replace

from kvroll_core.plan import RolloutRecord
from kvroll_core.price import WorkerFacts
from kvroll_core.wall import Judged, Sample
from kvroll_core.words import DEFAULT_ALLOW


@dataclass(frozen=True)
class Tally:
    """What became of the sessions of a drain, by way on; the words are the wire's."""

    held: int = 0
    finished_soon: int = 0
    exact: int = 0
    converted: int = 0
    replayed: int = 0
    checkpointed: int = 0
    finished: int = 0
    lost: int = 0
    wire_bytes: int = 0
    unique_bytes: int = 0
    tokens_replayed: int = 0

    def largest(self, other: "Tally") -> "Tally":
        """Field by field the larger: a restarted worker counts from 0, the journal never goes back."""
        return Tally(*(max(getattr(self, word), getattr(other, word)) for word in TALLY_WORDS))

    def plus(self, other: "Tally") -> "Tally":
        """Field by field the sum."""
        return Tally(*(getattr(self, word) + getattr(other, word) for word in TALLY_WORDS))


TALLY_WORDS = tuple(f.name for f in fields(Tally))


@dataclass(frozen=True)
class Report:
    """What a worker's instance says of itself, asked in this pass."""

    instance_id: str
    address: str
    ready: bool
    admitting: bool
    sealed: bool
    drain_id: str = ""
    sessions: int = 0  # running, waiting and moving
    pending: int = 0  # reservations and unacknowledged finished sessions: they hold up a seal, but are no sessions here
    tally: Tally = field(default_factory=Tally)
    remaining: int = 0
    last_error: str = ""
    kv_bytes_per_token: float = 0.0
    facts: WorkerFacts | None = None  # None: a worker that does not report them
    wall: Sample | None = None  # its figures for a wall verdict, None: it does not report them


@dataclass(frozen=True)
class Pod:
    """One worker Pod as the API server shows it. Times are unix seconds."""

    name: str
    uid: str
    resource_version: str
    revision: str
    group: int
    index: int
    incarnation: int
    created: float
    admitted: bool | None = None  # the label; None: never admitted
    admitted_at: float | None = None  # when the operator last set it to true
    protected: bool = True
    is_mislabelled: bool = False  # somebody changed the labels that its name repeats
    phase: str = "Pending"
    scheduled: bool = False
    unschedulable_since: float | None = None
    ready_since: float | None = None  # None: not Ready
    not_ready_since: float | None = None
    started_at: float | None = None  # the worker's container, None: not running
    gone_by: float | None = None  # deletionTimestamp
    terminated: bool = False  # the kubelet reports the worker's container ended (and maybe waiting to start again)
    failure: str = ""  # the last words of a container that ended with an error, while the Pod is not Ready
    report: Report | None = None

    @property
    def is_live(self) -> bool:
        """Neither being deleted nor ended."""
        return self.gone_by is None and not self.is_dead

    @property
    def is_dead(self) -> bool:
        """Its containers have ended for good."""
        return self.phase in ("Failed", "Succeeded")

    @property
    def slot(self) -> tuple[int, int]:
        """(group, index)."""
        return (self.group, self.index)

    @property
    def is_closed(self) -> bool:
        """Was admitted, and is no longer."""
        return self.admitted is False


@dataclass(frozen=True)
class Revision:
    """One ControllerRevision. `name` is the object's, `short` the label's; `content` is canonical JSON."""

    name: str
    short: str
    uid: str
    resource_version: str
    number: int
    content: str
    record: RolloutRecord = field(default_factory=RolloutRecord)
    has_default_image: bool = False  # made from a spec that left the image unset
    has_empties: bool = True  # its content tells an empty selector from an absent one

    def with_record(self, record: RolloutRecord) -> "Revision":
        """A copy with another record."""
        return replace(self, record=record)


@dataclass(frozen=True)
class SessionPolicy:
    """The spec's word on sessions; a WorkerDrain keeps it as it was when the drain began.

    `parallel` are the moves at a time in the whole pool, `per_worker` those from one worker. `deadline_seconds` is how long a drain may go
    on without a session moved or ended; then `drops_late` says whether what is left is let go, and counted as lost.
    """

    allow: tuple[str, ...] = tuple(DEFAULT_ALLOW)
    kv_across_weights: bool = False
    parallel: int = 5
    per_worker: int = 2
    bytes_per_second: int | None = None
    max_downtime_ms: int = 50
    deadline_seconds: int = 2700
    drops_late: bool = False


@dataclass(frozen=True)
class WorkerDrain:
    """One WorkerDrain. `rollout` is the plan id it belongs to, empty for other reasons."""

    name: str
    uid: str
    pod_name: str
    pod_uid: str
    reason: str
    rollout: str
    created: float
    group: int = 0
    is_deleting: bool = False
    has_finalizer: bool = True
    phase: str = "Pending"
    receipt: str = ""
    tally: Tally = field(default_factory=Tally)
    remaining: int = 0
    progressed_at: float | None = None
    last_error: str = ""
    policy: SessionPolicy = field(default_factory=SessionPolicy)  # as it was when the drain began

    @property
    def is_over(self) -> bool:
        """Its numbers are final."""
        return self.phase in ("Sealed", "Gone", "Expired", "Cancelled")


@dataclass(frozen=True)
class GateRun:
    """The pool's measurement, under way or over; `baseline` and `candidate` are instances. A restarted operator begins it anew.

    `report` is the evidence as JSON, `digest` its SHA-256.
    """

    plan: str
    point: str
    gate_hash: str
    baseline: str
    candidate: str
    started_at: float
    samples: int = 0
    is_over: bool = False
    verdict: str = ""
    reason: str = ""
    digest: str = ""
    report: str = ""


@dataclass(frozen=True)
class Unreadable:
    """An object of the pool that cannot be read. `stops` where it may hold a decision, so that nothing may be done without it."""

    what: str
    why: str
    stops: bool = False


@dataclass(frozen=True)
class Refusal:
    """The API server refuses an object that the pool needs. `content` is that of the revision it was made of, empty for another object."""

    what: str
    reason: str
    message: str
    content: str = ""


@dataclass(frozen=True)
class Observed:
    """Everything that a decision may depend on, besides what is desired."""

    now: float
    pods: tuple[Pod, ...] = ()
    revisions: tuple[Revision, ...] = ()
    drains: tuple[WorkerDrain, ...] = ()
    gate: GateRun | None = None
    unreadable: tuple[Unreadable, ...] = ()
    refusals: tuple[Refusal, ...] = ()
    taken: frozenset[str] = frozenset()  # Pod names that objects of others have
    wall: Judged | None = None  # the pool's wall by its newest window, None: no window has ended yet
