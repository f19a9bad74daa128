"""What a model costs in memory at a precision, before anything is loaded: weights, activations, KV bytes, pages,
sessions.

Pure arithmetic over the one format table. The worker refuses a spec with it, the operator and the command line plan
with it; whoever may import `kvroll_core` may import this, by this name alone: the files below are how it is split,
not its interface.
"""

from kvroll_core.budget.cache import HeadKv, KvGroup, LatentKv, pages_for
from kvroll_core.budget.fit import Ask, Fit, Point, reckon, sweep
from kvroll_core.budget.quantity import MIB, format_bytes
from kvroll_core.budget.shape import Compressed, Experts, Latent, ModelShape, ShapeError
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
from kvroll_core.formats import WEIGHT_BLOCK

__all__ = [
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
    "Fit",
    "HeadKv",
    "KvGroup",
    "Latent",
    "LatentKv",
    "ModelShape",
    "PageWindow",
    "Point",
    "ShapeError",
    "activations_bytes",
    "format_bytes",
    "head_bytes",
    "kv_token_bytes",
    "page_window",
    "pages_for",
    "plan_budget",
    "reckon",
    "sweep",
    "weights_bytes",
    "window_tokens",
]
