"""How far one distribution of next tokens is from another, and whether that is near enough. Pure, on arrays.

The quantities are those of llama.cpp's `perplexity --kl-divergence` and of the gate (docs/gate.md): agreement of the likeliest token, the
mean and the 99th percentile of KL(base || candidate) over the whole vocabulary, and the relative change of the text's perplexity.
"""

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

Logprobs = npt.NDArray[np.float32]
"""Log-probabilities [positions, vocab] in nats."""


class NotComparableError(ValueError):
    """Two runs are of different shapes, or one holds numbers that are no numbers: nothing can be said, so nothing passes."""


@dataclass(frozen=True)
class Agreement:
    """Over the scored positions. KL in nats; `ppl_delta` is relative: 0.01 is one percent more perplexity than the base."""

    positions: int
    top1_agreement: float
    kl_mean: float
    kl_p99: float
    perplexity: float
    ppl_delta: float


@dataclass(frozen=True)
class MetricBar:
    """What a metric must reach, or must not exceed; both ends count as passed."""

    metric: str
    least: float = -math.inf
    most: float = math.inf


def log_softmax(logits: Logprobs) -> Logprobs:
    """Log-probabilities of logits [..., vocab], summed in fp64, kept in fp32."""
    wide = logits.astype(np.float64)
    wide -= wide.max(axis=-1, keepdims=True)
    wide -= np.log(np.exp(wide).sum(axis=-1, keepdims=True))
    return wide.astype(np.float32)


def divergences(base: Logprobs, found: Logprobs) -> npt.NDArray[np.float64]:
    """KL(base || found) in nats at each position; never below 0 (what rounding leaves below it is 0)."""
    wide = base.astype(np.float64)
    kl: npt.NDArray[np.float64] = np.maximum((np.exp(wide) * (wide - found)).sum(axis=-1), 0.0)
    return kl


def compare(base: Logprobs, found: Logprobs, targets: Sequence[int]) -> Agreement:
    """The agreement of `found` with `base` on the same text; `targets` are the ids that came next.

    Raises:
        NotComparableError: the shapes differ, there is no position, or a number is not finite.
    """
    _check(base, found, targets)
    rows = np.arange(len(targets))
    losses = [-float(one[rows, list(targets)].astype(np.float64).mean()) for one in (base, found)]
    kl = divergences(base, found)
    return Agreement(
        positions=len(targets),
        top1_agreement=float((base.argmax(axis=-1) == found.argmax(axis=-1)).mean()),
        kl_mean=float(kl.mean()),
        kl_p99=float(np.quantile(kl, 0.99)),
        perplexity=math.exp(losses[1]),
        ppl_delta=math.expm1(losses[1] - losses[0]),
    )


def missed(figures: Mapping[str, float], bars: Iterable[MetricBar]) -> list[str]:
    """The bars that the figures do not clear, each with the arithmetic; a figure that is absent or NaN clears none."""
    out = []
    for bar in bars:
        value = figures.get(bar.metric, math.nan)
        if not bar.least <= value <= bar.most:
            out.append(f"{bar.metric}: expected {_range(bar)}, found {value:g}")
    return out


def _range(bar: MetricBar) -> str:
    if bar.most == math.inf:
        return f"at least {bar.least:g}"
    return f"at most {bar.most:g}" if bar.least == -math.inf else f"{bar.least:g} to {bar.most:g}"


def _check(base: Logprobs, found: Logprobs, targets: Sequence[int]) -> None:
    if base.shape != found.shape or len(base) != len(targets) or not len(targets):
        raise NotComparableError(
            f"expected two runs of one text with {len(targets)} scored tokens, found {base.shape} and {found.shape}"
        )
    for name, run in (("base", base), ("candidate", found)):
        bad = int((~np.isfinite(run)).any(axis=-1).sum())
        if bad:
            raise NotComparableError(f"the {name} gave numbers that are not finite at {bad} of {len(run)} positions")
