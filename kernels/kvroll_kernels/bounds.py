"""Checks that keep a call inside its buffers; their messages are the same for every implementation."""

from kvroll_kernels.arrays import BF16, FP32, INT32, INT64, UINT8, Array

BUFFER_DTYPES = (FP32, BF16, INT32, INT64, UINT8)


def check_array(array: Array) -> None:
    """Refuses an array that cannot be bound as a buffer.

    Raises:
        ValueError: not contiguous, or of another dtype.
    """
    if not array.flags.c_contiguous or array.dtype not in BUFFER_DTYPES:
        raise ValueError(
            f"a buffer must be a contiguous array of {', '.join(d.name for d in BUFFER_DTYPES)}; "
            f"found {array.dtype.name}, contiguous={array.flags.c_contiguous}"
        )
