"""What a worker or a pool is short of, with the figures that say so, and what would change it.

`classify` turns counters into a verdict, `recommend` a verdict and a load into advice with its predicted effect,
`counters_between` the series of an engine into counters. Pure; whoever may import `kvroll_core` may import this, by
this name alone.
"""

from kvroll_core.wall.advice import Advice, recommend
from kvroll_core.wall.counters import Counters, Machine, pooled
from kvroll_core.wall.series import MODEL_INFO, Sample, SeriesError, counters_between
from kvroll_core.wall.step import Effect, Load, Rates, predict, with_model
from kvroll_core.wall.verdict import Basis, Figure, Verdict, Wall, classify, pages_full_at

__all__ = [
    "MODEL_INFO",
    "Advice",
    "Basis",
    "Counters",
    "Effect",
    "Figure",
    "Load",
    "Machine",
    "Rates",
    "Sample",
    "SeriesError",
    "Verdict",
    "Wall",
    "classify",
    "counters_between",
    "pages_full_at",
    "pooled",
    "predict",
    "recommend",
    "with_model",
]
