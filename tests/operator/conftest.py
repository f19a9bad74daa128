"""Lets the tests of this folder import the simulated cluster as `tests.operator.simulated_cluster`, however pytest was started."""

import sys
from pathlib import Path

_ROOT = str(Path(__file__).resolve().parents[2])
if _ROOT not in sys.path:
    sys.path.append(_ROOT)
