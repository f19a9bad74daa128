"""Where a page keeps what: byte offsets of payload and scales, from the one format table."""

from dataclasses import dataclass
from typing import Any

import numpy as np

from kvroll_core.formats import PAGE_TOKENS, FormatNotBuiltError, kv_format
from kvroll_kernels.arrays import BF16, E4M3, FP16, FP32, INT8, UINT8, Array
from kvroll_kernels.ops import HEAD_DIM_MULTIPLE

MX_BLOCK = 32
"""Elements that share one E8M0 scale; the last block of a head vector may be shorter."""

_PAYLOAD: dict[str, np.dtype[Any]] = {
    "fp32": FP32,
    "bf16": BF16,
    "fp16": FP16,
    "fp8_e4m3": E4M3,
    "int8": INT8,
    "mxfp8": E4M3,
}
_VECTOR_SCALED = ("fp8_e4m3", "int8")


@dataclass(frozen=True)
class PageLayout:
    """`[layer][K|V][kv_head][token][payload]`, then the scales `[layer][K|V][kv_head][token]` where the format has them.

    `fp8_e4m3` and `int8` have one fp32 scale a head vector, `mxfp8` one E8M0 byte for every 32 of its elements.
    """

    kv_format: str
    layers: int
    kv_heads: int
    head_dim: int

    def __post_init__(self) -> None:
        kv_format(self.kv_format)
        if self.kv_format not in _PAYLOAD:
            raise FormatNotBuiltError(f"KV cache dtype {self.kv_format} has no kernels yet; use {', '.join(_PAYLOAD)}")
        if self.head_dim <= 0 or self.head_dim % HEAD_DIM_MULTIPLE:
            raise ValueError(f"head_dim must be a multiple of {HEAD_DIM_MULTIPLE}, found {self.head_dim}")

    @property
    def page_bytes(self) -> int:
        """Bytes of a page with its alignment."""
        sizes = {"layers": self.layers, "kv_heads": self.kv_heads, "head_dim": self.head_dim}
        return kv_format(self.kv_format).page_bytes(**sizes)

    @property
    def payload_dtype(self) -> np.dtype[Any]:
        """The dtype of one stored element."""
        return _PAYLOAD[self.kv_format]

    @property
    def vectors(self) -> int:
        """Stored head vectors of a page: layers x (K, V) x kv_heads x tokens."""
        return self.layers * 2 * self.kv_heads * PAGE_TOKENS

    @property
    def payload_bytes(self) -> int:
        """Bytes before the scales."""
        return self.vectors * self.head_dim * self.payload_dtype.itemsize

    @property
    def has_vector_scales(self) -> bool:
        """Whether each stored head vector has an fp32 scale."""
        return self.kv_format in _VECTOR_SCALED

    @property
    def blocks(self) -> int:
        """E8M0 scales of a head vector; 0 where the format has none."""
        return -(-self.head_dim // MX_BLOCK) if self.kv_format == "mxfp8" else 0

    @property
    def has_scales(self) -> bool:
        """Whether anything follows the payload."""
        return self.has_vector_scales or self.blocks > 0

    def payload(self, page: Array) -> Array:
        """A view [layers, 2, kv_heads, 32, head_dim] of one page's bytes, in the stored dtype."""
        shape = (self.layers, 2, self.kv_heads, PAGE_TOKENS, self.head_dim)
        return page[: self.payload_bytes].view(self.payload_dtype).reshape(shape)

    def scales(self, page: Array) -> Array:
        """A view of one page's scales: fp32 [layers, 2, kv_heads, 32], or E8M0 bytes [layers, 2, kv_heads, 32, blocks]."""
        shape = (self.layers, 2, self.kv_heads, PAGE_TOKENS)
        rest = page[self.payload_bytes :]
        if self.blocks:
            return rest[: self.blocks * self.vectors].reshape(*shape, self.blocks)
        return rest[: 4 * self.vectors].view(FP32).reshape(shape)

    def check_storage(self, storage: Array) -> None:
        """Refuses page storage that these pages do not fit.

        Raises:
            ValueError: not contiguous uint8 [num_pages, >= page_bytes].
        """
        plain = storage.dtype == UINT8 and storage.flags.c_contiguous
        if not plain or storage.ndim != 2 or storage.shape[1] < self.page_bytes or storage.shape[1] % 4:
            raise ValueError(
                f"page storage must be contiguous uint8 [num_pages, {self.page_bytes}] for {self}, "
                f"found {storage.dtype.name} {list(storage.shape)}"
            )
