import numpy as np
import pytest
import torch

from kvroll_core.precision.formats import WEIGHT_FORMATS
from kvroll_kernels.arrays import BF16
from kvroll_kernels.ops import LinearHandle
from kvroll_kernels.reference.tensors import array_of, tensor_of
from kvroll_kernels.reference.weights import dequantise
from kvroll_kernels.tolerances import TOLERANCES
from kvroll_kernels.weight_layout import weight_form
from kvroll_worker.quant.weights import StoredWeight, quantise
from tests.kernels.tensor_ops import TensorOps

SHAPES = [(1, 1), (15, 3), (16, 64), (17, 65), (33, 130), (48, 577), (960, 576)]


KINDS = [*WEIGHT_FORMATS, "int4/32", "int4/128"]
"""Every dtype, and int4 in its other block sizes."""


def weight_of(kind: str, outputs: int, inputs: int) -> StoredWeight:
    dtype, _, block = kind.partition("/")
    return quantise(array_of(torch.randn(outputs, inputs) * inputs**-0.5), dtype, int(block or 64))


def linear(ops: TensorOps, weight: StoredWeight, bias: torch.Tensor | None = None) -> LinearHandle:
    scale, zero = (None if part is None else tensor_of(part) for part in weight[1:])
    return ops.linear(tensor_of(weight.payload), scale, bias, zero)


def multiply(ops: TensorOps, weight: StoredWeight, bias: torch.Tensor | None, x: torch.Tensor) -> torch.Tensor:
    out = torch.full((x.shape[0], weight.payload.shape[0]), float("nan"))
    handle = linear(ops, weight, bias)
    ops.gemm(handle, ops.buffer(x), ops.buffer(out), x.shape[0])
    return out


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(("outputs", "inputs"), SHAPES)
@pytest.mark.parametrize("biased", [False, True])
@pytest.mark.fast_where(native="avx2")
@pytest.mark.fast_where(biased=True)
def test_gemm_agrees_with_the_oracle(
    native: TensorOps, reference: TensorOps, kind: str, outputs: int, inputs: int, biased: bool
) -> None:
    weight = weight_of(kind, outputs, inputs)
    bias = torch.randn(outputs) if biased else None
    x = torch.randn(9, inputs)
    TOLERANCES["gemm"].check(multiply(native, weight, bias, x), multiply(reference, weight, bias, x))


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("rows", [2, 3, 4, 5, 6, 7, 8, 13, 37])
@pytest.mark.fast_where(any_ops=("avx2", "plain"), rows=(2, 5, 13))
@pytest.mark.fast_where(rows=8)
def test_a_row_does_not_depend_on_its_neighbours(any_ops: TensorOps, kind: str, rows: int) -> None:
    weight = weight_of(kind, 50, 131)
    x = torch.randn(rows, 131)
    together = multiply(any_ops, weight, None, x)
    alone = torch.cat([multiply(any_ops, weight, None, x[r : r + 1].clone()) for r in range(rows)])
    order = torch.randperm(rows)
    assert torch.equal(together, alone)
    assert torch.equal(multiply(any_ops, weight, None, x[order].contiguous()), together[order])


@pytest.mark.parametrize("kind", KINDS)
def test_threads_do_not_change_a_bit(native: TensorOps, native_one_thread: TensorOps, kind: str) -> None:
    assert native.build_hash() == native_one_thread.build_hash()
    weight = weight_of(kind, 3000, 576)
    x = torch.randn(5, 576)
    assert torch.equal(multiply(native, weight, None, x), multiply(native_one_thread, weight, None, x))


@pytest.mark.parametrize("kind", KINDS)
def test_embedding_reads_the_head_back_exactly(any_ops: TensorOps, kind: str) -> None:
    weight = weight_of(kind, 100, 67)
    ids = torch.tensor([0, 99, 16, 15, 17, 0], dtype=torch.int32)
    out = torch.empty(6, 67)
    any_ops.embed(linear(any_ops, weight), any_ops.buffer(ids), any_ops.buffer(out), 6)
    assert torch.equal(out, dequantise(*weight).to(torch.float32)[ids.long()])


def test_small_sums_are_exact(any_ops: TensorOps) -> None:
    weight = np.arange(6).reshape(2, 3).astype(BF16)
    found = multiply(any_ops, StoredWeight(weight), torch.tensor([10.0, 20.0]), torch.tensor([[1.0, 2.0, 3.0]]))
    assert found.tolist() == [[18.0, 46.0]]


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("step", [1, 5, 16, 33])
@pytest.mark.fast_where(step=(1, 33))
def test_a_weight_that_comes_in_pieces_is_the_same(any_ops: TensorOps, kind: str, step: int) -> None:
    weight = weight_of(kind, 50, 200)
    bias, x = torch.randn(50), torch.randn(3, 200)
    handle = any_ops.empty_linear(weight_form(*weight), 50, 200, array_of(bias))
    for first in reversed(range(0, 50, step)):
        any_ops.fill_linear(handle, first, *(None if p is None else p[first : first + step] for p in weight))
    out = torch.empty(3, 50)
    any_ops.gemm(handle, any_ops.buffer(x), any_ops.buffer(out), 3)
    assert torch.equal(out, multiply(any_ops, weight, bias, x))


def test_rows_that_do_not_belong_are_refused(any_ops: TensorOps) -> None:
    weight = weight_of("int4/32", 16, 200)
    handle = any_ops.empty_linear(weight_form(*weight), 16, 200)
    with pytest.raises(ValueError, match="rows 1 to 17 are not in a weight of 16 rows"):
        any_ops.fill_linear(handle, 1, *weight)
    for other in (weight_of("int4/64", 16, 200), weight_of("int4/32", 16, 190), weight_of("int8", 16, 200)):
        with pytest.raises(ValueError, match="expected rows of 200 inputs in int4, blocks of 32"):
            any_ops.fill_linear(handle, 0, *other)
