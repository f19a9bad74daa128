"""The sizes of a decoder-only transformer that memory depends on, from its config.json."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from itertools import groupby
from typing import Any

from kvroll_core.budget import config as reading
from kvroll_core.budget.cache import HeadKv, KvGroup, LatentKv
from kvroll_core.budget.config import Compressed, Experts, Latent
from kvroll_core.budget.sliding import ShapeError
from kvroll_core.kv_form import KvForm

__all__ = ["Compressed", "Experts", "Latent", "ModelShape", "ShapeError"]

_SCALE_GROUP = 128  # MLA in 8 bits: one fp32 scale per 128 dimensions (vLLM `fp8_ds_mla`)
_V4_SCALE_BYTES = 8  # DeepSeek-V4: one E8M0 scale per 64 of 448 dimensions, 7 bytes padded to 8


@dataclass(frozen=True)
class ModelShape:
    """The sizes of a decoder-only transformer that memory depends on.

    `windows`: tokens that each layer looks back, 0 for all; empty: all layers look back on everything. `sinks`: first
    tokens that stay in the cache beside a window. `experts`, `latent`, `compressed` are there where the model has a
    mixture of experts, MLA, or DeepSeek-V4's attention.
    """

    layers: int
    hidden: int
    heads: int
    kv_heads: int
    head_dim: int
    intermediate: int
    vocab: int
    tied_head: bool
    max_positions: int
    windows: tuple[int, ...] = ()
    sinks: int = 0
    experts: Experts | None = None
    latent: Latent | None = None
    compressed: Compressed | None = None

    @classmethod
    def from_config(cls, config: Mapping[str, Any]) -> "ModelShape":
        """Reads a config.json as Hugging Face writes it; of a model with vision or audio, its `text_config`.

        Raises:
            ShapeError: a key that we need is missing, or the attention is of a kind that we cannot count.
        """
        text = config.get("text_config") or config
        sizes = reading.sizes(text)
        latent, compressed = reading.latent(text), reading.compressed(text)
        if latent:
            sizes |= {"head_dim": latent.nope_dim + latent.rope_dim, "kv_heads": sizes["heads"]}
        windows = () if compressed else reading.windows(text, sizes["layers"])
        return cls(**sizes, windows=windows, experts=reading.experts(text), latent=latent, compressed=compressed)

    @property
    def kv_groups(self) -> tuple[KvGroup, ...]:
        """The layers by what they keep in the cache."""
        if self.compressed:
            return self._compressed_groups(self.compressed)
        if self.latent:
            mla = self.latent
            scales = 4 * -(-mla.kv_rank // _SCALE_GROUP)
            return (LatentKv(self.layers, mla.kv_rank, mla.rope_dim, scales, index=mla.index_dim),)
        kinds = sorted(self.windows) if self.windows else [0] * self.layers
        return tuple(
            HeadKv(len(list(same)), self.kv_heads, self.head_dim, window or None, self.sinks if window else 0)
            for window, same in groupby(kinds)
        )

    def kept(self, form: KvForm) -> tuple[tuple[str, KvGroup], ...]:
        """The layers by the format that they are kept in and what they keep.

        Raises:
            SkipLayersError: a layer that the model has not.
        """
        return tuple(
            (name, group) for name, layers in form.parts(self.layers) for group in self._only(layers).kv_groups
        )

    def _only(self, layers: tuple[int, ...]) -> "ModelShape":
        """The shape with those layers alone, as far as their KV goes."""
        windows = tuple(self.windows[n] for n in layers) if self.windows else ()
        v4 = self.compressed
        compressed = replace(v4, ratios=tuple(v4.ratios[n] for n in layers)) if v4 else None
        return replace(self, layers=len(layers), windows=windows, compressed=compressed)

    def _compressed_groups(self, v4: Compressed) -> tuple[KvGroup, ...]:
        nope = v4.state_dim - v4.rope_dim
        return tuple(
            LatentKv(
                len(list(same)), nope, v4.rope_dim, _V4_SCALE_BYTES, ratio, v4.window, v4.index_dim if ratio == 4 else 0
            )
            for ratio, same in groupby(sorted(v4.ratios))
        )

    @property
    def attention_elements(self) -> int:
        """Elements of the matrices of one layer's attention.

        Raises:
            ShapeError: DeepSeek-V4's attention, whose projections we do not count.
        """
        if self.compressed:
            raise ShapeError(
                "the weights of compressed attention (compress_ratios) are not counted here; say their size: --weights-bytes 800GB"
            )
        if self.latent:
            return self.latent.elements(self.hidden, self.heads)
        return self.hidden * self.head_dim * (2 * self.heads + 2 * self.kv_heads)

    @property
    def matrix_elements(self) -> int:
        """Elements of the matrices that a weight dtype applies to: attention, gate, up, down of every layer and
        expert.
        """
        return self.layers * self.attention_elements + int(
            self._mlp_elements(self.experts.count if self.experts else 0)
        )

    def read_elements(self, rows: float) -> float:
        """Elements of those matrices that a step over `rows` tokens reads: of the experts, the expected number that
        some row is routed to.

        A row picks k of E experts, taken as uniform: E x (1 - (1 - k/E)^rows) distinct ones.
        """
        if not self.experts:
            return self.matrix_elements
        count, share = self.experts.count, self.experts.per_token / self.experts.count
        return self.layers * self.attention_elements + self._mlp_elements(count * (1 - (1 - share) ** rows))

    @property
    def token_flops(self) -> float:
        """Floating-point operations of one token in the matrices and the head: two per element that it is multiplied
        with.
        """
        active = self.layers * self.attention_elements + self._mlp_elements(
            self.experts.per_token if self.experts else 0
        )
        return 2 * (active + self.vocab * self.hidden)

    @property
    def plain_elements(self) -> int:
        """Elements that stay 16-bit: embedding, head unless tied, norms, the routers of the experts."""
        tables = 1 if self.tied_head else 2
        routers = (self.layers - self.experts.dense_layers) * self.hidden * self.experts.count if self.experts else 0
        return tables * self.vocab * self.hidden + (2 * self.layers + 1) * self.hidden + routers

    def _mlp_elements(self, experts: float) -> float:
        dense = 3 * self.hidden * self.intermediate
        if not self.experts:
            return self.layers * dense
        routed = 3 * self.hidden * (experts * self.experts.intermediate + self.experts.shared_intermediate)
        return self.experts.dense_layers * dense + (self.layers - self.experts.dense_layers) * routed
