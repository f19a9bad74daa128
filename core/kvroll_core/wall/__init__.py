"""What an engine or a pool is short of, with the figures that say so, and what would change it.

`engines_in` finds the engines of a metrics page (vLLM, SGLang, TensorRT-LLM, llama.cpp, kvroll; their names and flags stand in
`engines.toml`), `counters_between` turns the series of one into counters, `classify` counters into a verdict, `recommend` a verdict and a
load into advice with its predicted effect; `judge_engine` and `judge_pool` do all of it. Pure; whoever may import `kvroll_core` may import
this, by this name alone.
"""

from kvroll_core.wall.advice import Advice, recommend
from kvroll_core.wall.counters import Counters, Machine, pooled
from kvroll_core.wall.engine import Engine, Labels, Router, Switch, engine_named, engines, routers
from kvroll_core.wall.judge import Judged, Told, judge, judge_engine, judge_pool
from kvroll_core.wall.load import Load
from kvroll_core.wall.page import Found, engines_in
from kvroll_core.wall.series import MEMORY_ACTIVE, MODEL_INFO, TENSOR_ACTIVE, Sample, SeriesError, View
from kvroll_core.wall.step import Effect, KernelRates, predict, with_model
from kvroll_core.wall.stored import DtypeError, Stored
from kvroll_core.wall.verdict import Basis, Figure, Missing, Wall, WallVerdict, classify, pages_full_at
from kvroll_core.wall.window import counters_between

__all__ = [
    "MEMORY_ACTIVE",
    "MODEL_INFO",
    "TENSOR_ACTIVE",
    "Advice",
    "Basis",
    "Counters",
    "DtypeError",
    "Effect",
    "Engine",
    "Figure",
    "Found",
    "Judged",
    "KernelRates",
    "Labels",
    "Load",
    "Machine",
    "Missing",
    "Router",
    "Sample",
    "SeriesError",
    "Stored",
    "Switch",
    "Told",
    "View",
    "Wall",
    "WallVerdict",
    "classify",
    "counters_between",
    "engine_named",
    "engines",
    "engines_in",
    "judge",
    "judge_engine",
    "judge_pool",
    "pages_full_at",
    "pooled",
    "predict",
    "recommend",
    "routers",
    "with_model",
]
