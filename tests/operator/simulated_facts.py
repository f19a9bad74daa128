"""What a simulated worker reports for a price: sessions of one length on a small model, at the precision of its revision."""

import json
from functools import cache

from kvroll_core.budget import BudgetRequest, ModelShape, pages_for
from kvroll_core.compat import Descriptor
from kvroll_core.precision.precision import Precision
from kvroll_core.price import SessionClass, WorkerFacts

SHAPE = ModelShape(30, 576, 9, 3, 64, 1536, 49152, True, 8192)
TOKENS = 320
REMAINING = 4000
IDENTITY = ("b", "c", "t", "h")
NUMERICS = ("e", "k", "cpu", "", "", "", "isa")


def content(weights: str = "bf16", kv_cache: str = "bf16") -> str:
    """A revision's content at that precision."""
    return json.dumps({"model": {"uri": "file:///m"}, "precision": {"weights": weights, "kvCache": kv_cache}})


@cache
def facts(revision_content: str, sessions: int) -> WorkerFacts | None:
    """The facts of a worker of that revision; None where its content names no precision."""
    precision = json.loads(revision_content).get("precision")
    if precision is None:
        return None
    weights, kv_cache = precision["weights"], precision["kvCache"]
    classes = (SessionClass(sessions, sessions * TOKENS, sessions * REMAINING, sessions * pages_for(TOKENS)),)
    return WorkerFacts(
        descriptor=Descriptor(1, "w", weights, *IDENTITY, kv_cache, "v1", "", "tp1", *NUMERICS, 8192),
        shape=SHAPE,
        asked=BudgetRequest(Precision(weights, kv_cache), 8192, 64, 256, kv_memory_bytes=512 << 20),
        page_bytes=737280,
        pages_total=700,
        classes=classes if sessions else (),
        step_seconds=1000.0,  # so slow that the sessions of a price are as long as they are now
    )
