"""What a worker or a pool is short of, with the figures that say so, and what would change it.

`classify` turns counters into a verdict, `recommend` a verdict and a load into advice with its predicted effect,
`counters_between` the series of an engine into counters; `judge` and `judge_pool` do all three. Pure; whoever may
import `kvroll_core` may import this, by this name alone.
"""

from kvroll_core.wall.advice import Advice, recommend
from kvroll_core.wall.counters import Counters, Machine, pooled
from kvroll_core.wall.judge import Judged, Told, judge, judge_pool
from kvroll_core.wall.load import Load
from kvroll_core.wall.series import (
    MEMORY_ACTIVE,
    MODEL_INFO,
    TENSOR_ACTIVE,
    Labels,
    Sample,
    SeriesError,
    counters_between,
)
from kvroll_core.wall.step import Effect, Rates, predict, with_model
from kvroll_core.wall.verdict import Basis, Figure, Verdict, Wall, classify, pages_full_at

__all__ = [
    "MEMORY_ACTIVE",
    "MODEL_INFO",
    "TENSOR_ACTIVE",
    "Advice",
    "Basis",
    "Counters",
    "Effect",
    "Figure",
    "Judged",
    "Labels",
    "Load",
    "Machine",
    "Rates",
    "Sample",
    "SeriesError",
    "Told",
    "Verdict",
    "Wall",
    "classify",
    "counters_between",
    "judge",
    "judge_pool",
    "pages_full_at",
    "pooled",
    "predict",
    "recommend",
    "with_model",
]
