"""An implementation as these tests speak to it: in torch tensors over the arrays' memory."""

from typing import Any

import torch

from kvroll_kernels.ops import Buffer, LinearHandle, Ops, PoolHandle
from kvroll_kernels.reference.tensors import array_of, tensor_of


class TensorOps:
    """Binds tensors; every other call is that of the implementation itself."""

    def __init__(self, ops: Ops) -> None:
        self._ops = ops

    def __getattr__(self, name: str) -> Any:
        return getattr(self._ops, name)

    def buffer(self, tensor: torch.Tensor) -> Buffer:
        return self._ops.buffer(array_of(tensor))

    def linear(
        self,
        weight: torch.Tensor,
        scale: torch.Tensor | None = None,
        bias: torch.Tensor | None = None,
        zero: torch.Tensor | None = None,
    ) -> LinearHandle:
        parts = (None if part is None else array_of(part) for part in (scale, bias, zero))
        return self._ops.linear(array_of(weight), *parts)

    def kv_pool(
        self,
        storage: torch.Tensor,
        kv_format: str,
        layers: int,
        kv_heads: int,
        head_dim: int,
        open_storage: torch.Tensor | None = None,
        residual_tokens: int = 0,
    ) -> PoolHandle:
        sizes = (layers, kv_heads, head_dim)
        beside = None if open_storage is None else array_of(open_storage)
        return self._ops.kv_pool(array_of(storage), kv_format, *sizes, beside, residual_tokens)

    def transcode(
        self, source: torch.Tensor, source_format: str, target_format: str, layers: int, kv_heads: int, head_dim: int
    ) -> torch.Tensor:
        page = self._ops.transcode(array_of(source), source_format, target_format, layers, kv_heads, head_dim)
        return tensor_of(page)
