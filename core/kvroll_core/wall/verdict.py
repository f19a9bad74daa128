"""The verdict: counters against thresholds, each figure beside its own.

The rule and its thresholds are those of the research behind the design: an alert on KV use of 0.9, a DRAM counter of
0.5 as heavy and a tensor pipe of 0.5 as compute-bound (KempnerInstitute/kempnerpulse, after NVIDIA's DCGM guide). Half
of the measured bandwidth too where bytes are modelled: a model leaves out activations and what is written, so its bar
cannot be above the counter's. Steps of one row, which read all fp32 weights for one token, come to 0.57 to 0.77 by it
(`make bench PART=wall`; int8 weights 0.46 to 0.62), steps of 64 rows to 0.1.
"""

from dataclasses import dataclass
from enum import StrEnum

from kvroll_core.wall.counters import Counters, Machine
from kvroll_core.wall.engine import Engine


class Wall(StrEnum):
    """What a pool is short of."""

    BANDWIDTH = "Bandwidth"
    CAPACITY = "Capacity"
    BOTH = "Both"
    COMPUTE = "Compute"
    HOST = "Host"
    IDLE = "Idle"
    UNKNOWN = "Unknown"


class Basis(StrEnum):
    """Whether the use of bandwidth was read from a counter of the device or reckoned from what the engine says it read."""

    COUNTER = "Counter"
    MODELLED = "Modelled"


WAITING_SHARE = 0.2  # of the window, with sessions waiting for pages
PREEMPTIONS_PER_SECOND = 0.01
KV_USED = 0.9
BANDWIDTH = 0.5
COMPUTE = 0.5
BUSY = 0.5
PREFILL = 0.9  # of the tokens computed, from which prefill is named
KERNELS = 0.5  # of a step's time inside kernels, from which the host is not what takes it
CPU_TAKEN = 0.7  # of a step's time on a CPU, below which others take it

_SAYS = {
    Wall.BANDWIDTH: "steps wait for memory: fewer bytes a step make them faster",
    Wall.CAPACITY: "sessions wait for KV pages and more room lets them in",
    Wall.BOTH: "steps wait for memory and sessions wait for KV pages: fewer KV bytes help both",
    Wall.COMPUTE: "steps wait for arithmetic while memory keeps up: more KV room or fewer KV bytes will not help",
    Wall.HOST: "neither memory nor arithmetic nor room is short",
    Wall.IDLE: "the worker waits for sessions: nothing is short",
    Wall.UNKNOWN: "what would decide it is not told: ",
}


@dataclass(frozen=True)
class Figure:
    """One piece of evidence: a value, the threshold beside it (None: shown, not compared), and where the value comes
    from.
    """

    name: str
    value: float | None
    threshold: float | None
    source: str

    @property
    def is_over(self) -> bool:
        """At or over its threshold."""
        return self.value is not None and self.threshold is not None and self.value >= self.threshold


@dataclass(frozen=True)
class Missing:
    """A figure that would decide and is not told, and the one command or flag that brings it."""

    figure: str
    bring: str


@dataclass(frozen=True)
class WallVerdict:
    """What is short, on what basis, and why; `missing` of an Unknown one; `queues` where sessions wait although there is room."""

    wall: Wall
    basis: Basis
    says: str
    evidence: tuple[Figure, ...]
    missing: tuple[Missing, ...] = ()
    queues: bool = False

    def value(self, name: str) -> float | None:
        """A figure by its name."""
        return next((f.value for f in self.evidence if f.name == name), None)


def classify(counters: Counters, machine: Machine | None = None, engine: Engine | None = None) -> WallVerdict:
    """The wall of a worker or a pool; `engine` knows how a figure is brought that it does not tell.

    Sessions that wait for room are a capacity wall however full the pages are: they need more than are free. Preemptions and refusals have
    other causes too, so they count with full pages alone. Bandwidth and compute are told apart by the larger share; a verdict that lacks a
    figure it needs is Unknown, never a guess.
    """
    machine = machine or Machine()
    basis = Basis.MODELLED if counters.memory_active is None else Basis.COUNTER
    evidence = _evidence(counters, machine)
    figures = {figure.name: figure for figure in evidence}
    wall, missing = _wall(counters, figures)
    says = _SAYS[wall]
    if wall is Wall.UNKNOWN:
        says += ", ".join(missing)
    elif wall is Wall.HOST:
        says += _beside_host(counters)
    elif wall is Wall.CAPACITY:
        says += _beside_capacity(figures)
    elif wall is Wall.COMPUTE:
        says += _beside_compute(counters)
    found = tuple(Missing(name, _bring(name, counters, machine, engine)) for name in missing)
    return WallVerdict(wall, basis, says, evidence, found, wall is Wall.HOST and counters.waiting >= 1)


def pages_full_at(running: float) -> float:
    """Used share of pages from which a waiting session of the mean size does not fit beside `running` others.

    They hold running / (running + 1) where exactly one more fits; many small sessions never leave that little free, so
    the threshold of an alert bounds it.
    """
    return min(KV_USED, running / (running + 1)) if running > 0 else KV_USED


def _beside_host(counters: Counters) -> str:
    kernels, share = counters.step_kernel_share, counters.step_cpu_share
    if kernels is not None and kernels >= KERNELS:
        says = f": {kernels:.0%} of a step is inside kernels, which reach neither limit"
    else:
        says = ": the time goes to launches, the scheduler or the queue"
    if counters.waiting >= 1:
        says += "; sessions wait although pages are free: the limit on sessions or on tokens a step holds them back"
    if share is not None and share < CPU_TAKEN:
        says += (
            f"; the engine's thread had a CPU for {share:.0%} of its steps: others take it, or it waits for a device"
        )
    return says


def _beside_capacity(figures: dict[str, Figure]) -> str:
    used = figures["kv_used"]
    says = (
        "" if used.value is None or used.is_over else f"; each needs more than the {1 - used.value:.0%} that are free"
    )
    if figures["compute_used"].is_over:
        says += "; arithmetic is nearly used up too: expect shorter queues, not more tokens a second"
    elif figures["bandwidth_used"].value is None:
        says += "; the use of bandwidth is not told: it may be Both"
    return says


def _beside_compute(counters: Counters) -> str:
    """Says so where it is prompts that are computed: tokens that the prefix cache had are none."""
    computed = counters.prompt_tokens - (counters.prefix_hit_tokens or 0.0)
    every = computed + counters.generated_tokens
    if every <= 0 or computed < PREFILL * every:
        return ""
    return f"; {computed / every:.0%} of the tokens are prompts: it is prefill that takes it"


def _wall(counters: Counters, figures: dict[str, Figure]) -> tuple[Wall, list[str]]:
    """The wall, and of an Unknown one the figures that are missing."""
    if counters.is_still:
        return Wall.IDLE, []
    bandwidth, compute = figures["bandwidth_used"], figures["compute_used"]
    # Between the published limits for one (tensor pipe < 0.3) and the other (>= 0.5) the larger share decides.
    memory_bound = bandwidth.is_over and (compute.value or 0) <= (bandwidth.value or 0)
    lost = any(figures[n].is_over for n in ("preemptions_per_second", "refusals_per_second"))
    if figures["waiting_for_room"].is_over or (lost and figures["kv_used"].is_over):
        return (Wall.BOTH if memory_bound else Wall.CAPACITY), []
    if memory_bound:
        return Wall.BANDWIDTH, []
    if compute.is_over:
        return Wall.COMPUTE, []
    busy = figures["busy"]
    if busy.value is not None and not busy.is_over and counters.waiting < 1:
        return Wall.IDLE, []
    missing = _missing(counters, figures, lost)
    return (Wall.UNKNOWN if missing else Wall.HOST), missing


def _missing(counters: Counters, figures: dict[str, Figure], lost: bool) -> list[str]:
    """What keeps it from being the host. How full the pages are decides only where sessions were preempted or refused; a share over the
    whole window is not low where it would be over its threshold in the part of it in which something ran.
    """
    needed = ["waiting_for_room", *(["kv_used"] if lost else []), "bandwidth_used", "compute_used", "busy"]
    missing = [name for name in needed if figures[name].value is None]
    if not missing and counters.busy_seconds is None:
        ran = figures["busy"].value or 1.0
        shares = (figures["bandwidth_used"], figures["compute_used"])
        if any((f.value or 0.0) / ran >= (f.threshold or 1.0) for f in shares):
            missing = ["busy"]
    return missing


def _bring(name: str, counters: Counters, machine: Machine, engine: Engine | None) -> str:
    """The one command or flag that brings a figure."""

    def of_engine(what: str, otherwise: str) -> str:
        return (engine.brings(what) if engine else None) or otherwise

    if name == "bandwidth_used":
        if counters.read_bytes is None:
            return of_engine("read_bytes", "--model PATH")
        return of_engine("bandwidth", "--device-bandwidth BYTES, as measured on that device")
    if name == "compute_used":
        if counters.flops is None:
            return of_engine("flops", "--model PATH")
        return of_engine("arithmetic", "--device-flops FLOPS, as measured on that device")
    if name == "busy":
        return "--interval 60: it ran for a part of the window only"
    return of_engine("kv_used", "--kv-used SHARE")


def _evidence(counters: Counters, machine: Machine) -> tuple[Figure, ...]:
    seconds = counters.seconds
    measured = counters.memory_active is not None
    intensity = counters.flops / counters.read_bytes if counters.flops and counters.read_bytes else None
    # An engine that does not count its busy time is taken to be busy all the while: the shares come out too small,
    # never too large.
    busy = counters.busy_seconds or seconds
    over = "" if counters.busy_seconds else ", over the whole window"
    return (
        Figure("waiting_for_room", counters.waiting_for_room, WAITING_SHARE, "share of the window"),
        Figure("preemptions_per_second", counters.preemptions / seconds, PREEMPTIONS_PER_SECOND, "engine counter"),
        Figure("refusals_per_second", counters.refusals / seconds, PREEMPTIONS_PER_SECOND, "engine counter"),
        Figure("kv_used", counters.kv_used, KV_USED, "used share of pages, 95th percentile"),
        Figure("bandwidth_used", counters.memory_active, BANDWIDTH, "device counter")
        if measured
        else Figure(
            "bandwidth_used",
            _share(counters.read_bytes, busy, machine.bytes_per_second),
            BANDWIDTH,
            f"bytes read over the bandwidth measured at start{over}",
        ),
        Figure("compute_used", counters.tensor_active, COMPUTE, "device counter")
        if counters.tensor_active is not None
        else Figure(
            "compute_used",
            _share(counters.flops, busy, machine.flops_per_second),
            COMPUTE,
            f"operations over the peak measured at start{over}",
        ),
        Figure("busy", counters.busy_share, BUSY, _busy_source(counters)),
        Figure("step_cpu", counters.step_cpu_share, None, "share of steps in which the engine's thread had a CPU"),
        Figure(
            "step_kernels", counters.step_kernel_share, None, "share of steps inside kernels: the rest is the host's"
        ),
        Figure("intensity_flops_per_byte", intensity, machine.balance_flops_per_byte, "threshold: the machine balance"),
        Figure("inter_token_p95_seconds", counters.inter_token_p95_seconds, None, "between two tokens of a session"),
        Figure("prefix_hit_rate", counters.prefix_hit_rate, None, "share of prompt tokens"),
    )


def _busy_source(counters: Counters) -> str:
    if counters.busy_seconds is None and counters.running_share is not None:
        return "share of the looks at which something ran"
    return "share of the window inside steps"


def _share(amount: float | None, seconds: float, per_second: float | None) -> float | None:
    return None if amount is None or not per_second else amount / seconds / per_second
