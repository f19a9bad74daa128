"""Where a page keeps what: byte offsets of payload and scales, from the one format table."""

from dataclasses import dataclass
from typing import Any

import numpy as np

from kvroll_core.precision.formats import PAGE_TOKENS, FormatNotBuiltError, kv_format
from kvroll_core.precision.sealing import OPEN_FORMAT, SEALED_FORMATS, check_residual
from kvroll_kernels.arrays import BF16, E4M3, FP16, FP32, INT8, UINT8, Array
from kvroll_kernels.ops import HEAD_DIM_MULTIPLE

MX_BLOCK = 32
"""Elements that share one E8M0 scale, or one scale and zero of kivi's values; the last block of a head vector may be shorter."""

_PAYLOAD: dict[str, np.dtype[Any]] = {
    "fp32": FP32,
    "bf16": BF16,
    "fp16": FP16,
    "fp8_e4m3": E4M3,
    "int8": INT8,
    "mxfp8": E4M3,
    "kivi4": UINT8,
    "kivi2": UINT8,
}
_VECTOR_SCALED = ("fp8_e4m3", "int8")


@dataclass(frozen=True)
class PageLayout:
    """`[layer][K|V][kv_head][token][payload]`, then the scales `[layer][K|V][kv_head][token]` where the format has them.

    `fp8_e4m3` and `int8` have one fp32 scale a head vector, `mxfp8` one E8M0 byte for every 32 of its elements. The sealed formats
    pack two or four elements into a byte, the first in its low bits; their scales are fp16, by layer: first those of K
    `[kv_head][scale|zero][head_dim]`, then those of V `[kv_head][token][group of 32][scale|zero]`.
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
        """The dtype of one stored element; of a sealed format, of the byte that holds several."""
        return _PAYLOAD[self.kv_format]

    @property
    def bits(self) -> int:
        """Bits of one stored element."""
        return kv_format(self.kv_format).payload_bits

    @property
    def is_sealed(self) -> bool:
        """Whether pages of this format are written whole, from open pages."""
        return self.kv_format in SEALED_FORMATS

    @property
    def vectors(self) -> int:
        """Stored head vectors of a page: layers x (K, V) x kv_heads x tokens."""
        return self.layers * 2 * self.kv_heads * PAGE_TOKENS

    @property
    def payload_bytes(self) -> int:
        """Bytes before the scales."""
        return self.vectors * self.head_dim * self.bits // 8

    @property
    def has_vector_scales(self) -> bool:
        """Whether each stored head vector has an fp32 scale."""
        return self.kv_format in _VECTOR_SCALED

    @property
    def groups(self) -> int:
        """Groups of up to 32 elements in a head vector."""
        return -(-self.head_dim // MX_BLOCK)

    @property
    def blocks(self) -> int:
        """E8M0 scales of a head vector; 0 where the format has none."""
        return self.groups if self.kv_format == "mxfp8" else 0

    @property
    def has_scales(self) -> bool:
        """Whether each stored head vector has scales of its own, in `scales`."""
        return self.has_vector_scales or self.blocks > 0

    def payload(self, page: Array) -> Array:
        """A view [layers, 2, kv_heads, 32, head_dim] of one page's bytes, in the stored dtype; of a sealed format
        uint8 [layers, 2, kv_heads, 32, head_dim * bits / 8].
        """
        elements = self.head_dim * self.bits // 8 // self.payload_dtype.itemsize
        shape = (self.layers, 2, self.kv_heads, PAGE_TOKENS, elements)
        return page[: self.payload_bytes].view(self.payload_dtype).reshape(shape)

    def scales(self, page: Array) -> Array:
        """A view of one page's scales: fp32 [layers, 2, kv_heads, 32], or E8M0 bytes [layers, 2, kv_heads, 32, blocks]."""
        shape = (self.layers, 2, self.kv_heads, PAGE_TOKENS)
        rest = page[self.payload_bytes :]
        if self.blocks:
            return rest[: self.blocks * self.vectors].reshape(*shape, self.blocks)
        return rest[: 4 * self.vectors].view(FP32).reshape(shape)

    def sealed_scales(self, page: Array) -> tuple[Array, Array]:
        """Views of a sealed page's scales and zeros, fp16: K's [layers, kv_heads, 2, head_dim], V's [layers, kv_heads, 32, groups, 2]."""
        keys = self.kv_heads * 2 * self.head_dim
        layer = keys + self.kv_heads * PAGE_TOKENS * self.groups * 2
        rest = page[self.payload_bytes :][: 2 * self.layers * layer].view(FP16).reshape(self.layers, layer)
        return (
            rest[:, :keys].reshape(self.layers, self.kv_heads, 2, self.head_dim),
            rest[:, keys:].reshape(self.layers, self.kv_heads, PAGE_TOKENS, self.groups, 2),
        )

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

    def open_layout(self, storage: Array | None, residual_tokens: int) -> "PageLayout | None":
        """The layout of the open pages that go with sealed ones; None where the format has none.

        Raises:
            ValueError: a sealed format without their storage or with a residual that is not whole pages, or another one with them.
        """
        if not self.is_sealed:
            if storage is not None:
                raise ValueError(f"{self.kv_format} pages have no open pages beside them; give no open storage")
            return None
        if storage is None:
            raise ValueError(f"{self.kv_format} needs storage for its open {OPEN_FORMAT} pages; found none")
        check_residual(residual_tokens)
        layout = PageLayout(OPEN_FORMAT, self.layers, self.kv_heads, self.head_dim)
        layout.check_storage(storage)
        return layout
