"""Everything that a pass without a decision can do to the world. Data only; `cluster/execute.py` performs each, idempotently."""

from dataclasses import dataclass

from kvroll_operator.rollout.facts.observed import Pod, Revision, SessionPolicy, Tally, WorkerDrain


@dataclass(frozen=True)
class CreatePod:
    """Make the worker of a slot, from the content of its revision."""

    revision: Revision
    group: int
    index: int
    incarnation: int


@dataclass(frozen=True)
class LabelAdmitted:
    """Set the admitted label; false is the first half of a close, and what the serving floor guards."""

    pod: Pod
    admitted: bool


@dataclass(frozen=True)
class RestoreLabels:
    """Write back the labels that follow from a Pod's name, and its protection."""

    pod: Pod


@dataclass(frozen=True)
class SetAdmission:
    """Tell that instance of a worker to take, or no longer take, new sessions."""

    pod: Pod
    instance_id: str
    address: str
    admitting: bool


@dataclass(frozen=True)
class CreateDrain:
    """Make the WorkerDrain of a closed worker."""

    pod: Pod
    reason: str
    rollout: str
    policy: SessionPolicy


@dataclass(frozen=True)
class DrainTarget:
    """A worker that may take a drained session."""

    worker_id: str
    instance_id: str
    address: str
    same_revision: bool


@dataclass(frozen=True)
class DrainWorker:
    """Start the drain on the worker, or refresh its targets, with the WorkerDrain's own policy and at most `parallel` moves at a time."""

    pod: Pod
    instance_id: str
    address: str
    drain: WorkerDrain
    targets: tuple[DrainTarget, ...]
    parallel: int


@dataclass(frozen=True)
class RecordDrain:
    """Write a WorkerDrain's journal."""

    drain: WorkerDrain
    phase: str
    tally: Tally
    remaining: int
    last_error: str
    progressed_at: float | None


@dataclass(frozen=True)
class SealWorker:
    """Ask the worker for a Seal and store the receipt in the WorkerDrain."""

    pod: Pod
    instance_id: str
    address: str
    drain: WorkerDrain


@dataclass(frozen=True)
class CancelDrain:
    """Tell the worker to stop moving sessions off, then delete the WorkerDrain. `tally` is what the worker has counted until now."""

    pod: Pod
    instance_id: str
    address: str
    drain: WorkerDrain
    tally: Tally


@dataclass(frozen=True)
class ReleaseDrain:
    """Let a WorkerDrain go that is being deleted: its numbers are counted. The worker that still drains for it, if any, is told to stop."""

    drain: WorkerDrain
    instance_id: str = ""
    address: str = ""


@dataclass(frozen=True)
class Unprotect:
    """Take the Pod out of the PodDisruptionBudget."""

    pod: Pod


@dataclass(frozen=True)
class DeletePod:
    """Delete exactly this Pod, at this resourceVersion. `evidence` says why it may go.

    One that `may_hold_sessions` has its own time to end.
    """

    pod: Pod
    evidence: str
    may_hold_sessions: bool = False


@dataclass(frozen=True)
class GateProbe:
    """A worker that a gate asks."""

    worker_id: str
    revision: str
    instance_id: str
    address: str


@dataclass(frozen=True)
class StartGate:
    """Measure `candidate` against `baseline` at that point, instead of whatever the pool's gate measures now.

    Without a candidate the baseline's answers are to be kept; with `is_kept` those are measured against.
    """

    plan: str
    point: str
    gate_hash: str
    baseline: GateProbe | None
    candidate: GateProbe | None
    is_kept: bool


@dataclass(frozen=True)
class StopGate:
    """End the pool's run: nobody waits for it any more."""

    pool: str


@dataclass(frozen=True)
class DeleteDrain:
    """Delete a WorkerDrain whose Pod is gone and whose numbers nobody needs any more."""

    drain: WorkerDrain


@dataclass(frozen=True)
class DeleteRevision:
    """Delete a ControllerRevision beyond the history limit."""

    revision: Revision


@dataclass(frozen=True)
class ReleasePool:
    """Remove our finalizer: nothing of the pool is left."""


Effect = (
    CreatePod
    | LabelAdmitted
    | SetAdmission
    | CreateDrain
    | DrainWorker
    | RecordDrain
    | SealWorker
    | CancelDrain
    | ReleaseDrain
    | RestoreLabels
    | StartGate
    | StopGate
    | Unprotect
    | DeletePod
    | DeleteDrain
    | DeleteRevision
    | ReleasePool
)
