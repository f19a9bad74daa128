"""A model folder as packed handles, loaded and quantised layer by layer."""

from dataclasses import dataclass
from itertools import chain
from pathlib import Path

import numpy as np

from kvroll_kernels.arrays import BF16, FP32, Array
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
from kvroll_worker.quant.weights import quantise_blocks, source_dtype


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
    """Holds some rows of the checkpoint and one matrix in its stored form beside the packed result."""

    def __init__(self, tensors: TensorFolder, spec: ModelSpec, dtype: str, ops: Ops) -> None:
        self._tensors, self._spec, self._dtype, self._ops = tensors, spec, dtype, ops
        self.kept: list[Array] = []

    def vector(self, name: str, width: int) -> Buffer:
        """A norm's weight or the sinks: as fine as the checkpoint has them, since what they cost is nothing."""
        weight = self._tensors.get(name, (width,), FP32)
        self.kept.append(weight)
        return self._ops.buffer(weight)

    def table(self, name: str) -> LinearHandle:
        """Embedding or head: stays bf16 at every weight dtype but fp32."""
        shape = self._spec.shape
        dtype = FP32 if self._dtype == "fp32" else BF16
        return self._ops.linear(self._tensors.get(name, (shape.vocab, shape.hidden), dtype))

    def linear(self, room: str, parts: tuple[str, ...], outputs: list[int], width: int, *, bias: bool) -> LinearHandle:
        """The parts one below the other."""
        tensors, source = self._tensors, source_dtype(self._dtype)
        sizes = [(f"{room}.{part}", rows) for part, rows in zip(parts, outputs, strict=True)]
        rows = chain.from_iterable(tensors.blocks(f"{name}.weight", (out, width), source) for name, out in sizes)
        stored = quantise_blocks(rows, sum(outputs), self._dtype)
        offset = np.concatenate([tensors.get(f"{name}.bias", (out,), FP32) for name, out in sizes]) if bias else None
        return self._ops.linear(stored.payload, stored.scale, offset, stored.zero)

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


def load_weights(folder: Path, spec: ModelSpec, dtype: str, ops: Ops) -> ModelWeights:
    """Reads every tensor once, at most one layer above the packed result in memory.

    Raises:
        UnsupportedModelError: a tensor is absent, quantised, of another shape than the config says, or read by nothing.
    """
    tensors = TensorFolder(folder)
    refuse_other_tensors(tensors.dtypes, tensor_names(spec), derived_names(spec))
    loader = _Loader(tensors, spec, dtype, ops)
    loader.refuse_other_head()
    embedding = loader.table(EMBEDDING)
    head = embedding if spec.shape.tied_head else loader.table(HEAD)
    layers = [loader.layer(index) for index in range(spec.shape.layers)]
    return ModelWeights(embedding, layers, loader.vector(NORM, spec.shape.hidden), head, loader.kept)
