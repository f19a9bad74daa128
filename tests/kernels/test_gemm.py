import pytest
import torch

from kvroll_kernels.ops import Ops
from kvroll_kernels.tolerances import TOLERANCES

SHAPES = [(1, 1), (15, 3), (16, 64), (17, 65), (33, 130), (48, 577), (960, 576)]


def weight_of(kind: str, outputs: int, inputs: int) -> tuple[torch.Tensor, torch.Tensor | None]:
    dense = torch.randn(outputs, inputs) * inputs**-0.5
    if kind == "bf16":
        return dense.to(torch.bfloat16), None
    scale = dense.abs().amax(dim=1).clamp_min(1e-6) / 127
    return torch.round(dense / scale.unsqueeze(1)).to(torch.int8), scale


def multiply(
    ops: Ops, weight: torch.Tensor, scale: torch.Tensor | None, bias: torch.Tensor | None, x: torch.Tensor
) -> torch.Tensor:
    out = torch.full((x.shape[0], weight.shape[0]), float("nan"))
    ops.gemm(ops.linear(weight, scale, bias), ops.buffer(x), ops.buffer(out), x.shape[0])
    return out


@pytest.mark.parametrize("kind", ["bf16", "int8"])
@pytest.mark.parametrize(("outputs", "inputs"), SHAPES)
@pytest.mark.parametrize("biased", [False, True])
def test_gemm_agrees_with_the_oracle(
    native: Ops, reference: Ops, kind: str, outputs: int, inputs: int, biased: bool
) -> None:
    weight, scale = weight_of(kind, outputs, inputs)
    bias = torch.randn(outputs) if biased else None
    x = torch.randn(9, inputs)
    TOLERANCES["gemm"].check(multiply(native, weight, scale, bias, x), multiply(reference, weight, scale, bias, x))


@pytest.mark.parametrize("kind", ["bf16", "int8"])
@pytest.mark.parametrize("rows", [2, 3, 4, 5, 6, 7, 8, 13, 37])
def test_a_row_does_not_depend_on_its_neighbours(any_ops: Ops, kind: str, rows: int) -> None:
    weight, scale = weight_of(kind, 50, 131)
    x = torch.randn(rows, 131)
    together = multiply(any_ops, weight, scale, None, x)
    alone = torch.cat([multiply(any_ops, weight, scale, None, x[r : r + 1].clone()) for r in range(rows)])
    order = torch.randperm(rows)
    assert torch.equal(together, alone)
    assert torch.equal(multiply(any_ops, weight, scale, None, x[order].contiguous()), together[order])


@pytest.mark.parametrize("kind", ["bf16", "int8"])
def test_threads_do_not_change_a_bit(native: Ops, native_one_thread: Ops, kind: str) -> None:
    assert native.build_hash() == native_one_thread.build_hash()
    weight, scale = weight_of(kind, 3000, 576)
    x = torch.randn(5, 576)
    assert torch.equal(multiply(native, weight, scale, None, x), multiply(native_one_thread, weight, scale, None, x))


@pytest.mark.parametrize("kind", ["bf16", "int8"])
def test_embedding_reads_the_head_back_exactly(any_ops: Ops, kind: str) -> None:
    weight, scale = weight_of(kind, 100, 67)
    ids = torch.tensor([0, 99, 16, 15, 17, 0], dtype=torch.int32)
    out = torch.empty(6, 67)
    any_ops.embed(any_ops.linear(weight, scale), any_ops.buffer(ids), any_ops.buffer(out), 6)
    expected = weight[ids.long()].to(torch.float32)
    assert torch.equal(out, expected if scale is None else expected * scale[ids.long()].unsqueeze(1))


def test_small_sums_are_exact(any_ops: Ops) -> None:
    weight = torch.arange(6, dtype=torch.float32).view(2, 3).to(torch.bfloat16)
    found = multiply(any_ops, weight, None, torch.tensor([10.0, 20.0]), torch.tensor([[1.0, 2.0, 3.0]]))
    assert found.tolist() == [[18.0, 46.0]]
