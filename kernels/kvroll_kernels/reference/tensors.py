"""Torch's view of the host's arrays: the same memory, the same dtype word."""

from typing import Any

import numpy as np
import torch

from kvroll_kernels.arrays import BF16, E4M3, UINT8, Array

_UNKNOWN_TO_NUMPY: dict[np.dtype[Any], np.dtype[Any]] = {BF16: np.dtype(np.int16), E4M3: UINT8}


def torch_dtype(dtype: np.dtype[Any]) -> torch.dtype:
    """Torch has the same names."""
    found: torch.dtype = getattr(torch, dtype.name)
    return found


def tensor_of(array: Array) -> torch.Tensor:
    """The array as a tensor over the same memory."""
    plain = _UNKNOWN_TO_NUMPY.get(array.dtype, array.dtype)
    return torch.from_numpy(array.view(plain)).view(torch_dtype(array.dtype))


def array_of(tensor: torch.Tensor) -> Array:
    """The tensor as an array over the same memory."""
    name = str(tensor.dtype).removeprefix("torch.")
    for dtype, plain in _UNKNOWN_TO_NUMPY.items():
        if dtype.name == name:
            return tensor.view(torch_dtype(plain)).numpy().view(dtype)
    array: Array = tensor.numpy()
    return array
