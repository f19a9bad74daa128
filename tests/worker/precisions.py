"""The precisions in which the law of determinism is tested."""

import pytest

from kvroll_core.precision.formats import KV_FORMATS, WEIGHT_FORMATS

_ALL = [
    *(("bf16", name) for name, entry in KV_FORMATS.items() if entry.built),
    ("int8", "int8"),
    *((name, "bf16") for name in WEIGHT_FORMATS if name != "bf16"),
]
# One of each kind is quick enough for the fast tier: plain, scaled by a vector, sealed, blocks of weights, both.
_QUICK = [("bf16", "bf16"), ("bf16", "fp8_e4m3"), ("bf16", "kivi4"), ("int4", "bf16"), ("int8", "int8")]
each_precision = pytest.mark.parametrize(
    ("weights", "kv_cache"),
    [pytest.param(*pair, marks=[] if pair in _QUICK else pytest.mark.slow) for pair in _ALL],
)
