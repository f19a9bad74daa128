"""The bytes of pages whose layers differ in format."""

import numpy as np

from kvroll_core.budget import ModelShape
from kvroll_core.precision.kv_form import KvForm
from kvroll_kernels.arrays import UINT8, zeros
from kvroll_kernels.ops import Ops, PoolHandle
from kvroll_kernels.page_layout import PageLayout
from kvroll_kernels.page_map import PageMap, page_in_form
from kvroll_worker.kv.storage import PageStorage


class MixedStorage:
    """`PageStorage` for a form with skipped layers: one block a page, one pool of the kernels for each part of it."""

    open = None
    """Sealed formats have open pages beside the others; they are no part of a mixed form."""

    def __init__(self, ops: Ops, page_map: PageMap, num_pages: int) -> None:
        self.page_map = page_map
        self._ops = ops
        size = page_map.page_bytes
        # A part's pool is the same bytes from the part's offset on, so that each of its pages begins there: with a page of room behind.
        flat = zeros(((num_pages + 1) * size,), UINT8)
        self._bytes = flat[: num_pages * size].reshape(num_pages, size)
        self._pools = [
            ops.kv_pool(
                flat[part.offset : part.offset + num_pages * size].reshape(num_pages, size),
                part.layout.kv_format,
                part.layout.layers,
                part.layout.kv_heads,
                part.layout.head_dim,
            )
            for part in page_map.parts
        ]

    @property
    def page_bytes(self) -> int:
        """Bytes of a page."""
        return self.page_map.page_bytes

    def pool_of(self, layer: int) -> tuple[PoolHandle, int]:
        """The pool that holds a layer, and the layer's index in it."""
        part, index = self.page_map.places[layer]
        return self._pools[part], index

    def read(self, page_id: int, valid_tokens: int, kv_form: str) -> bytes:
        """A whole page in that form, unwritten token slots as zeros.

        Raises:
            FormatNotBuiltError, UnknownFormatError, SkipLayersError: a form that this version cannot write.
        """
        own = self.page_map
        target = PageMap(KvForm.parse(kv_form), own.layers, own.kv_heads, own.head_dim)
        data: bytes = page_in_form(self._ops, self._bytes[page_id], own, target, valid_tokens).tobytes()
        return data

    def read_raw(self, page_id: int) -> bytes:
        """A page's bytes as they lie in memory."""
        data: bytes = self._bytes[page_id].tobytes()
        return data

    def write(self, page_id: int, data: bytes) -> None:
        """Replaces a page.

        Raises:
            ValueError: not exactly one page of this form.
        """
        if len(data) != self.page_bytes:
            raise ValueError(f"expected a {self.page_map.form} page of {self.page_bytes} bytes, found {len(data)}")
        self._bytes[page_id] = np.frombuffer(data, dtype=UINT8)

    def copy(self, source: int, target: int) -> None:
        """Copies one page onto another."""
        self._bytes[target] = self._bytes[source]


def storage_for(
    ops: Ops, form: KvForm, shape: ModelShape, num_pages: int, num_open: int = 0, residual_tokens: int = 0
) -> PageStorage | MixedStorage:
    """Storage for pages of that form of a model; of a sealed format, with open pages beside them.

    Raises:
        FormatNotBuiltError, SkipLayersError: a form that this version cannot run, or a layer that the model has not.
    """
    sizes = (shape.layers, shape.kv_heads, shape.head_dim)
    if form.skip_layers:
        return MixedStorage(ops, PageMap(form, *sizes), num_pages)
    return PageStorage(ops, PageLayout(form.kv_format, *sizes), num_pages, num_open, residual_tokens)
