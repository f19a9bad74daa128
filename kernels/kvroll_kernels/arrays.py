"""The arrays of the host side: numpy's, with ml_dtypes for the 16- and 8-bit floats that numpy lacks.

Not torch's: importing torch costs 3.7 CPU seconds, two thirds of a worker's whole start, and nothing here needs it.
"""

import math
from typing import Any

import ml_dtypes
import numpy as np
import numpy.typing as npt

Array = npt.NDArray[Any]

FP32 = np.dtype(np.float32)
FP16 = np.dtype(np.float16)
BF16 = np.dtype(ml_dtypes.bfloat16)
E4M3 = np.dtype(ml_dtypes.float8_e4m3fn)
INT64 = np.dtype(np.int64)
INT32 = np.dtype(np.int32)
INT8 = np.dtype(np.int8)
UINT8 = np.dtype(np.uint8)

CACHE_LINE_BYTES = 64


def zeros(shape: tuple[int, ...], dtype: np.dtype[Any]) -> Array:
    """Zeros that begin on a cache line, from memory that costs nothing before it is touched."""
    num_bytes = math.prod(shape) * dtype.itemsize
    raw = np.zeros(num_bytes + CACHE_LINE_BYTES, dtype=UINT8)
    skip = -raw.ctypes.data % CACHE_LINE_BYTES
    return raw[skip : skip + num_bytes].view(dtype).reshape(shape)
