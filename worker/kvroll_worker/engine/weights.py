"""A model folder as packed handles, loaded and quantised layer by layer."""

from dataclasses import dataclass
from pathlib import Path

import numpy as np

from kvroll_kernels.arrays import FP32, Array
from kvroll_kernels.ops import Buffer, LinearHandle, Ops
from kvroll_worker.models.safetensors_folder import TensorFolder
from kvroll_worker.models.spec import ModelSpec
from kvroll_worker.quant.weights import quantise, source_dtype


@dataclass(frozen=True)
class LayerWeights:
    """One decoder layer; q, k, v and gate, up are fused by rows, which changes no sum."""

    input_norm: Buffer
    qkv: LinearHandle
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
    def __init__(self, tensors: TensorFolder, spec: ModelSpec, dtype: str, ops: Ops) -> None:
        self._tensors, self._spec, self._dtype, self._ops = tensors, spec, dtype, ops
        self.kept: list[Array] = []

    def norm(self, name: str, width: int) -> Buffer:
        weight = self._tensors.get(name, (width,)).astype(FP32)
        self.kept.append(weight)
        return self._ops.buffer(weight)

    def table(self, name: str) -> LinearHandle:
        """Embedding or head: stays bf16 at every weight dtype."""
        shape = self._spec.shape
        return self._ops.linear(self._tensors.get(name, (shape.vocab, shape.hidden)))

    def linear(self, prefix: str, parts: dict[str, int], width: int, *, bias: bool = False) -> LinearHandle:
        dtype = source_dtype(self._dtype)
        rows = np.concatenate(
            [self._tensors.get(f"{prefix}{name}.weight", (out, width), dtype) for name, out in parts.items()]
        )
        offset = None
        if bias:
            offset = np.concatenate(
                [self._tensors.get(f"{prefix}{name}.bias", (out,)) for name, out in parts.items()]
            ).astype(FP32)
        stored = quantise(rows, self._dtype)
        return self._ops.linear(stored.payload, stored.scale, offset, stored.zero)

    def layer(self, index: int) -> LayerWeights:
        shape, prefix = self._spec.shape, f"model.layers.{index}."
        queries, keys = shape.heads * shape.head_dim, shape.kv_heads * shape.head_dim
        attention, mlp = f"{prefix}self_attn.", f"{prefix}mlp."
        return LayerWeights(
            input_norm=self.norm(f"{prefix}input_layernorm.weight", shape.hidden),
            qkv=self.linear(
                attention, {"q_proj": queries, "k_proj": keys, "v_proj": keys}, shape.hidden, bias=self._spec.qkv_bias
            ),
            output=self.linear(attention, {"o_proj": shape.hidden}, queries),
            post_norm=self.norm(f"{prefix}post_attention_layernorm.weight", shape.hidden),
            gate_up=self.linear(mlp, {"gate_proj": shape.intermediate, "up_proj": shape.intermediate}, shape.hidden),
            down=self.linear(mlp, {"down_proj": shape.hidden}, shape.intermediate),
        )


def load_weights(folder: Path, spec: ModelSpec, dtype: str, ops: Ops) -> ModelWeights:
    """Reads every tensor once, at most one layer above the packed result in memory.

    Raises:
        UnsupportedModelError: a tensor is absent or has another shape than the config says.
    """
    with TensorFolder(folder) as tensors:
        loader = _Loader(tensors, spec, dtype, ops)
        embedding = loader.table("model.embed_tokens.weight")
        head = embedding if spec.shape.tied_head else loader.table("lm_head.weight")
        layers = [loader.layer(index) for index in range(spec.shape.layers)]
        norm = loader.norm("model.norm.weight", spec.shape.hidden)
    return ModelWeights(embedding, layers, norm, head, loader.kept)
