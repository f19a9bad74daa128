"""Bytes that a session keeps in the KV cache, by kind of layer: heads (MHA, GQA, MQA), windows, latents (MLA),
compressed latents.

A model is a tuple of groups of equal layers; each group answers what one session of n tokens costs in it.
"""

from dataclasses import dataclass, replace
from typing import Protocol

from kvroll_core.precision.formats import KV_FORMATS, PAGE_TOKENS, KvFormat
from kvroll_core.precision.sealing import OPEN_FORMAT, SEALED_FORMATS, sealed_pages

_OPEN_FORMAT = KV_FORMATS[OPEN_FORMAT]
_PLAIN_BYTES = {"fp32": 4, "bf16": 2, "fp16": 2}


def pages_for(tokens: int, page_tokens: int = PAGE_TOKENS) -> int:
    """Pages that hold that many tokens."""
    return -(-tokens // page_tokens)


class SplitError(ValueError):
    """A model that does not divide by the ranks that were asked for."""


class KvGroup(Protocol):
    """Layers that keep the same for a session."""

    @property
    def layers(self) -> int:
        """How many they are."""
        ...

    def session_bytes(
        self, tokens: int, kv: KvFormat, *, residual_tokens: int, whole_pages: bool, page_tokens: int = PAGE_TOKENS
    ) -> float:
        """Bytes of one session of that many tokens in all these layers; with `whole_pages` as allocated in pages of
        `page_tokens`, without as stored.
        """
        ...

    def times(self, count: int) -> "KvGroup":
        """So many of them."""
        ...

    def on_rank(self, ranks: int) -> "KvGroup":
        """The share of one of so many tensor-parallel ranks.

        Raises:
            SplitError: it does not divide.
        """
        ...


@dataclass(frozen=True)
class HeadKv:
    """Layers that keep K and V of every KV head. `window`: only that many newest tokens, and the first `sinks` tokens
    besides. `value_dim`: of V, where K has another (`head_dim`).

    Bytes: layers x kv_heads x the format's bytes x min(n, sinks + window); a window is counted while it decodes, not
    while it prefills.
    """

    layers: int
    kv_heads: int
    head_dim: int
    window: int | None = None
    sinks: int = 0
    value_dim: int | None = None

    def kept_tokens(self, tokens: int) -> int:
        """Tokens of a session that these layers keep."""
        return tokens if self.window is None else min(tokens, self.sinks + self.window)

    def session_bytes(
        self, tokens: int, kv: KvFormat, *, residual_tokens: int, whole_pages: bool, page_tokens: int = PAGE_TOKENS
    ) -> float:
        """Bytes of one session of that many tokens; of a sealed format, its newest `residual_tokens` and the page
        under way are bf16.
        """
        kept = self.kept_tokens(tokens)
        allocated = pages_for(kept, page_tokens) * page_tokens if whole_pages else kept
        if kv.name not in SEALED_FORMATS:
            return allocated * self._token_bytes(kv)
        sealed = sealed_pages(kept, residual_tokens) * PAGE_TOKENS
        return sealed * self._token_bytes(kv) + (allocated - sealed) * self._token_bytes(_OPEN_FORMAT)

    def times(self, count: int) -> "HeadKv":
        """So many of them."""
        return replace(self, layers=self.layers * count)

    def on_rank(self, ranks: int) -> "HeadKv":
        """Heads are dealt out; where there are fewer than ranks, each is held by several.

        Raises:
            SplitError: the heads do not divide by the ranks, nor the ranks by the heads.
        """
        if self.kv_heads % ranks and ranks % self.kv_heads:
            raise SplitError(
                f"{self.kv_heads} KV heads and {ranks} tensor-parallel ranks: expected that one divides the other"
            )
        return replace(self, kv_heads=max(self.kv_heads // ranks, 1))

    def scale_bytes(self, kv: KvFormat) -> float:
        """Bytes of one token that are scales of its own: what an engine with one scale for a whole tensor does not keep."""
        values = self.head_dim + (self.head_dim if self.value_dim is None else self.value_dim)
        return self._token_bytes(kv) - self.layers * self.kv_heads * values * kv.payload_bits / 8

    def _token_bytes(self, kv: KvFormat) -> float:
        sizes = (self.head_dim, self.head_dim if self.value_dim is None else self.value_dim)
        return sum(kv.token_bytes(layers=self.layers, kv_heads=self.kv_heads, head_dim=d) for d in sizes) / 2


@dataclass(frozen=True)
class LatentKv:
    """Layers that keep one latent vector for all heads (MLA): `nope` dimensions that a format applies to, `rope` that
    stay 16-bit.

    `every`: one latent per that many tokens (1: each token, 0: none); the newest `window` tokens have one each
    besides. `index`: dimensions of the key by which sparse attention picks (DeepSeek-V3.2 and V4), beside each latent
    that is not of the window. 8-bit bytes of a latent: nope + `scale_bytes` + 2 x rope, of an index key: index + 4
    (vLLM's `fp8_ds_mla`: 512 + 16 + 128 in V3, 448 + 8 + 128 in V4).
    """

    layers: int
    nope: int
    rope: int
    scale_bytes: int
    every: int = 1
    window: int = 0
    index: int = 0

    def session_bytes(
        self, tokens: int, kv: KvFormat, *, residual_tokens: int, whole_pages: bool, page_tokens: int = PAGE_TOKENS
    ) -> float:
        """Bytes of one session of that many tokens.

        Raises:
            ValueError: the format quantises by head and page, which a latent does not have.
        """
        state, index = self._state_bytes(kv), self._index_bytes(kv)
        allocated = pages_for(tokens, page_tokens) * page_tokens if whole_pages else tokens
        latents = -(-allocated // self.every) if self.every else 0
        return self.layers * (latents * (state + index) + min(allocated, self.window) * state)

    def times(self, count: int) -> "LatentKv":
        """So many of them."""
        return replace(self, layers=self.layers * count)

    def on_rank(self, ranks: int) -> "LatentKv":
        """The whole: every rank needs every latent."""
        return self

    def _state_bytes(self, kv: KvFormat) -> float:
        if kv.name in _PLAIN_BYTES:
            return _PLAIN_BYTES[kv.name] * (self.nope + self.rope)
        return self.nope + self._scales(kv, self.nope, self.scale_bytes) + 2 * self.rope

    def _index_bytes(self, kv: KvFormat) -> float:
        if kv.name in _PLAIN_BYTES or not self.index:
            return _PLAIN_BYTES.get(kv.name, 0) * self.index
        return self.index + self._scales(kv, self.index, 4)

    def _scales(self, kv: KvFormat, dimensions: int, scale_bytes: int) -> float:
        if kv.payload_bits != 8:
            raise ValueError(
                f"KV dtype {kv.name} quantises by channel and token of a head; latent attention (MLA) has no heads in its cache:"
                " use one of fp32, bf16, fp16, fp8_e4m3, int8, mxfp8"
            )
        return -(-dimensions // 32) if kv.name == "mxfp8" else scale_bytes


@dataclass(frozen=True)
class StateKv:
    """Layers that keep one state for a session, however long it is: a recurrence (linear attention, state space) and the last columns of
    a short convolution.

    Elements of a layer: `recurrent`, and `conv_rows` x `conv_columns`, one less than the kernel: the column under way is computed. They
    are 16-bit whatever the KV dtype is, 32-bit with fp32; with `wide_state` the recurrence is 32-bit always.
    """

    layers: int
    conv_rows: int
    conv_columns: int
    recurrent: int
    wide_state: bool = False

    def session_bytes(
        self, tokens: int, kv: KvFormat, *, residual_tokens: int, whole_pages: bool, page_tokens: int = PAGE_TOKENS
    ) -> float:
        """Bytes of one session, the same at every length."""
        plain = 4 if kv.name == "fp32" else 2
        wide = 4 if self.wide_state else plain
        return self.layers * (self.conv_rows * self.conv_columns * plain + self.recurrent * wide)

    def times(self, count: int) -> "StateKv":
        """So many of them."""
        return replace(self, layers=self.layers * count)

    def on_rank(self, ranks: int) -> "StateKv":
        """An equal share.

        Raises:
            SplitError: the state does not divide.
        """
        if self.conv_rows % ranks or self.recurrent % ranks:
            raise SplitError(
                f"a state of {self.recurrent} elements and {self.conv_rows} convolution rows does not divide by {ranks}"
                " tensor-parallel ranks"
            )
        return replace(self, conv_rows=self.conv_rows // ranks, recurrent=self.recurrent // ranks)
