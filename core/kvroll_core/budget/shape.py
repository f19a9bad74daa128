"""The sizes of a decoder-only transformer that memory depends on, from its config.json."""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from itertools import groupby
from typing import Any

from kvroll_core.budget import config as reading
from kvroll_core.budget.cache import HeadKv, KvGroup, LatentKv
from kvroll_core.budget.config import Compressed, Experts, Latent
from kvroll_core.budget.families import Read, ShapeError, read_model
from kvroll_core.precision.kv_form import KvForm

__all__ = ["Compressed", "Experts", "Facts", "Latent", "ModelShape", "ShapeError"]

_SCALE_GROUP = 128  # MLA in 8 bits: one fp32 scale per 128 dimensions (vLLM `fp8_ds_mla`)
_V4_SCALE_BYTES = 8  # DeepSeek-V4: one E8M0 scale per 64 of 448 dimensions, 7 bytes padded to 8


@dataclass(frozen=True)
class Facts:
    """What is known of a model beside its sizes: its `family`, the `attention` of it and where that was read (`source`), what was
    `derived` and `ignored` of the file, and the assumption that stands for the family (`assumed`), None where it is known.

    `weights_counted`: the formula for the weights holds for the family.
    """

    family: str = ""
    attention: str = ""
    source: str = ""
    derived: tuple[str, ...] = ()
    ignored: tuple[str, ...] = ()
    assumed: str | None = None
    weights_counted: bool = True


@dataclass(frozen=True)
class ModelShape:
    """The sizes of a decoder-only transformer that memory depends on.

    `windows`: tokens that each layer looks back, 0 for all; empty: all layers look back on everything. `sinks`: first
    tokens that stay in the cache beside a window. `experts`, `latent`, `compressed` are there where the model has a
    mixture of experts, MLA, or DeepSeek-V4's attention. `layer_parts`: what each layer keeps, where layers differ by more than a window;
    empty otherwise. `facts`: what is known of the model beside its sizes.
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
    layer_parts: tuple[tuple[KvGroup, ...], ...] = ()
    facts: Facts = field(default=Facts())

    @classmethod
    def from_config(cls, config: Mapping[str, Any], assume: str | None = None) -> "ModelShape":
        """Reads a config.json as Hugging Face writes it; of a model with vision or audio, its `text_config`.

        Raises:
            ShapeError: a family that we do not count and no assumption for it, or a value that cannot be.
        """
        return read_shape(config, assume)

    @property
    def kv_groups(self) -> tuple[KvGroup, ...]:
        """The layers by what they keep in the cache."""
        if self.layer_parts:
            return _merged(self.layer_parts)
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
        return tuple((name, group) for name, layers in form.parts(self.layers) for group in self.only(layers).kv_groups)

    def only(self, layers: tuple[int, ...]) -> "ModelShape":
        """The shape with those layers alone, as far as their KV goes."""
        windows = tuple(self.windows[n] for n in layers) if self.windows else ()
        v4 = self.compressed
        compressed = replace(v4, ratios=tuple(v4.ratios[n] for n in layers)) if v4 else None
        parts = tuple(self.layer_parts[n] for n in layers) if self.layer_parts else ()
        return replace(self, layers=len(layers), windows=windows, compressed=compressed, layer_parts=parts)

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
        if not self.facts.weights_counted:
            raise ShapeError(
                f"the weights of {self.facts.family} are not counted by a formula; say their size: --weights-bytes 16GB"
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

    @property
    def expert_elements(self) -> int:
        """Elements of the matrices of all routed experts."""
        if not self.experts:
            return 0
        sparse = self.layers - self.experts.dense_layers
        return sparse * 3 * self.hidden * self.experts.count * self.experts.intermediate

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


def _merged(layers: tuple[tuple[KvGroup, ...], ...]) -> tuple[KvGroup, ...]:
    """Equal parts of all layers as one group each, in the order in which they first come."""
    counts: dict[KvGroup, int] = {}
    for part in (part for parts in layers for part in parts):
        counts[part] = counts.get(part, 0) + 1
    return tuple(part.times(count) for part, count in counts.items())


def read_shape(config: Mapping[str, Any], assume: str | None = None) -> ModelShape:
    """As `ModelShape.from_config`."""
    read = read_model(config, assume)
    compressed = reading.compressed(read.settings, len(read.layers)) if read.family.name == "deepseek_v4" else None
    latent = (
        reading.latent(read.settings)
        if "latent" in read.family.attention and not read.assumed and not compressed
        else None
    )
    uniform = _uniform(read)
    parts = () if compressed or uniform is not None or (latent and _all_alike(read)) else read.layers
    heads = read.settings.optional("num_attention_heads") or 0
    kv_heads, head_dim, windows = uniform or _largest(read)
    if latent:
        kv_heads, head_dim, windows = heads, latent.nope_dim + latent.rope_dim, ()
    facts = Facts(
        read.family.name,
        read.family.attention,
        read.family.source,
        tuple(dict.fromkeys(read.settings.derived)),
        read.ignored,
        read.assumed,
        (read.family.counted or read.assumed is not None) and reading.has_even_experts(read.settings),
    )
    return ModelShape(
        **reading.sizes(read.settings),
        layers=len(read.layers),
        heads=heads,
        kv_heads=kv_heads,
        head_dim=head_dim,
        windows=windows,
        experts=reading.experts(read.settings),
        latent=latent,
        compressed=compressed,
        layer_parts=parts,
        facts=facts,
    )


def _all_alike(read: Read) -> bool:
    return len(set(read.layers)) == 1


def _uniform(read: Read) -> tuple[int, int, tuple[int, ...]] | None:
    """KV heads, head size and windows of a model whose layers keep the same heads each; None of any other."""
    parts = [layer[0] for layer in read.layers if len(layer) == 1]
    heads = [part for part in parts if isinstance(part, HeadKv) and part.value_dim is None]
    if len(heads) != len(read.layers) or len({(p.kv_heads, p.head_dim) for p in heads}) != 1:
        return None
    windows = tuple(p.window or 0 for p in heads)
    return heads[0].kv_heads, heads[0].head_dim, windows if any(windows) else ()


def _largest(read: Read) -> tuple[int, int, tuple[int, ...]]:
    """Of layers that differ, the KV heads and head size of the largest; none of a model without attention."""
    heads = [part for layer in read.layers for part in layer if isinstance(part, HeadKv)]
    most = max(heads, key=lambda p: p.kv_heads * p.head_dim, default=None)
    return (most.kv_heads, most.head_dim, ()) if most else (0, 0, ())
