"""`python -m kvroll_worker` whose engine takes its time: KVROLL_TEST_STEP_SECONDS more for each step, and for ever while the file that
KVROLL_TEST_HANG names exists. Everything else is the product's.
"""

import os
import sys
import time
from pathlib import Path
from typing import Any

from kvroll_worker.engine.engine import Engine
from kvroll_worker.main import main

_step = Engine.step
_slow_seconds = float(os.environ.get("KVROLL_TEST_STEP_SECONDS", "0"))
_hang = os.environ.get("KVROLL_TEST_HANG")


def step(self: Engine) -> Any:
    time.sleep(_slow_seconds)
    while _hang and Path(_hang).exists():
        time.sleep(0.02)
    return _step(self)


if __name__ == "__main__":
    Engine.step = step  # type: ignore[method-assign]
    sys.exit(main())
