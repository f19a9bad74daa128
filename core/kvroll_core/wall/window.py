"""Reads the counters of a window from the scrapes of one engine."""

from collections.abc import Sequence

from kvroll_core.wall.counters import Counters
from kvroll_core.wall.series import MEMORY_ACTIVE, TENSOR_ACTIVE, SeriesError, View
from kvroll_core.wall.verdict import pages_full_at


def counters_between(views: Sequence[View]) -> Counters:
    """The counters of a window from two scrapes or more: totals from the first to the last, gauges over all of them.

    Raises:
        SeriesError: fewer than two scrapes, no time between them, or a counter that went back (the engine restarted).
    """
    if len(views) < 2:
        raise SeriesError(f"expected two scrapes or more, found {len(views)}")
    first, last = views[0], views[-1]
    seconds = last.at - first.at
    if seconds <= 0:
        raise SeriesError(f"expected time between the scrapes, found {seconds:g} s")
    running = [v.total("running") or 0.0 for v in views]
    return Counters(
        seconds=seconds,
        running=_mean(running),
        running_share=_mean([float(r > 0) for r in running]),
        waiting=_mean([v.total("waiting") or 0.0 for v in views]),
        waiting_for_room=_waiting_for_room(views, seconds),
        kv_used=_high([v.kv_used() for v in views]),
        preemptions=_grown(first, last, "preemptions") or 0.0,
        refusals=_grown(first, last, "refusals") or 0.0,
        prompt_tokens=_grown(first, last, "prompt_tokens") or 0.0,
        generated_tokens=_grown(first, last, "generated_tokens") or 0.0,
        tells_tokens=last.total("generated_tokens") is not None,
        steps=_grown(first, last, "steps"),
        busy_seconds=_grown(first, last, "busy_seconds"),
        step_cpu_seconds=_grown(first, last, "step_cpu_seconds"),
        # Zero where the kernels do not count their time.
        step_kernel_seconds=_grown(first, last, "step_kernel_seconds") or None,
        # An engine without the analytic counters may still show the series, at zero.
        read_bytes=_grown(first, last, "read_bytes") or None,
        flops=_grown(first, last, "flops") or None,
        memory_active=_mean_of_told([v.sample.mean(*MEMORY_ACTIVE) for v in views]),
        tensor_active=_mean_of_told([v.sample.mean(*TENSOR_ACTIVE) for v in views]),
        inter_token_p95_seconds=_quantile(first, last, 0.95),
        inter_token_mean_seconds=_histogram_mean(first, last),
        prefix_query_tokens=_grown(first, last, "prefix_queries") if last.total("prefix_hits") is not None else None,
        prefix_hit_tokens=_grown(first, last, "prefix_hits"),
    )


def _waiting_for_room(views: Sequence[View], seconds: float) -> float | None:
    counted = _grown(views[0], views[-1], "waiting_for_room_seconds")
    if counted is not None:
        return min(1.0, counted / seconds)
    waits = [_waits_for_room(v) for v in views]
    told = [wait for wait in waits if wait is not None]
    return _mean([float(wait) for wait in told]) if len(told) == len(waits) else None


def _waits_for_room(view: View) -> bool | None:
    """Whether sessions wait for pages, of an engine that only tells who waits and how full the pages are; None: it does not.

    vLLM's reason "capacity" means all that were not tried yet, those that wait for a slot or for tokens of a step too
    (vllm-project/vllm#38435); "deferred" ones wait for something else. So the pages must be too full for one more.
    """
    by_reason = view.total("waiting_for_capacity")
    waiting = view.total("waiting") if by_reason is None else by_reason
    if waiting is None:
        return None
    if not waiting:
        return False
    used = view.kv_used()
    return None if used is None else used >= pages_full_at(view.total("running") or 0.0)


def _grown(first: View, last: View, role: str) -> float | None:
    before, after = first.total(role), last.total(role)
    if after is None:
        return None
    if after < (before or 0.0):
        name = last.name(role)
        raise SeriesError(f"{name} went back from {before:g} to {after:g}: the engine restarted; look again")
    return after - (before or 0.0)


def _quantile(first: View, last: View, share: float) -> float | None:
    before, after = first.buckets("inter_token"), last.buckets("inter_token")
    counts = {edge: number - before.get(edge, 0.0) for edge, number in after.items()}
    edges = sorted(counts)
    if not edges or counts[edges[-1]] <= 0:
        return None
    wanted = share * counts[edges[-1]]
    low, below = 0.0, 0.0
    for edge in edges:
        if counts[edge] >= wanted:
            # Linear inside a bucket, as PromQL's histogram_quantile; the last one has no upper edge.
            inside = counts[edge] - below
            return low if edge == float("inf") else low + (edge - low) * (wanted - below) / inside
        low, below = edge, counts[edge]
    return low


def _histogram_mean(first: View, last: View) -> float | None:
    before, after = first.sums("inter_token") or (0.0, 0.0), last.sums("inter_token")
    if after is None:
        return None
    seconds, count = after[0] - before[0], after[1] - before[1]
    return seconds / count if count > 0 else None


def _mean(values: Sequence[float]) -> float:
    return sum(values) / len(values)


def _mean_of_told(values: Sequence[float | None]) -> float | None:
    told = [v for v in values if v is not None]
    return _mean(told) if told else None


def _high(values: Sequence[float | None]) -> float | None:
    told = sorted(v for v in values if v is not None)
    return told[min(len(told) - 1, int(0.95 * len(told)))] if told else None
