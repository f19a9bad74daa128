"""Twenty thousand random sequences of wishes and faults against the pure rollout: no invariant breaks, and every pool settles in calm.

`KVROLL_SEQUENCES` and `KVROLL_FIRST_SEED` run others; `play(seed)` of tests/operator/random_rollout.py plays a single one again.
"""

import os
from collections import Counter
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from typing import Any

import pytest

from tests.operator.random_rollout import Outcome, play

SEQUENCES = int(os.environ.get("KVROLL_SEQUENCES", "20000"))
FIRST_SEED = int(os.environ.get("KVROLL_FIRST_SEED", "0"))


@pytest.mark.timeout(4 * 3600)
def test_no_sequence_breaks_an_invariant_and_all_settle(fault_report: Callable[[Any], None]) -> None:
    with ProcessPoolExecutor(max_workers=os.cpu_count()) as workers:
        found = list(workers.map(play, range(FIRST_SEED, FIRST_SEED + SEQUENCES), chunksize=20))
    fault_report(figures(found))
    violations = [f"{o.seed}: {o.violation} after {o.done}" for o in found if o.violation]
    stuck = [f"{o.seed}: after {o.done}" for o in found if not o.is_converged]
    edges = sum((o.edges for o in found), Counter[tuple[str, str]]())
    assert (violations[:10], stuck[:10], edges) == ([], [], Counter())


def figures(found: list[Outcome]) -> dict[str, Any]:
    """What build/bench/faults.json keeps."""
    return {
        "sequences": len(found),
        "first_seed": FIRST_SEED,
        "violations": sum(bool(o.violation) for o in found),
        "not_converged": sum(not o.is_converged for o in found),
        "undeclared_edges": sum(sum(o.edges.values()) for o in found),
        "faults": dict(Counter(name for o in found for name in o.done)),
    }
