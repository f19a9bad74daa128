"""The bytes of the pages: one uint8 array [num_pages, page_bytes], read and written page by page."""

import numpy as np

from kvroll_core.precision.formats import PAGE_TOKENS
from kvroll_core.precision.kv_form import KvForm
from kvroll_core.precision.sealing import OPEN_FORMAT
from kvroll_kernels.arrays import UINT8, zeros
from kvroll_kernels.ops import Ops, PoolHandle
from kvroll_kernels.page_layout import PageLayout
from kvroll_kernels.page_map import PageMap, page_in_form


class PageStorage:
    """Page bytes in one KV format, in the canonical layout that is also the wire's and the disk's.

    `open` is the storage of a sealed format's open pages.
    """

    def __init__(
        self, ops: Ops, layout: PageLayout, num_pages: int, num_open: int = 0, residual_tokens: int = 0
    ) -> None:
        self.layout = layout
        self._ops = ops
        # zeros come from untouched memory: a page costs nothing before its first token.
        self._bytes = zeros((num_pages, layout.page_bytes), UINT8)
        sizes = (layout.layers, layout.kv_heads, layout.head_dim)
        self.open = PageStorage(ops, PageLayout(OPEN_FORMAT, *sizes), num_open) if layout.is_sealed else None
        beside = () if self.open is None else (self.open._bytes, residual_tokens)
        self.pool = ops.kv_pool(self._bytes, layout.kv_format, *sizes, *beside)

    @property
    def page_bytes(self) -> int:
        """Bytes of a page."""
        return self.layout.page_bytes

    def pool_of(self, layer: int) -> tuple[PoolHandle, int]:
        """The pool that holds a layer, and the layer's index in it."""
        return self.pool, layer

    def read(self, page_id: int, valid_tokens: int, kv_format: str) -> bytes:
        """A whole page in `kv_format`, transcoded if that is not the pool's, with unwritten token slots as zeros.

        It may be a form with layers that are skipped, as `KvForm` writes it.

        Raises:
            FormatNotBuiltError, UnknownFormatError: a format that this version cannot write.
            ValueError: a part of a page in a sealed format, which knows whole pages only.
        """
        sizes = (self.layout.layers, self.layout.kv_heads, self.layout.head_dim)
        if (form := KvForm.parse(kv_format)).skip_layers:
            own = PageMap(KvForm(self.layout.kv_format), *sizes)
            return bytes(page_in_form(self._ops, self._bytes[page_id], own, PageMap(form, *sizes), valid_tokens))
        layout = PageLayout(kv_format, *sizes)
        if layout.is_sealed and valid_tokens < PAGE_TOKENS:
            raise ValueError(f"{kv_format} seals whole pages of {PAGE_TOKENS} tokens, found one with {valid_tokens}")
        page = self._bytes[page_id].copy()
        if kv_format != self.layout.kv_format:
            page = self._ops.transcode(page, self.layout.kv_format, kv_format, *sizes)
        if valid_tokens < PAGE_TOKENS:
            layout.payload(page)[:, :, :, valid_tokens:] = 0
            if layout.has_scales:
                layout.scales(page)[:, :, :, valid_tokens:] = 0
        data: bytes = page.tobytes()
        return data

    def read_raw(self, page_id: int) -> bytes:
        """A page's bytes as they lie in memory."""
        data: bytes = self._bytes[page_id].tobytes()
        return data

    def write(self, page_id: int, data: bytes) -> None:
        """Replaces a page.

        Raises:
            ValueError: not exactly one page of this format.
        """
        if len(data) != self.layout.page_bytes:
            raise ValueError(
                f"expected a {self.layout.kv_format} page of {self.layout.page_bytes} bytes, found {len(data)}"
            )
        self._bytes[page_id] = np.frombuffer(data, dtype=UINT8)

    def copy(self, source: int, target: int) -> None:
        """Copies one page onto another."""
        self._bytes[target] = self._bytes[source]
