"""The engines of a metrics page: which they are, and which of its series belong to which."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from kvroll_core.wall.engine import Engine, Labels, Selector, engines, routers
from kvroll_core.wall.series import OF_A_DEVICE, Sample, Series, SeriesError, View

ENGINE_METRICS = "kvroll_gateway_engine_metrics_info"
"""Label `url`: the metrics page of an engine that a gateway serves."""


@dataclass(frozen=True)
class Found:
    """One engine of a page over a window: `labels` tell it from the others of the page, none where it is the only one."""

    engine: Engine
    labels: Labels
    views: tuple[View, ...]

    @property
    def name(self) -> str:
        """`engine=1`, by what tells it apart; empty of the only one."""
        return ",".join(f"{key}={value}" for key, value in self.labels)

    def beside(self, series: Series) -> "Found":
        """With series that somebody else tells of its devices."""
        return Found(self.engine, self.labels, tuple(View(v.engine, v.sample.beside(series)) for v in self.views))


def engines_in(samples: Sequence[Sample]) -> tuple[Found, ...]:
    """Every engine of a page that was scraped so often, in the order of their labels.

    A page shows one engine, the data-parallel ones of one server (vLLM's label `engine`, SGLang's `dp_rank`), or those of many servers
    (a Prometheus' `instance` or `pod`). Ranks of tensor and pipeline parallelism are one engine. A series without the labels that tell
    engines apart belongs to no one of several, for it would count for each.

    Raises:
        SeriesError: no scrape, a page of a router, or none of an engine that is known.
    """
    if not samples:
        raise SeriesError("expected two scrapes or more, found 0")
    last = samples[-1].series
    _refuse_router(last)
    found = [(engine, identity) for engine in engines() for identity in _identities(engine, last)]
    # A worker of kvroll shows vLLM's names too.
    ours = {identity for engine, identity in found if engine.is_ours}
    found = [(e, identity) for e, identity in found if e.is_ours or e.name != "vllm" or identity not in ours]
    if not found:
        raise SeriesError(f"expected {_known()}, found no such series")
    shown = _telling([identity for _, identity in found])
    return tuple(
        Found(engine, labels, tuple(View(engine, _own(engine, identity, found, s)) for s in samples))
        for (engine, identity), labels in sorted(zip(found, shown, strict=True), key=lambda pair: pair[1])
    )


def _identities(engine: Engine, series: Series) -> list[Labels]:
    """The labels of its series that tell engines apart, one set an engine: all but those of ranks and breakdowns."""
    left_out = {*engine.ranks, *engine.breakdowns}
    seen: dict[Labels, None] = {}
    for selector in _first(engine, series):
        for labels in selector.of(series[selector.name]):
            seen[tuple(pair for pair in labels if pair[0] not in left_out)] = None
    return [identity for identity in seen if not engine.marks or _is_marked(engine, identity, series)]


def _is_marked(engine: Engine, identity: Labels, series: Series) -> bool:
    return any(_agree(labels, identity) for mark in engine.marks for labels in series.get(mark, {}))


def _first(engine: Engine, series: Series) -> list[Selector]:
    return [s for s in engine.series["running"] if s.of(series.get(s.name, {}))][:1]


def _own(engine: Engine, identity: Labels, found: Sequence[tuple[Engine, Labels]], sample: Sample) -> Sample:
    """What of a scrape is that engine's: what agrees with its labels and, where others tell it too, with no one else's."""
    own: dict[str, Mapping[Labels, float]] = {}
    for name, family in sample.series.items():
        if not _wants(engine, name):
            continue
        tellers = [labels for other, labels in found if _wants(other, name)]
        kept = {labels: number for labels, number in family.items() if _owner(labels, tellers) == identity}
        if kept:
            own[name] = kept
    return Sample(sample.at, own)


def _wants(engine: Engine, name: str) -> bool:
    names = {s.name for selectors in engine.series.values() for s in selectors}
    return name in names or _stem(name) in names or name in OF_A_DEVICE


def _stem(name: str) -> str:
    """The family of a histogram's part."""
    return name.removesuffix("_bucket").removesuffix("_sum").removesuffix("_count")


def _owner(labels: Labels, identities: Sequence[Labels]) -> Labels | None:
    """The one engine that these labels agree with; None where that is none or several."""
    agreeing = [identity for identity in identities if _agree(labels, identity)]
    return agreeing[0] if len(agreeing) == 1 else None


def _agree(labels: Labels, identity: Labels) -> bool:
    """Where both have a label it has one value."""
    told = dict(labels)
    return all(told.get(key, value) == value for key, value in identity)


def _telling(identities: Sequence[Labels]) -> list[Labels]:
    """Of each identity the labels whose values differ between them."""
    if len(identities) < 2:
        return [() for _ in identities]
    keys = {key for identity in identities for key, _ in identity}
    differing = {key for key in keys if len({dict(identity).get(key) for identity in identities}) > 1}
    return [tuple(pair for pair in identity if pair[0] in differing) for identity in identities]


def _refuse_router(series: Series) -> None:
    for router in routers():
        if _has(router.marks, series):
            told = sorted(dict(labels).get("url", "") for labels in series.get(ENGINE_METRICS, {}))
            asked = (
                " ".join(f"--metrics-url {url}" for url in told)
                or "--metrics-url http://ENGINE/metrics for each of them"
            )
            raise SeriesError(
                f"expected an engine's metrics, found those of {router.title}, which do not tell what its engines do: say {asked}"
            )


def _has(marks: Sequence[str], series: Series) -> bool:
    return any(series.get(mark) for mark in marks)


def _known() -> str:
    names = [f"{e.series['running'][0]} ({e.title})" for e in engines() if not e.is_ours]
    return f"{', '.join(names[:-1])} or {names[-1]}"
