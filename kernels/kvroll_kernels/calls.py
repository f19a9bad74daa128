"""What a call of a kernel with many parts is about, as one value that is made once and passed with the rows of each step.

Handles are those of the implementation that the call goes to; shapes in brackets, `rows` as in `kvroll_kernels.ops`.
"""

from dataclasses import dataclass
from typing import Any

Handle = Any
"""A `Buffer` or `PoolHandle` of `kvroll_kernels.ops`."""


@dataclass(frozen=True, slots=True)
class RopeCall:
    """Heads x[r, offset + h*head_dim : offset + (h + 1)*head_dim] to be rotated by the angles of `positions` int32 [rows].

    cos and sin are fp32 [max_len, head_dim/2].
    """

    x: Handle
    positions: Handle
    cos: Handle
    sin: Handle
    heads: int
    head_dim: int
    row_stride: int
    offset: int


@dataclass(frozen=True, slots=True)
class KvWriteCall:
    """K and V of each row of `qkv` on their way to page page_ids[r] (int64) at token slots[r] (int32)."""

    pool: Handle
    layer: int
    qkv: Handle
    row_stride: int
    k_offset: int
    v_offset: int
    page_ids: Handle
    slots: Handle


@dataclass(frozen=True, slots=True)
class AttentionCall:
    """Queries and the tokens that they attend to.

    q head h of row r begins at q[r*q_row_stride + h*head_dim]; page_table is int64 [sequences, max_pages];
    row_sequence, row_length int32 [rows]; out [rows, heads*head_dim]; window w > 0 keeps the last w tokens, 0 all.
    sinks fp32 [heads]; open_table int64 [sequences, max_pages], for sealed formats alone.
    """

    pool: Handle
    layer: int
    q: Handle
    q_row_stride: int
    out: Handle
    heads: int
    page_table: Handle
    max_pages: int
    row_sequence: Handle
    row_length: Handle
    scale: float
    window: int = 0
    sinks: Handle | None = None
    open_table: Handle | None = None
