"""The evidence as a page that people read: Markdown, which a terminal, a forge and a browser show alike."""

from collections.abc import Iterable, Sequence

from kvroll_core.gate.bar import GateVerdict, Metric
from kvroll_core.gate.evidence import Evidence, GateFigure, NeedleCount

_MEANINGS = {
    Metric.TOP1_AGREEMENT: "share of positions where both find the same token the likeliest",
    Metric.KL_MEAN: "mean KL divergence from the baseline in nats, a lower bound: tokens that only one reports are one bucket",
    Metric.KL_P99: "the KL in nats that one position in a hundred exceeds, the same lower bound",
    Metric.PPL_RATIO: "perplexity over the baseline's",
    Metric.NEEDLE_RECALL: "needles found over those that the baseline finds",
    Metric.TASK_SCORE: "tasks right over those that the baseline gets right",
}


def markdown(evidence: Evidence) -> str:
    """The whole page: the verdict, a row a metric, needles by place, and what the figures mean."""
    parts = [f"# Gate: {evidence.verdict}", evidence.reason]
    if evidence.verdict is not GateVerdict.NOT_RUN:
        parts += [_arms(evidence), _figures(evidence.metrics), *_needles(evidence.needles), _method(evidence)]
    return "\n\n".join([*parts, f"Digest `{evidence.digest}`"]) + "\n"


def number(value: float | None) -> str:
    """Five significant digits, or a dash for what is not known."""
    return "–" if value is None else f"{value:.5g}"


def limits(figure: GateFigure) -> str:
    """Between which values the figure is known to lie."""
    if figure.value is None:
        return "–"
    return "exact" if figure.low == figure.high else f"{number(figure.low)} to {number(figure.high)}"


def _arms(evidence: Evidence) -> str:
    return _table(
        ("", ""),
        (
            ("baseline", evidence.baseline or "–"),
            ("candidate", evidence.candidate or "–"),
            ("prompts", str(evidence.samples)),
            ("dataset", f"`sha256:{evidence.dataset_digest}`, order and haystacks of seed {evidence.seed}"),
        ),
    )


def _figures(figures: Sequence[GateFigure]) -> str:
    rows = [
        (
            one.name.value,
            number(one.value),
            limits(one),
            f"{one.bar.limit:g} at {'least' if one.bar.is_floor else 'most'}" if one.bar else "–",
            one.verdict.value if one.bar else "–",
            f"{one.samples} of {one.population}",
            number(one.standard_error),
            f"{number(one.control)} ({one.control_samples})",
        )
        for one in figures
    ]
    head = ("metric", "value", "known to be", "bar", "verdict", "prompts", "standard error", "baseline against itself")
    meanings = [f"- `{name}`: {_MEANINGS[name]}." for name in dict.fromkeys(one.name for one in figures)]
    return _table(head, rows) + "\n\n" + "\n".join(meanings)


def _needles(counts: Sequence[NeedleCount]) -> Iterable[str]:
    if counts:
        rows = [
            (str(one.words), f"{one.depth:g}", str(one.asked), str(one.baseline), str(one.candidate)) for one in counts
        ]
        yield "## Needles"
        yield _table(("words", "depth", "asked", "baseline found", "candidate found"), rows)


def _method(evidence: Evidence) -> str:
    if evidence.as_sample:
        of = "any number of prompts like these, of which the dataset is taken to be a random sample"
    else:
        of = "this dataset, whose prompts were asked in random order; once all of them are, the figures are exact"
    return (
        f"Error rates: a candidate that misses a bar passes with a probability of at most {evidence.alpha:g}, one that meets all "
        f"bars fails with at most {evidence.beta:g}, each over {of}. The test looks after every batch (betting against the mean, "
        "arXiv:2010.09686), with a prompt as one observation. *standard error* is between prompts, for readers who take the dataset "
        "as a sample. *baseline against itself* is noise: where it misses a bar, a candidate that does is no failure but Inconclusive."
    )


def _table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    lines = [head, ["---"] * len(head), *rows]
    return "\n".join(f"| {' | '.join(cell.replace('|', chr(92) + '|') for cell in line)} |" for line in lines)
