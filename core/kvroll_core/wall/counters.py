"""What a worker counted over a window, and what its device can do."""

from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True)
class Machine:
    """A device as measured at a worker's start (a stream of reads, a matrix product), never as its data sheet says;
    None: not measured.
    """

    bytes_per_second: float | None = None
    flops_per_second: float | None = None

    @property
    def balance_flops_per_byte(self) -> float | None:
        """Arithmetic intensity above which the device is short of arithmetic, below which of bandwidth (the
        roofline's ridge).
        """
        if not self.bytes_per_second or not self.flops_per_second:
            return None
        return self.flops_per_second / self.bytes_per_second


@dataclass(frozen=True)
class Counters:
    """Figures of one worker, or the sum over a pool's, over `seconds`; None: the engine does not tell it.

    `running` is the mean batch, `waiting` the mean queue, `waiting_for_room` the share of the window in which
    sessions waited for KV pages, `kv_used` the 95th percentile of the used share of pages. `busy_seconds` is the time
    inside engine steps, `step_cpu_seconds` the part of it in which the engine's thread had a CPU,
    `step_kernel_seconds` the part inside kernels: the rest is the host's. `read_bytes` and
    `flops` are the engine's own reckoning of what its steps moved and computed. `memory_active` and `tensor_active`
    are the device's counters, shares of the window (DCGM_FI_PROF_DRAM_ACTIVE, DCGM_FI_PROF_PIPE_TENSOR_ACTIVE).
    `running_share` is the share of the looks at which something ran: an engine steps while it has sessions, so it stands for the busy time
    of one that does not count it. `tells_tokens`: whether the token counts are counted at all.
    """

    seconds: float
    running: float
    waiting: float
    waiting_for_room: float | None = None
    kv_used: float | None = None
    preemptions: float = 0.0
    refusals: float = 0.0
    prompt_tokens: float = 0.0
    generated_tokens: float = 0.0
    steps: float | None = None
    busy_seconds: float | None = None
    step_cpu_seconds: float | None = None
    step_kernel_seconds: float | None = None
    read_bytes: float | None = None
    flops: float | None = None
    memory_active: float | None = None
    tensor_active: float | None = None
    inter_token_p95_seconds: float | None = None
    inter_token_mean_seconds: float | None = None
    prefix_query_tokens: float | None = None
    prefix_hit_tokens: float | None = None
    running_share: float | None = None
    tells_tokens: bool = True

    def __post_init__(self) -> None:
        if self.seconds <= 0:
            raise ValueError(f"expected a window of more than 0 seconds, found {self.seconds}")

    @property
    def is_still(self) -> bool:
        """Nothing ran, waited or was computed."""
        return not (self.running or self.waiting or self.prompt_tokens or self.generated_tokens)

    @property
    def busy_share(self) -> float | None:
        """Share of the window inside engine steps, or of the looks at which something ran."""
        return self.running_share if self.busy_seconds is None else min(1.0, self.busy_seconds / self.seconds)

    @property
    def step_cpu_share(self) -> float | None:
        """Share of the time inside steps in which the engine's thread had a CPU."""
        if self.step_cpu_seconds is None or not self.busy_seconds:
            return None
        return min(1.0, self.step_cpu_seconds / self.busy_seconds)

    @property
    def step_kernel_share(self) -> float | None:
        """Share of the time inside steps that kernels took."""
        if self.step_kernel_seconds is None or not self.busy_seconds:
            return None
        return min(1.0, self.step_kernel_seconds / self.busy_seconds)

    @property
    def prefix_hit_rate(self) -> float | None:
        """Share of prompt tokens that the prefix cache had."""
        if not self.prefix_query_tokens or self.prefix_hit_tokens is None:
            return None
        return self.prefix_hit_tokens / self.prefix_query_tokens


def pooled(workers: Sequence[Counters]) -> Counters:
    """The counters of a pool: what is counted by session or token adds up, shares and times are the mean over the
    workers that tell them.

    A mean hides a hot worker among idle ones on purpose: that is the router's to mend, and the verdict of that worker
    shows it.
    """

    def total(name: str) -> float:
        return float(sum(getattr(c, name) for c in workers))

    def mean(name: str) -> float | None:
        told = [getattr(c, name) for c in workers if getattr(c, name) is not None]
        return sum(told) / len(told) if told else None

    added = ("running", "waiting", "preemptions", "refusals", "prompt_tokens", "generated_tokens")
    averaged = (
        *(
            "waiting_for_room",
            "kv_used",
            "steps",
            "busy_seconds",
            "step_cpu_seconds",
            "step_kernel_seconds",
            "read_bytes",
            "flops",
            "memory_active",
            "tensor_active",
            "running_share",
        ),
        *("inter_token_p95_seconds", "inter_token_mean_seconds", "prefix_query_tokens", "prefix_hit_tokens"),
    )
    seconds = sum(c.seconds for c in workers) / len(workers)
    figures = {n: total(n) for n in added} | {n: mean(n) for n in averaged}
    return Counters(seconds, tells_tokens=all(c.tells_tokens for c in workers), **figures)  # type: ignore[arg-type]
