"""From an engine's series to its verdict and advice, and from those of its workers to a pool's."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

from kvroll_core.budget import ModelShape
from kvroll_core.precision.formats import HEAD_INT8, HEAD_SAME
from kvroll_core.wall.advice import Advice, recommend
from kvroll_core.wall.counters import Counters, Machine, pooled
from kvroll_core.wall.load import Load
from kvroll_core.wall.series import MODEL_INFO, Sample, counters_between
from kvroll_core.wall.step import Rates, with_model
from kvroll_core.wall.verdict import Verdict, classify
from kvroll_core.work import Precision, WorkModel


@dataclass(frozen=True)
class Told:
    """What is known beside the series: the model and its precision, the device, the replicas."""

    shape: ModelShape | None = None
    weights: str | None = None
    kv_cache: str | None = None
    machine: Machine = field(default_factory=Machine)
    replicas: int = 1


@dataclass(frozen=True)
class Judged:
    """A verdict and its advice, and the counters behind both."""

    counters: Counters
    machine: Machine
    load: Load | None
    verdict: Verdict
    advice: tuple[Advice, ...]


def judge(samples: Sequence[Sample], told: Told) -> Judged:
    """The verdict on one engine by the samples of a window.

    Raises:
        SeriesError: its series do not tell what it does.
    """
    counters = counters_between(samples)
    measured = samples[-1].machine()
    machine = Machine(
        told.machine.bytes_per_second or measured.bytes_per_second,
        told.machine.flops_per_second or measured.flops_per_second,
    )
    load = _load(counters, samples[-1], told)
    return _judged(with_model(counters, load) if load else counters, machine, load, samples[-1].rates())


def judge_pool(workers: Sequence[Judged], rates: Rates) -> Judged:
    """A pool as its mean worker; its devices are taken to be alike."""
    load = next((w.load for w in workers if w.load is not None), None)
    return _judged(pooled([w.counters for w in workers]), workers[0].machine, load, rates)


def _judged(counters: Counters, machine: Machine, load: Load | None, rates: Rates) -> Judged:
    verdict = classify(counters, machine)
    return Judged(counters, machine, load, verdict, recommend(verdict, load, rates) if load else ())


def _load(counters: Counters, sample: Sample, told: Told) -> Load | None:
    """The mean batch, where the model is known and something runs: contexts are the pages in use over the sessions
    that run.
    """
    pool_tokens = sample.pool_tokens()
    if told.shape is None or not counters.running or not pool_tokens or not counters.kv_used:
        return None
    precision = _precision(sample.info(MODEL_INFO), told)
    tokens = counters.kv_used * pool_tokens / counters.running
    length = max(1, round(tokens))
    held = sum(WorkModel(told.shape, precision).context_bytes(length).values())
    steps, busy = counters.steps, counters.busy_seconds
    return Load(
        shape=told.shape,
        precision=precision,
        sessions=counters.running,
        tokens=tokens,
        pool_bytes=pool_tokens * held / length,
        step_seconds=busy / steps if busy and steps else counters.inter_token_mean_seconds,
        replicas=told.replicas,
        kernel_share=counters.step_kernel_share,
    )


def _precision(info: Mapping[str, str], told: Told) -> Precision:
    """What the asker says, else what the engine tells, else what most run."""
    whole = Precision(told.weights or info.get("weights") or "bf16", told.kv_cache or info.get("kv_cache") or "bf16")
    return replace(
        whole,
        head=HEAD_INT8 if info.get("head") == "int8" else HEAD_SAME,
        weight_block=int(info.get("weight_block") or 0) or whole.weight_block,
        residual_tokens=int(info.get("residual_tokens") or 0) or whole.residual_tokens,
    )
