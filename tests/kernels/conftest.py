"""The implementations under test and a paged attention case that all files share."""

from dataclasses import dataclass

import pytest
import torch

from kvroll_kernels.calls import AttentionCall, KvWriteCall
from kvroll_kernels.dispatch import load, native_is_built
from kvroll_kernels.page_layout import PageLayout
from tests.kernels.tensor_ops import TensorOps


def make_native(isa: str, threads: int) -> TensorOps:
    if not native_is_built():
        pytest.skip("the native module is not built here (make setup builds it)")
    from kvroll_kernels import _native
    from kvroll_kernels.native.ops import NativeOps

    if isa == "avx2" and not _native.cpu_has_avx2():
        pytest.skip("this CPU has no AVX2 with FMA and F16C")
    return TensorOps(NativeOps(threads=threads, isa=isa))


@pytest.fixture(autouse=True)
def _seeded() -> None:
    torch.default_generator.manual_seed(
        7
    )  # `torch.manual_seed` writes three stack traces, for devices that are not there


@pytest.fixture(scope="session")
def reference() -> TensorOps:
    return TensorOps(load("reference"))


@pytest.fixture(scope="session", params=["avx2", "plain"])
def native(request: pytest.FixtureRequest) -> TensorOps:
    return make_native(request.param, threads=2)


@pytest.fixture(scope="session")
def native_one_thread(native: TensorOps) -> TensorOps:
    """The same instruction set as `native`, without helpers."""
    return make_native(native.build_hash().split("-")[1], threads=1)


@pytest.fixture(scope="session", params=["reference", "avx2", "plain"])
def any_ops(request: pytest.FixtureRequest) -> TensorOps:
    return TensorOps(load("reference")) if request.param == "reference" else make_native(request.param, threads=2)


@dataclass
class AttentionCase:
    """One sequence whose K and V lie in permuted pages, and rows that ask about prefixes of it.

    Of a sealed format every page is there open, and every full one sealed: a row reads what is right for its length.
    """

    layout: PageLayout
    group: int
    storage: torch.Tensor
    table: torch.Tensor
    values: torch.Tensor
    open_storage: torch.Tensor | None = None
    open_table: torch.Tensor | None = None
    residual_tokens: int = 64
    layer: int = 1

    @classmethod
    def make(cls, kv_format: str, head_dim: int, group: int, tokens: int, kv_heads: int = 2) -> "AttentionCase":
        layout = PageLayout(kv_format, 2, kv_heads, head_dim)
        storage, table = _scattered(layout, -(-tokens // 32))
        values = torch.randn(tokens, (group + 2) * kv_heads * head_dim)
        case = cls(layout, group, storage, table, values)
        if layout.is_sealed:
            case.open_storage, case.open_table = _scattered(PageLayout("bf16", 2, kv_heads, head_dim), -(-tokens // 32))
        return case

    @property
    def heads(self) -> int:
        return self.group * self.layout.kv_heads

    @property
    def q_width(self) -> int:
        return self.heads * self.layout.head_dim

    def pool(self, ops: TensorOps) -> object:
        layout = self.layout
        sizes = (layout.layers, layout.kv_heads, layout.head_dim)
        if not layout.is_sealed:
            return ops.kv_pool(self.storage, layout.kv_format, *sizes)
        return ops.kv_pool(self.storage, layout.kv_format, *sizes, self.open_storage, self.residual_tokens)

    def write(self, ops: TensorOps) -> None:
        tokens, stride = self.values.shape
        table = self.table if self.open_table is None else self.open_table
        pages = table[0].repeat_interleave(32)[:tokens].contiguous()
        slots = (torch.arange(tokens) % 32).to(torch.int32)
        width = self.layout.kv_heads * self.layout.head_dim
        ids = ops.buffer(pages), ops.buffer(slots)
        qkv = ops.buffer(self.values)
        offsets = (self.q_width, self.q_width + width)
        ops.kv_write(KvWriteCall(self.pool(ops), self.layer, qkv, stride, *offsets, *ids), tokens)
        if self.open_table is not None:
            full = tokens // 32
            sealing = (part[0, :full].contiguous() for part in (self.open_table, self.table))
            ops.kivi_seal(self.pool(ops), *map(ops.buffer, sealing), full)

    def attend(
        self,
        ops: TensorOps,
        query: torch.Tensor,
        lengths: list[int],
        window: int = 0,
        sinks: torch.Tensor | None = None,
    ) -> torch.Tensor:
        """Outputs [len(lengths), heads * head_dim]; query row i asks about the first lengths[i] tokens."""
        rows = len(lengths)
        out = torch.full((rows, self.q_width), float("nan"))
        sequence = torch.zeros(rows, dtype=torch.int32)
        call = AttentionCall(
            self.pool(ops),
            self.layer,
            ops.buffer(query),
            query.shape[1],
            ops.buffer(out),
            self.heads,
            ops.buffer(self.table),
            self.table.shape[1],
            ops.buffer(sequence),
            ops.buffer(torch.tensor(lengths, dtype=torch.int32)),
            self.layout.head_dim**-0.5,
            window,
            None if sinks is None else ops.buffer(sinks),
            None if self.open_table is None else ops.buffer(self.open_table),
        )
        ops.paged_attention(call, rows)
        return out


def _scattered(layout: PageLayout, pages: int) -> tuple[torch.Tensor, torch.Tensor]:
    """Page storage with garbage in what no token has written (NaN must not leak into any result), and a table into it."""
    storage = torch.full((pages + 3, layout.page_bytes), 0xFF, dtype=torch.uint8)
    return storage, torch.randperm(pages + 3)[:pages].view(1, pages).contiguous()


@pytest.fixture
def attention_case() -> type[AttentionCase]:
    return AttentionCase
