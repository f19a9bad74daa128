"""What a trial found and how sure it is: kept, compared by digest, and shown."""

import hashlib
import json
import math
from dataclasses import asdict, dataclass, replace
from typing import Any

from kvroll_core.gate.bar import Bar, GateError, GateVerdict, Metric


@dataclass(frozen=True)
class GateFigure:
    """A metric of candidate against baseline over `samples` prompts of `population`.

    `low` and `high` hold it but for alpha and beta, None where nothing bounds it; `standard_error` is between prompts, were they drawn from
    endlessly many; `control` is the same metric of the baseline against itself over `control_samples`. Without a bar it decides nothing.
    """

    name: Metric
    value: float | None
    low: float | None
    high: float | None
    bar: Bar | None
    verdict: GateVerdict
    reason: str
    samples: int
    population: int
    standard_error: float | None
    control: float | None
    control_samples: int


@dataclass(frozen=True)
class NeedleCount:
    """Needles at one depth (0 the start, 1 the end) in haystacks of one length in words, and how many each arm found."""

    words: int
    depth: float
    asked: int
    baseline: int
    candidate: int


@dataclass(frozen=True)
class Evidence:
    """A verdict with everything that it rests on. `samples` are prompts that the candidate answered."""

    verdict: GateVerdict
    reason: str
    samples: int = 0
    metrics: tuple[GateFigure, ...] = ()
    needles: tuple[NeedleCount, ...] = ()
    dataset_digest: str = ""
    seed: int = 0
    alpha: float = 0.0
    beta: float = 0.0
    as_sample: bool = False
    baseline: str = ""
    candidate: str = ""

    @classmethod
    def not_run(cls, reason: str) -> "Evidence":
        """No trial was made."""
        return cls(GateVerdict.NOT_RUN, reason)

    def named(self, baseline: str, candidate: str) -> "Evidence":
        """The same of arms whose names are known: a URL, or a revision and its dtypes."""
        return replace(self, baseline=baseline, candidate=candidate)

    @property
    def digest(self) -> str:
        """`sha256:` and the hex of the canonical JSON (sorted keys, no spaces) without the digest itself."""
        told = json.dumps(self._content(), sort_keys=True, separators=(",", ":"), allow_nan=False)
        return f"sha256:{hashlib.sha256(told.encode()).hexdigest()}"

    def to_json(self) -> dict[str, Any]:
        """Plain JSON in the CRD's spelling (camelCase), with the digest."""
        return {**self._content(), "digest": self.digest}

    @classmethod
    def from_json(cls, found: dict[str, Any]) -> "Evidence":
        """Of `to_json`'s shape.

        Raises:
            GateError: it lacks something, or its digest is another's.
        """
        try:
            made = cls(
                **{
                    **{_snake(key): value for key, value in found.items() if key != "digest"},
                    "verdict": GateVerdict(found["verdict"]),
                    "metrics": tuple(_figure(one) for one in found["metrics"]),
                    "needles": tuple(NeedleCount(**one) for one in found["needles"]),
                }
            )
        except (KeyError, TypeError, ValueError) as error:
            raise GateError(f"expected a gate's evidence, found one without or with a wrong {error}") from error
        if found.get("digest", made.digest) != made.digest:
            raise GateError(f"expected evidence of digest {found['digest']}, found {made.digest}: it was changed")
        return made

    def _content(self) -> dict[str, Any]:
        content = {_camel(key): value for key, value in asdict(replace(self, metrics=())).items()}
        metrics = [
            {_camel(key): value for key, value in asdict(replace(one, bar=None)).items()} for one in self.metrics
        ]
        for told, one in zip(metrics, self.metrics, strict=True):
            told["name"], told["verdict"] = one.name.value, one.verdict.value
            told["bar"] = one.bar.to_json() if one.bar is not None else None
        return {**content, "verdict": self.verdict.value, "metrics": metrics, "needles": list(content["needles"])}


def known(value: float) -> float | None:
    """None for what is no finite number, which JSON cannot say."""
    return value if math.isfinite(value) else None


def _figure(found: dict[str, Any]) -> GateFigure:
    return GateFigure(
        **{
            **{_snake(key): value for key, value in found.items()},
            "name": Metric(found["name"]),
            "verdict": GateVerdict(found["verdict"]),
            "bar": Bar.from_json(found["bar"]) if found["bar"] is not None else None,
        }
    )


def _camel(name: str) -> str:
    first, *others = name.split("_")
    return first + "".join(word.capitalize() for word in others)


def _snake(name: str) -> str:
    return "".join(f"_{letter.lower()}" if letter.isupper() else letter for letter in name)
