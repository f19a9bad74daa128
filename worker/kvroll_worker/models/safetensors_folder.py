"""A folder of safetensors shards read one tensor at a time, so that loading needs one layer above the result.

Tensors are read from the file, not from a mapping: the pages of a mapping stay in the process's memory until it is closed,
and at the end of a load that is the whole checkpoint a second time (`bench/load.py` measures it). The `safetensors` package
checks each file's header before a byte of it is believed; the layout is its README's: a length of 8 bytes, so much JSON, data.
"""

import json
import math
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from safetensors import SafetensorError, safe_open

from kvroll_kernels.arrays import BF16, FP16, FP32, Array
from kvroll_worker.models.errors import UnsupportedModelError
from kvroll_worker.models.spec import read_json

_INDEX = "model.safetensors.index.json"
_DTYPES = {"F32": FP32, "F16": FP16, "BF16": BF16}
_BYTES_AT_ONCE = 512 << 10
# The unsigned word of a dtype, and its exponent's bits: all of them set is NaN or infinity.
_EXPONENTS: dict[np.dtype[Any], tuple[type[np.unsignedinteger[Any]], int]] = {
    FP32: (np.uint32, 0x7F800000),
    FP16: (np.uint16, 0x7C00),
    BF16: (np.uint16, 0x7F80),
}


class _Stored(NamedTuple):
    """Where a tensor lies."""

    path: Path
    dtype: str  # the file's word
    shape: tuple[int, ...]
    offset: int  # bytes from the beginning of the file


def shard_paths(folder: Path) -> list[Path]:
    """The shards that the index names, or the one model.safetensors.

    Raises:
        UnsupportedModelError: no safetensors there.
    """
    if index := read_json(folder / _INDEX):
        return [folder / name for name in sorted(set(index["weight_map"].values()))]
    single = folder / "model.safetensors"
    if not single.exists():
        raise UnsupportedModelError(f"expected {_INDEX} or model.safetensors in {folder}, found neither")
    return [single]


class TensorFolder:
    """Tensors by name out of all shards; opening it reads the headers alone."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._where: dict[str, _Stored] = {}
        for path in shard_paths(folder):
            for name, stored in _read_header(path):
                if name in self._where:
                    raise UnsupportedModelError(
                        f"expected {name} in one shard, found it in {self._where[name].path.name} and {path.name}"
                    )
                self._where[name] = stored

    @property
    def dtypes(self) -> dict[str, str]:
        """The dtype of every tensor that is there, in the file's words."""
        return {name: stored.dtype for name, stored in self._where.items()}

    def get(self, name: str, shape: tuple[int, ...], dtype: np.dtype[Any] = BF16) -> Array:
        """The tensor in `dtype`, checked against the shape that the config implies.

        Raises:
            UnsupportedModelError: absent, of another shape or not fp32, fp16 or bf16, or with NaN or infinity in it.
        """
        out, row = np.empty(shape, dtype), 0
        for block in self.blocks(name, shape, dtype):
            out[row : row + len(block)] = block
            row += len(block)
        return out

    def blocks(self, name: str, shape: tuple[int, ...], dtype: np.dtype[Any] = BF16) -> Iterator[Array]:
        """The tensor in `dtype`, some rows at a time from the first to the last, so that it need not be there as a whole.

        Raises:
            UnsupportedModelError: absent, of another shape or not fp32, fp16 or bf16; before the first rows. With NaN or infinity in it, or
                a number that `dtype` does not hold; before the rows that have it.
        """
        stored = self._where.get(name)
        if stored is None:
            raise UnsupportedModelError(f"expected a tensor {name} {list(shape)} in {self._folder}, found none")
        if stored.shape != shape or stored.dtype not in _DTYPES:
            raise UnsupportedModelError(
                f"expected {name} as F32, F16 or BF16 {list(shape)}, found {stored.dtype} {list(stored.shape)}"
            )
        file_dtype, inner = _DTYPES[stored.dtype], math.prod(shape[1:])
        row_bytes = inner * file_dtype.itemsize
        step = max(1, _BYTES_AT_ONCE // row_bytes)
        for row in range(0, shape[0], step):
            rows = min(step, shape[0] - row)
            # numpy reads no bf16 from files: its bytes under another word.
            raw = np.fromfile(stored.path, np.uint8, rows * row_bytes, offset=stored.offset + row * row_bytes)
            with np.errstate(over="ignore"):  # told by name below
                block = raw.view(file_dtype).reshape(rows, *shape[1:]).astype(dtype, copy=False)
            refuse_no_numbers(name, block, row)
            yield block


def refuse_no_numbers(name: str, rows: Array, first_row: int) -> None:
    """Looks at rows of a tensor, in fp32, fp16 or bf16.

    Raises:
        UnsupportedModelError: NaN or infinity is among them, or became it in this dtype.
    """
    word, exponent = _EXPONENTS[rows.dtype]
    broken = (rows.view(word) & exponent) == exponent  # an integer comparison: bf16's own isfinite is ten times slower
    if broken.any():
        at = [int(i) for i in np.argwhere(broken)[0]]
        place = [first_row + at[0], *at[1:]]
        raise UnsupportedModelError(
            f"expected numbers that {rows.dtype.name} holds in {name}, found {float(rows[tuple(at)])} at {place};"
            " take a checkpoint that is whole, or a wider weights dtype if the file's own number is finite"
        )


def _read_header(path: Path) -> Iterator[tuple[str, _Stored]]:
    try:
        with safe_open(path, framework="np"):
            pass  # every offset is within the file and every tensor as long as its shape
    except (OSError, SafetensorError) as error:
        raise UnsupportedModelError(f"expected a safetensors file at {path}, found: {error}") from error
    with path.open("rb") as file:
        length = int.from_bytes(file.read(8), "little")
        header: dict[str, Any] = json.loads(file.read(length))
    header.pop("__metadata__", None)
    for name, entry in header.items():
        shape = tuple(entry["shape"])
        yield name, _Stored(path, entry["dtype"], shape, 8 + length + entry["data_offsets"][0])
