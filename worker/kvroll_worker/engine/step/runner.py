"""The forward pass over the rows of a step. All buffers are bound once; a step allocates nothing large and passes only handles."""

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from kvroll_core.precision.sealing import Sealing
from kvroll_kernels.arrays import FP32, INT64, Array, zeros
from kvroll_kernels.calls import AttentionCall, KvWriteCall, RopeCall
from kvroll_kernels.ops import Buffer, Ops
from kvroll_worker.engine.blame import for_engine
from kvroll_worker.engine.schedule.open_pages import due_seals
from kvroll_worker.engine.schedule.scheduler import Chunk
from kvroll_worker.engine.step.rows import Rows
from kvroll_worker.engine.step.weights import LayerWeights, ModelWeights
from kvroll_worker.kv.mixed_storage import MixedStorage
from kvroll_worker.kv.storage import PageStorage
from kvroll_worker.models.rope import RopeSpec, inverse_frequencies
from kvroll_worker.models.spec import ModelSpec


@dataclass(frozen=True, slots=True)
class _LayerCalls:
    """What one layer asks of the kernels in every step, over buffers that are bound once."""

    write: KvWriteCall
    attend: AttentionCall


class Runner:
    """Knows arrays and kernels; knows nothing of why a row is in the step."""

    def __init__(
        self,
        ops: Ops,
        spec: ModelSpec,
        weights: ModelWeights,
        storage: PageStorage | MixedStorage,
        max_rows: int,
        max_sessions: int,
        max_model_len: int,
        sealing: Sealing,
    ) -> None:
        self._ops, self._spec, self._weights, self._storage = ops, spec, weights, storage
        self.kernel_seconds = 0.0  # of all steps
        self.max_logits = max_sessions
        self._rows = Rows(ops, max_rows, max_sessions, max_model_len, sealing)
        self._kept: list[Array] = []
        self._sealing = [zeros((max_sessions,), INT64) for _ in range(2)]  # open pages, and what they are sealed into
        self._sealing_ids = [ops.buffer(ids) for ids in self._sealing]
        shape = spec.shape
        self._queries, self._keys = shape.heads * shape.head_dim, shape.kv_heads * shape.head_dim
        self._x_array, self._x = self._bind(max_rows, shape.hidden)
        _, self._normed = self._bind(max_rows, shape.hidden)
        _, self._delta = self._bind(max_rows, shape.hidden)
        _, self._qkv = self._bind(max_rows, self._queries + 2 * self._keys)
        _, self._attended = self._bind(max_rows, self._queries)
        _, self._gate_up = self._bind(max_rows, 2 * shape.intermediate)
        _, self._gated = self._bind(max_rows, shape.intermediate)
        self._sampled_array, self._sampled = self._bind(max_sessions, shape.hidden)
        self._logits_array, self._logits = self._bind(max_sessions, shape.vocab)
        cos, sin = rope_tables(spec.rope, shape.head_dim, max_model_len)
        self._kept += [cos, sin]
        self._rotations = self._rotate(ops.buffer(cos), ops.buffer(sin))
        self._calls = [self._calls_of(index, layer) for index, layer in enumerate(weights.layers)]

    def forward(self, chunks: list[Chunk]) -> npt.NDArray[np.float32]:
        """Computes the chunks' KV and returns logits [sampling chunks, vocab] in the chunks' order, valid until the next call.

        Raises:
            EngineFault: a kernel failed; what the pages hold is unknown.
        """
        with for_engine("the forward pass"):
            return self._forward(chunks)

    def _forward(self, chunks: list[Chunk]) -> npt.NDArray[np.float32]:
        rows, began = self._rows, self._ops.seconds
        rows.fill(chunks)
        self._seal([pair for chunk in chunks for pair in due_seals(chunk.session, chunk.start)])
        self._ops.embed(self._weights.embedding, rows.token_ids, self._x, rows.count)
        for index, layer in enumerate(self._weights.layers):
            self._attention(index, layer)
            self._mlp(layer)
        logits = self._logits_of(rows.sampled)
        self.kernel_seconds += self._ops.seconds - began
        return logits

    def _seal(self, due: list[tuple[int, int]]) -> None:
        """Before the step writes into the open pages that this makes free."""
        most = len(self._sealing[0])
        for at in range(0, len(due), most):
            part = due[at : at + most]
            for which, ids in enumerate(self._sealing):
                ids[: len(part)] = [pair[which] for pair in part]
            opened, pages = self._sealing_ids
            self._ops.kivi_seal(self._storage.pool_of(0)[0], opened, pages, len(part))

    def _attention(self, index: int, layer: LayerWeights) -> None:
        ops, shape, count = self._ops, self._spec.shape, self._rows.count
        stride = self._queries + 2 * self._keys
        ops.rms_norm(self._x, layer.input_norm, self._normed, count, self._spec.rms_norm_eps)
        ops.gemm(layer.qkv, self._normed, self._qkv, count)
        if layer.q_norm is not None and layer.k_norm is not None:
            eps = self._spec.rms_norm_eps
            ops.head_norm(self._qkv, layer.q_norm, count, shape.heads, stride, 0, eps)
            ops.head_norm(self._qkv, layer.k_norm, count, shape.kv_heads, stride, self._queries, eps)
        calls = self._calls[index]
        ops.rope(self._rotations[0], count)
        ops.rope(self._rotations[1], count)
        ops.kv_write(calls.write, count)
        ops.paged_attention(calls.attend, count)
        ops.gemm(layer.output, self._attended, self._delta, count)
        ops.add(self._x, self._delta, count)

    def _mlp(self, layer: LayerWeights) -> None:
        ops, count = self._ops, self._rows.count
        ops.rms_norm(self._x, layer.post_norm, self._normed, count, self._spec.rms_norm_eps)
        ops.gemm(layer.gate_up, self._normed, self._gate_up, count)
        ops.silu_mul(self._gate_up, self._gated, count)
        ops.gemm(layer.down, self._gated, self._delta, count)
        ops.add(self._x, self._delta, count)

    def hidden(self, first_row: int, count: int) -> npt.NDArray[np.float32]:
        """What the last layer left [count, hidden] for consecutive rows of the last forward, valid until the next.

        Whatever a row's token put into the cache, in any layer, went through its attention there and so into this.
        """
        rows: npt.NDArray[np.float32] = self._x_array[first_row : first_row + count]
        return rows

    def logits(self, sampled: list[int]) -> npt.NDArray[np.float32]:
        """Logits [rows, vocab] of rows of the last forward, at most `max_logits` at once, valid until the next call.

        Raises:
            EngineFault: a kernel failed.
        """
        with for_engine("the logits"):
            return self._logits_of(sampled)

    def _logits_of(self, sampled: list[int]) -> npt.NDArray[np.float32]:
        count = len(sampled)
        logits: npt.NDArray[np.float32] = self._logits_array[:count]
        if count:
            np.take(self._x_array, sampled, axis=0, out=self._sampled_array[:count])
            self._ops.rms_norm(self._sampled, self._weights.norm, self._sampled, count, self._spec.rms_norm_eps)
            self._ops.gemm(self._weights.head, self._sampled, self._logits, count)
        return logits

    def _rotate(self, cos: Buffer, sin: Buffer) -> tuple[RopeCall, RopeCall]:
        """Queries and keys of the rows: the same of every layer."""
        shape, stride = self._spec.shape, self._queries + 2 * self._keys
        angles = (self._qkv, self._rows.positions, cos, sin)
        return (
            RopeCall(*angles, shape.heads, shape.head_dim, stride, 0),
            RopeCall(*angles, shape.kv_heads, shape.head_dim, stride, self._queries),
        )

    def _calls_of(self, index: int, layer: LayerWeights) -> "_LayerCalls":
        rows, shape, stride = self._rows, self._spec.shape, self._queries + 2 * self._keys
        pool, place = self._storage.pool_of(index)
        values_at = self._queries + self._keys
        write = KvWriteCall(pool, place, self._qkv, stride, self._queries, values_at, rows.page_ids, rows.slots)
        attend = AttentionCall(
            pool,
            place,
            self._qkv,
            stride,
            self._attended,
            shape.heads,
            rows.page_table,
            rows.max_pages,
            rows.sequences,
            rows.lengths,
            shape.head_dim**-0.5,
            self._spec.windows[index],
            layer.sinks,
            rows.open_table,
        )
        return _LayerCalls(write, attend)

    def _bind(self, rows: int, width: int) -> tuple[Array, Buffer]:
        array = zeros((rows, width), FP32)
        self._kept.append(array)
        return array, self._ops.buffer(array)


def rope_tables(rope: RopeSpec, head_dim: int, max_len: int) -> tuple[Array, Array]:
    """cos and sin [max_len, head_dim/2] fp32, times the attention factor; angles in fp64, so that far positions keep their phase."""
    frequencies = np.array(inverse_frequencies(rope, head_dim), dtype=np.float64)
    angles = np.arange(max_len, dtype=np.float64)[:, None] * frequencies
    cos, sin = (rope.attention_factor * part(angles) for part in (np.cos, np.sin))
    return cos.astype(FP32), sin.astype(FP32)
