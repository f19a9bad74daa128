"""What one measurement found."""

import hashlib
import json
import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from kvroll_core.gate import GateVerdict
from kvroll_operator.api.gate import GateMetric


class GateSourceError(RuntimeError):
    """A source gave no measurement: unreachable, refused, or an answer that is none. It counts as inconclusive, never as a Pass."""


@dataclass(frozen=True)
class Finding:
    """A verdict with its reason, prompts or measurements used, and what else belongs into the evidence (JSON values)."""

    verdict: GateVerdict
    reason: str
    samples: int = 0
    evidence: Mapping[str, Any] = field(default_factory=dict)

    def report(self, **about: Any) -> str:
        """The evidence as canonical JSON; `about` names what was measured."""
        head = {"verdict": self.verdict.value, "reason": self.reason, "samples": self.samples}
        return json.dumps({**about, **self.evidence, **head}, sort_keys=True, separators=(",", ":"), default=str)


def digest_of(report: str) -> str:
    """SHA-256 of a report."""
    return hashlib.sha256(report.encode()).hexdigest()


def judge(
    bars: Iterable[GateMetric], values: Mapping[str, Iterable[Any]], *, samples: int, min_samples: int | None
) -> Finding:
    """Each bar against every value measured for it. No value, or one that is no finite number, gives no verdict; nor do too few samples.

    A bar that is missed decides even so. What rests on no sample at all is no measurement: it can neither pass nor fail.
    """
    if samples < 1:
        return Finding(GateVerdict.INCONCLUSIVE, f"expected at least 1 sample, found {samples}", max(samples, 0))
    metrics = [_against(bar, list(values.get(bar.name, ()))) for bar in bars]
    evidence = {"metrics": metrics}
    failed = [_said(m) for m in metrics if m["verdict"] == GateVerdict.FAIL]
    if failed:
        return Finding(GateVerdict.FAIL, f"missed: {'; '.join(failed)}", samples, evidence)
    missing = [m["name"] for m in metrics if m["verdict"] == GateVerdict.INCONCLUSIVE]
    if missing:
        return Finding(GateVerdict.INCONCLUSIVE, f"no value of {', '.join(missing)}", samples, evidence)
    if min_samples is not None and samples < min_samples:
        reason = f"expected at least {min_samples} samples, found {samples}"
        return Finding(GateVerdict.INCONCLUSIVE, reason, samples, evidence)
    return Finding(GateVerdict.PASS, "; ".join(_said(m) for m in metrics), samples, evidence)


def _against(bar: GateMetric, found: list[Any]) -> dict[str, Any]:
    limits = {key: limit for key, limit in (("min", bar.min), ("max", bar.max)) if limit is not None}
    shown: dict[str, Any] = {"name": bar.name, "bar": limits}
    numbers = [float(v) for v in found if isinstance(v, int | float) and not isinstance(v, bool) and math.isfinite(v)]
    if not numbers or len(numbers) < len(found):
        return {**shown, "verdict": GateVerdict.INCONCLUSIVE.value}
    worst = min(numbers) if bar.min is not None else max(numbers)
    missed = (bar.min is not None and worst < bar.min) or (bar.max is not None and worst > bar.max)
    return {**shown, "value": worst, "verdict": (GateVerdict.FAIL if missed else GateVerdict.PASS).value}


def _said(metric: Mapping[str, Any]) -> str:
    bar = metric["bar"]
    limit = f">= {bar['min']:g}" if "min" in bar else f"<= {bar['max']:g}"
    return f"{metric['name']} {metric['value']:.6g} ({limit})"
