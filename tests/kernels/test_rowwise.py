import pytest
import torch

from kvroll_kernels.calls import RopeCall
from kvroll_kernels.tolerances import TOLERANCES, Tolerance
from tests.kernels.tensor_ops import TensorOps

WIDTHS = [1, 7, 8, 64, 80, 576, 1537]


def rms(ops: TensorOps, x: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
    out = torch.empty_like(x)
    ops.rms_norm(ops.buffer(x), ops.buffer(weight), ops.buffer(out), x.shape[0], 1e-5)
    return out


def silu(ops: TensorOps, gate_up: torch.Tensor) -> torch.Tensor:
    out = torch.empty(gate_up.shape[0], gate_up.shape[1] // 2)
    ops.silu_mul(ops.buffer(gate_up), ops.buffer(out), gate_up.shape[0])
    return out


@pytest.mark.parametrize("n", WIDTHS)
def test_rms_norm(native: TensorOps, reference: TensorOps, n: int) -> None:
    x, weight = torch.randn(5, n) * 3, torch.randn(n)
    found = rms(native, x, weight)
    TOLERANCES["rms_norm"].check(found, rms(reference, x, weight))
    assert torch.equal(found[3:4], rms(native, x[3:4].clone(), weight))


def test_rms_norm_in_place(any_ops: TensorOps) -> None:
    x, weight = torch.randn(4, 64), torch.randn(64)
    expected = rms(any_ops, x, weight)
    any_ops.rms_norm(any_ops.buffer(x), any_ops.buffer(weight), any_ops.buffer(x), 4, 1e-5)
    assert torch.equal(x, expected)


@pytest.mark.parametrize("head_dim", [16, 64, 80, 96, 128, 256])
def test_head_norm(native: TensorOps, reference: TensorOps, head_dim: int) -> None:
    rows, heads, offset = 6, 3, 5
    stride = offset + heads * head_dim + 4
    start, weight = torch.randn(rows, stride) * 3, torch.randn(head_dim)
    found, expected = start.clone(), start.clone()
    for ops, x in ((native, found), (reference, expected)):
        ops.head_norm(ops.buffer(x), ops.buffer(weight), rows, heads, stride, offset, 1e-5)
    TOLERANCES["rms_norm"].check(found, expected)
    inside = start[:, offset:-4].reshape(-1, head_dim).contiguous()
    assert torch.equal(found[:, offset:-4], rms(native, inside, weight).view(rows, -1))  # bit for bit `rms_norm`
    assert torch.equal(found[:, :offset], start[:, :offset])
    assert torch.equal(found[:, -4:], start[:, -4:])
    alone = start[4:5].clone()
    native.head_norm(native.buffer(alone), native.buffer(weight), 1, heads, stride, offset, 1e-5)
    assert torch.equal(alone, found[4:5])


@pytest.mark.parametrize(("heads", "stride", "offset"), [(3, 47, 0), (3, 48, 1), (1, 48, -1)])
def test_heads_outside_a_row_are_refused(any_ops: TensorOps, heads: int, stride: int, offset: int) -> None:
    x, weight = torch.randn(2, 48), torch.randn(16)
    with pytest.raises(ValueError, match="lie inside a row"):
        any_ops.head_norm(any_ops.buffer(x), any_ops.buffer(weight), 2, heads, stride, offset, 1e-5)


@pytest.mark.parametrize("n", WIDTHS)
def test_silu_mul(native: TensorOps, reference: TensorOps, n: int) -> None:
    gate_up = torch.randn(5, 2 * n) * 4
    found = silu(native, gate_up)
    TOLERANCES["silu_mul"].check(found, silu(reference, gate_up))
    assert torch.equal(found[2:3], silu(native, gate_up[2:3].clone()))


def test_silu_mul_far_from_zero(any_ops: TensorOps) -> None:
    gate = torch.tensor([[-1e4, -200.0, -88.0, 0.0, 88.0, 200.0, 1e4, 50.0]])
    out = silu(any_ops, torch.cat([gate, torch.ones(1, 8)], dim=1))
    Tolerance(1e-6, 1e-6).check(out, torch.nn.functional.silu(gate))


def test_add_touches_its_rows_only(any_ops: TensorOps) -> None:
    x, y = torch.randn(4, 33), torch.randn(4, 33)
    expected = torch.cat([x[:3] + y[:3], x[3:]])
    any_ops.add(any_ops.buffer(x), any_ops.buffer(y), 3)
    assert torch.equal(x, expected)


@pytest.mark.parametrize("head_dim", [2, 64, 80, 96, 128])
def test_rope(native: TensorOps, reference: TensorOps, head_dim: int) -> None:
    rows, heads, offset = 7, 3, 5
    stride = offset + heads * head_dim + 4
    angles = torch.outer(torch.arange(50.0), 10000 ** (-torch.arange(head_dim // 2) / (head_dim // 2)))
    positions = torch.randint(0, 50, (rows,), dtype=torch.int32)
    start = torch.randn(rows, stride)
    found, expected = start.clone(), start.clone()
    for ops, x in ((native, found), (reference, expected)):
        tables = ops.buffer(angles.cos().contiguous()), ops.buffer(angles.sin().contiguous())
        ops.rope(RopeCall(ops.buffer(x), ops.buffer(positions), *tables, heads, head_dim, stride, offset), rows)
    TOLERANCES["rope"].check(found, expected)
    assert torch.equal(found[:, :offset], start[:, :offset])
    assert torch.equal(found[:, -4:], start[:, -4:])


def test_rope_turns_by_the_angle(any_ops: TensorOps) -> None:
    """Rotate-half: the pair is (x[i], x[i + d/2]); a quarter turn takes (1, 0) to (0, 1)."""
    x = torch.tensor([[1.0, 2.0, 0.0, 0.0]])
    tables = any_ops.buffer(torch.zeros(1, 2)), any_ops.buffer(torch.ones(1, 2))
    at = any_ops.buffer(torch.zeros(1, dtype=torch.int32))
    any_ops.rope(RopeCall(any_ops.buffer(x), at, *tables, 1, 4, 4, 0), 1)
    assert x.tolist() == [[0.0, 0.0, 1.0, 2.0]]
