"""The series of a metrics page at one scrape, and those of one engine by roles."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from kvroll_core.precision.formats import PAGE_TOKENS
from kvroll_core.wall.counters import Machine
from kvroll_core.wall.engine import Engine, Labels
from kvroll_core.wall.step import KernelRates

Series = Mapping[str, Mapping[Labels, float]]

MODEL_INFO = "kvroll_engine_info"
DEVICE_BYTES_PER_SECOND, DEVICE_FLOPS_PER_SECOND = "kvroll_device_bytes_per_second", "kvroll_device_flops_per_second"
FORMAT_BYTES_PER_SECOND = "kvroll_format_bytes_per_second"
"""Labels `kind` (weights, kv) and `dtype`."""
MEMORY_ACTIVE = ("kvroll_device_memory_active", "DCGM_FI_PROF_DRAM_ACTIVE")
TENSOR_ACTIVE = ("kvroll_device_tensor_active", "DCGM_FI_PROF_PIPE_TENSOR_ACTIVE")
"""The device's own counters, shares from 0 to 1: a worker's reading of NVML, or the DCGM exporter's series beside it."""
OF_A_DEVICE = (
    MODEL_INFO,
    DEVICE_BYTES_PER_SECOND,
    DEVICE_FLOPS_PER_SECOND,
    FORMAT_BYTES_PER_SECOND,
    *MEMORY_ACTIVE,
    *TENSOR_ACTIVE,
)
"""Series that any engine may have beside its own."""


class SeriesError(ValueError):
    """The series do not tell what is needed; the message names it."""


@dataclass(frozen=True)
class Sample:
    """One scrape: when (seconds of a monotonic clock), and every series by name and labels."""

    at: float
    series: Series = field(default_factory=dict)

    def beside(self, series: Series) -> "Sample":
        """A copy with series that somebody else tells of these devices."""
        return Sample(self.at, {**self.series, **series})

    def total(self, *names: str) -> float | None:
        """The sum over all labels of the first of these names that is there."""
        found = next((self.series[n] for n in names if n in self.series), None)
        return None if found is None else sum(found.values())

    def highest(self, *names: str) -> float | None:
        """The highest over all labels of the first of these names that is there."""
        found = next((self.series[n] for n in names if self.series.get(n)), None)
        return None if not found else max(found.values())

    def mean(self, *names: str) -> float | None:
        """The mean over all labels of the first of these names that is there: a worker's devices share its work."""
        found = next((self.series[n] for n in names if self.series.get(n)), None)
        return None if found is None else sum(found.values()) / len(found)

    def info(self, name: str) -> dict[str, str]:
        """The labels of an info series, empty where there is none."""
        return dict(next(iter(self.series.get(name, {})), ()))

    def machine(self) -> Machine:
        """What the worker measured of its device at start; None where it does not tell."""
        return Machine(self.highest(DEVICE_BYTES_PER_SECOND), self.highest(DEVICE_FLOPS_PER_SECOND))

    def rates(self) -> KernelRates:
        """What the worker measured of each dtype's kernels at start."""
        kinds: dict[str, dict[str, float]] = {"weights": {}, "kv": {}}
        for labels, number in self.series.get(FORMAT_BYTES_PER_SECOND, {}).items():
            told = dict(labels)
            if told.get("kind") in kinds:
                kinds[told["kind"]][told.get("dtype", "")] = number
        return KernelRates(weights=kinds["weights"], kv=kinds["kv"])


@dataclass(frozen=True)
class View:
    """A scrape as one engine's: its figures by role, ranks counted once. Its sample holds nothing of other engines."""

    engine: Engine
    sample: Sample

    @property
    def at(self) -> float:
        """When, in seconds."""
        return self.sample.at

    def total(self, role: str) -> float | None:
        """The sum over what is left of the labels; None where the engine does not tell it."""
        found = self._found(role)
        return None if found is None else sum(_ranked(self.engine, found[1]).values())

    def highest(self, role: str) -> float | None:
        """The highest over all labels."""
        found = self._found(role)
        return None if found is None else max(found[1].values())

    def name(self, role: str) -> str:
        """What the engine calls it."""
        found = self._found(role)
        return found[0] if found else role

    def buckets(self, role: str) -> Mapping[float, float]:
        """Cumulative counts of a histogram by upper edge, over all labels."""
        counts: dict[float, float] = {}
        for labels, number in self._part(role, "_bucket").items():
            edge = float(dict(labels)["le"])
            counts[edge] = counts.get(edge, 0.0) + number
        return counts

    def sums(self, role: str) -> tuple[float, float] | None:
        """Sum and count of a histogram; None where there is none."""
        sums, counts = self._part(role, "_sum"), self._part(role, "_count")
        return (sum(sums.values()), sum(counts.values())) if sums and counts else None

    def kv_used(self) -> float | None:
        """Used share of the KV pool.

        Raises:
            SeriesError: a figure that is no share.
        """
        used = self.highest("kv_used")
        if used is None:
            blocks, most = self.highest("used_blocks"), self.highest("pool_blocks")
            used = blocks / most if blocks is not None and most else None
        if used is not None and used > 1.01:
            raise SeriesError(f"expected a share from 0 to 1 in {self.name('kv_used')}, found {used:g}")
        return used

    def pool_tokens(self) -> float | None:
        """Tokens that the KV pool holds: told whole, as blocks of so many, or as our pages."""
        told = self._info("cache_info")
        if told.get("num_gpu_blocks", "").isdigit() and told.get("block_size", "").isdigit():
            return int(told["num_gpu_blocks"]) * int(told["block_size"])
        if (tokens := self.highest("pool_tokens")) is not None:
            return tokens
        blocks, each = self.highest("pool_blocks"), self.highest("block_tokens")
        if blocks is not None and each is not None:
            return blocks * each
        pages = self.total("pages")
        return None if pages is None else pages * PAGE_TOKENS

    def cache_dtype(self) -> str | None:
        """What the KV cache is in, by the page; None where it does not say, or says that it follows the model."""
        word = self._info("cache_info").get("cache_dtype", "auto")
        return None if word == "auto" else word

    def _info(self, role: str) -> dict[str, str]:
        found = self._found(role)
        return dict(next(iter(found[1]), ())) if found else {}

    def _found(self, role: str) -> tuple[str, Mapping[Labels, float]] | None:
        for selector in self.engine.series.get(role, ()):
            if found := selector.of(self.sample.series.get(selector.name, {})):
                return str(selector), found
        return None

    def _part(self, role: str, suffix: str) -> Mapping[Labels, float]:
        for selector in self.engine.series.get(role, ()):
            if found := self.sample.series.get(f"{selector.name}{suffix}"):
                return _ranked(self.engine, found)
        return {}


def _ranked(engine: Engine, found: Mapping[Labels, float]) -> Mapping[Labels, float]:
    """Without the labels of ranks, which show the same figure again: the highest counts. Where the sum of a breakdown is there, its parts
    are left out.
    """
    for label in engine.breakdowns:
        whole = {labels: number for labels, number in found.items() if (label, "") in labels}
        found = whole or found
    if not engine.ranks:
        return found
    highest: dict[Labels, float] = {}
    for labels, number in found.items():
        key = tuple(pair for pair in labels if pair[0] not in engine.ranks)
        highest[key] = max(number, highest.get(key, number))
    return highest
