"""Types of the extension module that `kernels/src/bind.cpp` builds."""

from typing import Any

from kvroll_kernels.weight_form import WeightForm

BUILD_HASH: str

def cpu_has_avx2() -> bool: ...
def advise_huge_pages(address: int, num_bytes: int) -> None: ...

class Buffer:
    array: Any
    def __init__(self, address: int, count: int, last_dim: int, dtype: str) -> None: ...

class Linear:
    form: WeightForm
    @property
    def outputs(self) -> int: ...
    @property
    def inputs(self) -> int: ...

class KvPool:
    storage: Any
    open_storage: Any
    def __init__(
        self,
        address: int,
        num_pages: int,
        page_stride: int,
        kv_format: str,
        layers: int,
        kv_heads: int,
        head_dim: int,
        open_address: int,
        open_pages: int,
        open_stride: int,
        residual_tokens: int,
    ) -> None: ...

class Kernels:
    def __init__(self, isa: str, threads: int) -> None: ...
    @property
    def isa(self) -> str: ...
    @property
    def threads(self) -> int: ...
    @property
    def seconds(self) -> float: ...
    def set_threads(self, threads: int, /) -> None: ...
    def linear(self, kind: str, outputs: int, inputs: int, block: int, bias: int, /) -> Linear: ...
    def fill(self, weight: Linear, first: int, count: int, rows: int, scale: int, zero: int, /) -> None: ...
    def gemm(self, weight: Linear, x: Buffer, out: Buffer, rows: int, /) -> None: ...
    def embed(self, table: Linear, token_ids: Buffer, out: Buffer, rows: int, /) -> None: ...
    def rms_norm(self, x: Buffer, weight: Buffer, out: Buffer, rows: int, eps: float, /) -> None: ...
    def head_norm(
        self, x: Buffer, weight: Buffer, rows: int, heads: int, row_stride: int, offset: int, eps: float, /
    ) -> None: ...
    def add(self, x: Buffer, y: Buffer, rows: int, /) -> None: ...
    def silu_mul(self, gate_up: Buffer, out: Buffer, rows: int, /) -> None: ...
    def rope(
        self,
        x: Buffer,
        positions: Buffer,
        cos: Buffer,
        sin: Buffer,
        rows: int,
        heads: int,
        head_dim: int,
        row_stride: int,
        offset: int,
        /,
    ) -> None: ...
    def kv_write(
        self,
        pool: KvPool,
        layer: int,
        qkv: Buffer,
        rows: int,
        row_stride: int,
        k_offset: int,
        v_offset: int,
        page_ids: Buffer,
        slots: Buffer,
        /,
    ) -> None: ...
    def paged_attention(
        self,
        pool: KvPool,
        layer: int,
        q: Buffer,
        q_row_stride: int,
        out: Buffer,
        rows: int,
        heads: int,
        page_table: Buffer,
        max_pages: int,
        row_sequence: Buffer,
        row_length: Buffer,
        scale: float,
        window: int,
        sinks: Buffer | None,
        open_table: Buffer | None,
        /,
    ) -> None: ...
    def kivi_seal(self, pool: KvPool, open_page_ids: Buffer, page_ids: Buffer, count: int, /) -> None: ...
    def transcode(
        self,
        source: int,
        source_format: str,
        target: int,
        target_format: str,
        layers: int,
        kv_heads: int,
        head_dim: int,
        /,
    ) -> None: ...
    def count_tasks(self, regions: int, tasks: int, /) -> int: ...
