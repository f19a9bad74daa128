"""A candidate's scores of a whole dataset, made once by the real engine and kept under build/: what trials are resampled from.

A file holds answers only of the sources that made them: the digest of engine, kernels and formats is part of its name.
"""

import gzip
import hashlib
import json
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from kvroll_core.gate import Answer, Ask, Dataset, TrialPolicy
from kvroll_core.precision.precision import Precision
from kvroll_worker.engine.engine import Engine, EngineConfig
from kvroll_worker.evaluate.arm import EngineArm
from kvroll_worker.models.smollm2 import ensure_model

KEPT = Path("build/bench/gate_scores")
_ROOT = Path(__file__).resolve().parents[2]
_WORKER = tuple(f"worker/kvroll_worker/{room}" for room in ("engine", "evaluate", "kv", "models", "quant"))
_MADE_BY = ("kernels/src", "kernels/kvroll_kernels", *_WORKER, "core/kvroll_core/precision")
"""What an answer depends on; the wire, the budget and the gate's own arithmetic change none."""
_TOGETHER = 4
_LIMITS: dict[str, Any] = {"max_model_len": 256, "kv_memory_bytes": 64 * 2**20, "max_sessions": 8}


@dataclass(frozen=True)
class Candidate:
    """A precision of the engine. `residual_tokens`: newest tokens that a sealed KV format keeps in 16 bits; shorter than the texts,
    so that sealed pages are read.
    """

    kv_cache: str
    weights: str = "bf16"
    residual_tokens: int = 32

    @property
    def name(self) -> str:
        """For a report."""
        return self.kv_cache if self.weights == "bf16" else f"{self.weights}/{self.kv_cache}"


def scores(candidate: Candidate, dataset: Dataset, threads: int) -> list[Answer]:
    """One answer a text of the dataset, in its order; from the file where there is one."""
    kept = KEPT / f"{candidate.weights}-{candidate.kv_cache}-{candidate.residual_tokens}-{_key(dataset)}.json.gz"
    if kept.exists():
        return [Answer.from_json(one) for one in json.loads(gzip.decompress(kept.read_bytes()))]
    found = _scored(candidate, dataset, threads)
    kept.parent.mkdir(parents=True, exist_ok=True)
    draft = kept.with_suffix(".draft")
    draft.write_bytes(gzip.compress(json.dumps([one.to_json() for one in found]).encode(), mtime=0))
    draft.replace(kept)
    return found


def _scored(candidate: Candidate, dataset: Dataset, threads: int) -> list[Answer]:
    precision = Precision(candidate.weights, candidate.kv_cache, residual_tokens=candidate.residual_tokens)
    engine = Engine(EngineConfig(ensure_model(), precision, threads=threads, **_LIMITS))
    top_k = TrialPolicy().top_k
    asks = [Ask(f"text-{at}", None, (one.text,), top_k) for at, one in enumerate(dataset.texts)]
    return EngineArm(engine, _TOGETHER).answer(asks)


def _key(dataset: Dataset) -> str:
    return _digest([dataset.digest.encode(), *_sources()])[:16]


def _sources() -> Iterable[bytes]:
    for folder in _MADE_BY:
        for file in sorted((_ROOT / folder).rglob("*")):
            if file.suffix in (".py", ".cpp", ".h"):
                yield f"{file.relative_to(_ROOT)}\n".encode() + file.read_bytes()


def _digest(parts: Iterable[bytes]) -> str:
    found = hashlib.sha256()
    for part in parts:
        found.update(len(part).to_bytes(8, "big") + part)
    return found.hexdigest()
