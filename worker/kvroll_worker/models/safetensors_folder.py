"""A folder of safetensors shards read one tensor at a time, so that loading needs one layer above the result."""

from pathlib import Path
from types import TracebackType
from typing import Any, Self

import numpy as np
from safetensors import safe_open

from kvroll_kernels.arrays import BF16, FP16, FP32, Array
from kvroll_worker.models.spec import UnsupportedModelError, read_json

_INDEX = "model.safetensors.index.json"


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
    """Tensors by name out of all shards; close it when loading is done, so that the mapping goes."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._shards: list[Any] = [safe_open(path, framework="np") for path in shard_paths(folder)]
        self._where: dict[str, Any] = {name: shard for shard in self._shards for name in shard.keys()}  # noqa: SIM118

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._where.clear()
        self._shards.clear()

    def __contains__(self, name: str) -> bool:
        return name in self._where

    def get(self, name: str, shape: tuple[int, ...], dtype: np.dtype[Any] = BF16) -> Array:
        """The tensor in `dtype`, checked against the shape that the config implies.

        Raises:
            UnsupportedModelError: absent, of another shape or not fp32, fp16 or bf16.
        """
        if name not in self._where:
            raise UnsupportedModelError(f"expected a tensor {name} {list(shape)} in {self._folder}, found none")
        tensor: Array = self._where[name].get_tensor(name)
        if tensor.shape != shape or tensor.dtype not in (FP32, FP16, BF16):
            raise UnsupportedModelError(
                f"expected {name} as fp32, fp16 or bf16 {list(shape)}, found {tensor.dtype.name} {list(tensor.shape)};"
                " quantised checkpoints are not read"
            )
        return tensor.astype(dtype, copy=False)
