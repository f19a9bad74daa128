"""What a model costs in memory at a precision, before anything is loaded: weights, activations, KV bytes, pages,
sessions.

Pure arithmetic over the one format table. The worker refuses a spec with it, the operator and the command line plan
with it; whoever may import `kvroll_core` may import this, by this name alone: the files below are how it is split,
not its interface.
"""

from kvroll_core.budget.cache import HeadKv, KvGroup, LatentKv, SplitError, StateKv, pages_for
from kvroll_core.budget.families import FAMILIES, Family
from kvroll_core.budget.fit import Ask, Fit, Point, reckon, sweep
from kvroll_core.budget.quantised import Quantised, auto_kv_cache, read_quantised
from kvroll_core.budget.quantity import MIB, format_bytes
from kvroll_core.budget.ranks import Ranks, WindowBytes
from kvroll_core.budget.shape import Compressed, Experts, Facts, Latent, ModelShape, ShapeError
from kvroll_core.budget.sliding import FULL, SLIDING, window_tokens
from kvroll_core.budget.window import PageWindow, page_window
from kvroll_core.budget.worker import (
    Budget,
    BudgetError,
    BudgetRequest,
    activations_bytes,
    head_bytes,
    kv_token_bytes,
    plan_budget,
    weights_bytes,
)
from kvroll_core.precision.formats import WEIGHT_BLOCK

__all__ = [
    "FAMILIES",
    "FULL",
    "MIB",
    "SLIDING",
    "WEIGHT_BLOCK",
    "Ask",
    "Budget",
    "BudgetError",
    "BudgetRequest",
    "Compressed",
    "Experts",
    "Facts",
    "Family",
    "Fit",
    "HeadKv",
    "KvGroup",
    "Latent",
    "LatentKv",
    "ModelShape",
    "PageWindow",
    "Point",
    "Quantised",
    "Ranks",
    "ShapeError",
    "SplitError",
    "StateKv",
    "WindowBytes",
    "activations_bytes",
    "auto_kv_cache",
    "format_bytes",
    "head_bytes",
    "kv_token_bytes",
    "page_window",
    "pages_for",
    "plan_budget",
    "read_quantised",
    "reckon",
    "sweep",
    "weights_bytes",
    "window_tokens",
]
