"""How far an implementation may be from the oracle, given the same stored bytes: rounding of fp32 sums, nothing else.

Quantisation loss is not in here: both sides read the same quantised bytes. What is stored (`kv_write`, `transcode`,
`embed`) has no tolerance at all: bytes are equal.
"""

from dataclasses import dataclass

import numpy as np
import torch


@dataclass(frozen=True)
class Tolerance:
    """|found - expected| <= absolute + relative * |expected|."""

    absolute: float
    relative: float

    def check(self, found: torch.Tensor, expected: torch.Tensor) -> None:
        """Raises AssertionError with the worst element when `found` is out of tolerance, or of another shape or dtype, or not a number."""
        # Not torch.testing: its first comparison imports torch.distributed, five seconds.
        np.testing.assert_allclose(
            found.numpy(), expected.numpy(), atol=self.absolute, rtol=self.relative, equal_nan=False, strict=True
        )


TOLERANCES = {
    # A chain of K fp32 FMAs on unit-variance terms scaled by K**-0.5: error grows like sqrt(K) * 2**-24.
    "gemm": Tolerance(1e-5, 1e-5),
    "rms_norm": Tolerance(1e-6, 2e-6),
    "silu_mul": Tolerance(1e-6, 2e-6),
    "rope": Tolerance(1e-6, 1e-6),
    # Softmax weights sum to one: the error is that of exp (2 ulp), of the scores and of one chain a dim.
    "paged_attention": Tolerance(4e-6, 1e-5),
}
