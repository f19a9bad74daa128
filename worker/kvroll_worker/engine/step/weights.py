"""A model folder as packed handles, loaded and quantised layer by layer."""

from dataclasses import dataclass
from pathlib import Path

import numpy as np

from kvroll_core.precision.formats import HEAD_SAME, WEIGHT_BLOCK, head_dtype
from kvroll_kernels.arrays import FP32, Array
from kvroll_kernels.ops import Buffer, LinearHandle, Ops
from kvroll_worker.models.prequantised import refuse_other_tensors
from kvroll_worker.models.safetensors_folder import TensorFolder
from kvroll_worker.models.spec import ModelSpec, UnsupportedModelError
from kvroll_worker.models.tensor_names import (
    DOWN,
    EMBEDDING,
    GATE_UP,
    HEAD,
    NORM,
    OUTPUT,
    QKV,
    derived_names,
    layer_prefix,
    tensor_names,
)
from kvroll_worker.quant.weights import quantised_rows, source_dtype, stored_form


@dataclass(frozen=True)
class LayerWeights:
    """One decoder layer; q, k, v and gate, up are fused by rows, which changes no sum."""

    input_norm: Buffer
    qkv: LinearHandle
    q_norm: Buffer | None
    k_norm: Buffer | None
    sinks: Buffer | None
    output: LinearHandle
    post_norm: Buffer
    gate_up: LinearHandle
    down: LinearHandle


@dataclass(frozen=True)
class ModelWeights:
    """Everything that the forward pass multiplies with; `kept` owns what the buffers point at."""

    embedding: LinearHandle
    layers: list[LayerWeights]
    norm: Buffer
    head: LinearHandle
    kept: list[Array]


class _Loader:
    """Holds some rows of the checkpoint beside the packed result."""

    def __init__(self, tensors: TensorFolder, spec: ModelSpec, dtype: str, block: int, ops: Ops) -> None:
        self._tensors, self._spec, self._dtype, self._block, self._ops = tensors, spec, dtype, block, ops
        self.kept: list[Array] = []

    def vector(self, name: str, width: int) -> Buffer:
        """A norm's weight or the sinks: as fine as the checkpoint has them, since what they cost is nothing."""
        weight = self._tensors.get(name, (width,), FP32)
        self.kept.append(weight)
        return self._ops.buffer(weight)

    def table(self, name: str, dtype: str) -> LinearHandle:
        """Embedding or head."""
        shape = self._spec.shape
        return self._packed([(name, shape.vocab)], shape.hidden, dtype)

    def linear(self, room: str, parts: tuple[str, ...], outputs: list[int], width: int, *, bias: bool) -> LinearHandle:
        """The parts one below the other."""
        names = [f"{room}.{part}" for part in parts]
        offsets = (
            [self._tensors.get(f"{n}.bias", (out,), FP32) for n, out in zip(names, outputs, strict=True)]
            if bias
            else []
        )
        sizes = [(f"{name}.weight", rows) for name, rows in zip(names, outputs, strict=True)]
        return self._packed(sizes, width, self._dtype, np.concatenate(offsets) if bias else None)

    def _packed(self, sizes: list[tuple[str, int]], width: int, dtype: str, bias: Array | None = None) -> LinearHandle:
        """Tensors one below the other; only some of their rows are there at a time beside the packed result."""
        tensors, ops, source = self._tensors, self._ops, source_dtype(dtype)
        handle = ops.empty_linear(stored_form(dtype, self._block), sum(rows for _, rows in sizes), width, bias)
        first = 0
        for name, rows in sizes:
            try:
                for stored in quantised_rows(tensors.blocks(name, (rows, width), source), dtype, self._block):
                    ops.fill_linear(handle, first, *stored)
                    first += len(stored.payload)
            except OverflowError as error:
                raise UnsupportedModelError(f"{name}: {error}") from error
        return handle

    def layer(self, index: int) -> LayerWeights:
        spec, shape, prefix = self._spec, self._spec.shape, layer_prefix(index)
        queries, keys = shape.heads * shape.head_dim, shape.kv_heads * shape.head_dim
        hidden, inter, attention, mlp = shape.hidden, shape.intermediate, f"{prefix}self_attn", f"{prefix}mlp"
        return LayerWeights(
            input_norm=self.vector(f"{prefix}input_layernorm.weight", hidden),
            qkv=self.linear(attention, QKV, [queries, keys, keys], hidden, bias=spec.qkv_bias),
            q_norm=self.vector(f"{attention}.q_norm.weight", shape.head_dim) if spec.qk_norm else None,
            k_norm=self.vector(f"{attention}.k_norm.weight", shape.head_dim) if spec.qk_norm else None,
            sinks=self.vector(f"{attention}.sinks", shape.heads) if spec.sinks else None,
            output=self.linear(attention, OUTPUT, [hidden], queries, bias=spec.output_bias),
            post_norm=self.vector(f"{prefix}post_attention_layernorm.weight", hidden),
            gate_up=self.linear(mlp, GATE_UP, [inter, inter], hidden, bias=spec.mlp_bias),
            down=self.linear(mlp, DOWN, [hidden], inter, bias=spec.mlp_bias),
        )

    def refuse_other_head(self) -> None:
        """A tied checkpoint that has a head too must have the embedding there: merged fine-tunes sometimes do not."""
        shape = self._spec.shape
        if not shape.tied_head or HEAD not in self._tensors.dtypes:
            return
        size = (shape.vocab, shape.hidden)
        if not np.array_equal(self._tensors.get(HEAD, size), self._tensors.get(EMBEDDING, size)):
            raise UnsupportedModelError(
                f"tie_word_embeddings is true, but {HEAD} differs from {EMBEDDING}; set it to false if the head is meant"
            )


def load_weights(
    folder: Path, spec: ModelSpec, dtype: str, ops: Ops, *, block: int = WEIGHT_BLOCK, head: str = HEAD_SAME
) -> ModelWeights:
    """Reads every tensor once, at most one layer above the packed result in memory.

    `block` is int4's. A tied head is the embedding's table: int8 then is both's. Without ties the embedding stays as it is, since
    a step reads some of its rows alone.

    Raises:
        UnsupportedModelError: a tensor is absent, quantised, of another shape than the config says, or read by nothing; or it has NaN,
            infinity, or a number that the dtype does not hold.
    """
    tensors = TensorFolder(folder)
    refuse_other_tensors(tensors.dtypes, tensor_names(spec), derived_names(spec))
    loader = _Loader(tensors, spec, dtype, block, ops)
    loader.refuse_other_head()
    plain, chosen = head_dtype(dtype, HEAD_SAME), head_dtype(dtype, head)
    embedding = loader.table(EMBEDDING, chosen if spec.shape.tied_head else plain)
    last = embedding if spec.shape.tied_head else loader.table(HEAD, chosen)
    layers = [loader.layer(index) for index in range(spec.shape.layers)]
    return ModelWeights(embedding, layers, loader.vector(NORM, spec.shape.hidden), last, loader.kept)
