"""How a trial goes about it: sizes and error rates."""

from dataclasses import dataclass

from kvroll_core.gate.bar import GateError
from kvroll_core.gate.needles import DEPTHS


@dataclass(frozen=True)
class TrialPolicy:
    """Error rates, and how much is asked.

    `alpha`: at most so often does a candidate pass that misses a bar. `beta`: at most so often does one fail that meets all bars.
    `min_samples` and `max_samples` count prompts of each kind (texts, haystacks, tasks); no maximum: the whole dataset.
    `batch_samples`: texts or tasks of one batch; of haystacks it is one. `control_every`: one prompt in so many goes to the baseline
    twice. `as_sample`: False, the bars are on this dataset, and once all of it is scored the figures are exact; True, the dataset is a
    sample of endlessly many prompts like it, which needs far more of them. `needle_words`: the length of each haystack; each holds a
    needle at every depth.

    Raises:
        GateError: a number out of its range.
    """

    alpha: float = 0.05
    beta: float = 0.05
    min_samples: int = 8
    max_samples: int | None = None
    batch_samples: int = 4
    top_k: int = 20
    control_every: int = 4
    as_sample: bool = False
    needle_words: tuple[int, ...] = (100, 200, 400, 100, 200, 400)
    needle_depths: tuple[float, ...] = DEPTHS

    def __post_init__(self) -> None:
        for name in ("alpha", "beta"):
            if not 0 < getattr(self, name) < 0.5:
                raise GateError(f"{name}: expected more than 0 and less than 0.5, found {getattr(self, name)}")
        for name in ("min_samples", "batch_samples", "top_k", "control_every"):
            if getattr(self, name) < 1:
                raise GateError(f"{name}: expected at least 1, found {getattr(self, name)}")
        if self.max_samples is not None and self.max_samples < self.min_samples:
            raise GateError(
                f"expected max_samples of at least min_samples, found {self.max_samples} and {self.min_samples}"
            )
