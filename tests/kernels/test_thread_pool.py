import threading
from typing import Any

import pytest
import torch

from kvroll_kernels.dispatch import native_is_built

if not native_is_built():
    pytest.skip("the native module is not built here (make setup builds it)", allow_module_level=True)

from kvroll_kernels import _native
from tests.kernels.tensor_ops import TensorOps


@pytest.mark.parametrize("threads", [1, 2, 3, 8])
@pytest.mark.parametrize("tasks", [1, 2, 7, 64])
def test_every_task_runs_once(threads: int, tasks: int) -> None:
    """More threads than cores on purpose: late helpers meet the next job, which once hung the prototype."""
    regions = 3000 // threads
    assert _native.Kernels("", threads).count_tasks(regions, tasks) == regions * tasks


def test_resizing_between_regions() -> None:
    kernels = _native.Kernels("", 2)
    for threads in (1, 4, 2, 1, 3) * 4:
        kernels.set_threads(threads)
        assert kernels.threads == threads
        assert kernels.count_tasks(20, 9) == 180


def test_two_callers_share_one_pool() -> None:
    kernels = _native.Kernels("", 3)
    counts: list[int] = []
    callers = [threading.Thread(target=lambda: counts.append(kernels.count_tasks(500, 5))) for _ in range(3)]
    for caller in callers:
        caller.start()
    for caller in callers:
        caller.join()
    assert counts == [2500] * 3


def test_a_pool_that_slept_wakes_up() -> None:
    kernels = _native.Kernels("", 2)
    pause = threading.Event()
    for _ in range(20):
        pause.wait(0.002)  # far beyond the 50 us that helpers spin
        assert kernels.count_tasks(3, 8) == 24


@pytest.mark.parametrize("threads", [0, -1, 5000])
def test_absurd_thread_counts_are_refused(threads: int) -> None:
    with pytest.raises(ValueError, match="num_threads"):
        _native.Kernels("", threads)


def test_calls_let_other_threads_run(native: TensorOps) -> None:
    """The GIL is free inside a call: a Python thread makes progress while gemm runs."""
    weight = native.linear(torch.randn(4096, 1024).to(torch.bfloat16))
    x, out = native.buffer(torch.randn(64, 1024)), native.buffer(torch.empty(64, 4096))
    state: dict[str, Any] = {"ticks": 0, "stop": False}

    def tick() -> None:
        while not state["stop"]:
            state["ticks"] += 1

    ticker = threading.Thread(target=tick)
    ticker.start()
    before = state["ticks"]
    for _ in range(3):
        native.gemm(weight, x, out, 64)
    after = state["ticks"]
    state["stop"] = True
    ticker.join()
    assert after > before
