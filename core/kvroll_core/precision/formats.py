"""The one table of dtypes: bytes and layout of every weight and KV format; everything that needs a size reads it here."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeVar

PAGE_TOKENS = 32
"""Tokens of one KV page: the unit of allocation, sharing, hashing and transfer."""
PAGE_ALIGN_BYTES = 64
LAYOUT_VERSION = 1
WEIGHT_BLOCK = 64
"""Inputs that share a scale of int4, unless `precision.weightBlockSize` says otherwise."""
HEAD_SAME, HEAD_INT8 = "Same", "int8"
HEADS = (HEAD_SAME, HEAD_INT8)
"""What the output head is stored in: what the weight dtype leaves it in, or int8 with a scale a token of the vocabulary."""


class FormatNotBuiltError(ValueError):
    """The dtype word is known, but this version of kvroll has no engine for it yet."""


class UnknownFormatError(ValueError):
    """The dtype word, block size or head is not one of kvroll's."""


@dataclass(frozen=True)
class KvFormat:
    """A KV-cache dtype. `head_token_bytes(d)` is the bytes of K and V together for one token, layer and KV head of dimension d.

    Of kivi4 and kivi2 these are the sealed pages; see `kvroll_core.precision.sealing` for the open ones.
    """

    name: str
    payload_bits: int
    scale_bytes: int
    head_token_bytes: Callable[[int], float]
    built: bool

    def page_bytes(self, *, layers: int, kv_heads: int, head_dim: int) -> int:
        """Bytes of a page of all layers, rounded up to the alignment: `[layer][K|V][kv_head][token][payload]`, then the scales."""
        raw = int(self.head_token_bytes(head_dim) * PAGE_TOKENS) * layers * kv_heads
        return -(-raw // PAGE_ALIGN_BYTES) * PAGE_ALIGN_BYTES

    def token_bytes(self, *, layers: int, kv_heads: int, head_dim: int) -> float:
        """Bytes of one cached token of all layers."""
        return self.head_token_bytes(head_dim) * layers * kv_heads


@dataclass(frozen=True)
class WeightFormat:
    """A weight dtype. `element_bytes(block)` is the mean bytes of a quantised matrix element at that block size.

    `block_sizes` are those that a user may choose from; empty where the dtype has no block, or one of its own.
    """

    name: str
    element_bytes: Callable[[int], float]
    built: bool
    block_sizes: tuple[int, ...] = ()


_F = TypeVar("_F", KvFormat, WeightFormat)

_KV = [
    KvFormat("fp32", 32, 0, lambda d: 8.0 * d, True),
    KvFormat("bf16", 16, 0, lambda d: 4.0 * d, True),
    KvFormat("fp16", 16, 0, lambda d: 4.0 * d, True),
    KvFormat("fp8_e4m3", 8, 4, lambda d: 2.0 * d + 8, True),
    KvFormat("int8", 8, 4, lambda d: 2.0 * d + 8, True),
    KvFormat("mxfp8", 8, 1, lambda d: 2.0 * d + 2 * -(-d // 32), True),
    KvFormat("kivi4", 4, 4, lambda d: 1.125 * d + 4 * -(-d // 32), True),
    KvFormat("kivi2", 2, 4, lambda d: 0.625 * d + 4 * -(-d // 32), True),
]
_WEIGHTS = [
    WeightFormat("fp32", lambda block: 4.0, True),
    WeightFormat("bf16", lambda block: 2.0, True),
    WeightFormat("fp16", lambda block: 2.0, True),
    WeightFormat("fp8_e4m3", lambda block: 1.0, True),
    WeightFormat("int8", lambda block: 1.0, True),
    WeightFormat("int4", lambda block: 0.5 + 4 / block, True, (32, 64, 128)),
    WeightFormat("mxfp4", lambda block: 0.5 + 1 / 32, True),
]
KV_FORMATS: dict[str, KvFormat] = {f.name: f for f in _KV}
WEIGHT_FORMATS: dict[str, WeightFormat] = {f.name: f for f in _WEIGHTS}


def kv_format(name: str) -> KvFormat:
    """The KV format of that dtype word, if this version can run it.

    Raises:
        UnknownFormatError: not one of kvroll's words.
        FormatNotBuiltError: known, not built yet.
    """
    return _built(name, KV_FORMATS, "KV cache")


def weight_format(name: str) -> WeightFormat:
    """The weight format of that dtype word, if this version can run it.

    Raises:
        UnknownFormatError: not one of kvroll's words.
        FormatNotBuiltError: known, not built yet.
    """
    return _built(name, WEIGHT_FORMATS, "weights")


def find_kv_format(name: str) -> KvFormat:
    """The KV format of that dtype word, whether or not this version can run it: to reckon with.

    Raises:
        UnknownFormatError: not one of kvroll's words.
    """
    return _known(name, KV_FORMATS, "KV cache")


def find_weight_format(name: str) -> WeightFormat:
    """The weight format of that dtype word, whether or not this version can run it: to reckon with.

    Raises:
        UnknownFormatError: not one of kvroll's words.
    """
    return _known(name, WEIGHT_FORMATS, "weights")


def chosen_block(weights: str, block: int) -> int:
    """The block size that counts: `block` where the dtype lets it be chosen, else 0.

    Raises:
        UnknownFormatError: not a dtype word, or a size that the dtype does not have.
    """
    sizes = find_weight_format(weights).block_sizes
    if sizes and block not in sizes:
        raise UnknownFormatError(f"weight block size {block} is unknown to {weights}; use one of {sizes}")
    return block if sizes else 0


def head_dtype(weights: str, head: str) -> str:
    """The dtype word of the output head beside such weights: int8 where it is chosen, else fp32 with fp32 and bf16 with all others.

    Raises:
        UnknownFormatError: not one of `HEADS`.
    """
    if head not in HEADS:
        raise UnknownFormatError(f"head {head!r} is unknown; use one of {', '.join(HEADS)}")
    if head == HEAD_INT8:
        return "int8"
    return "fp32" if weights == "fp32" else "bf16"


def _known(name: str, table: dict[str, _F], what: str) -> _F:
    if name not in table:
        raise UnknownFormatError(f"{what} dtype {name!r} is unknown; use one of {', '.join(table)}")
    return table[name]


def _built(name: str, table: dict[str, _F], what: str) -> _F:
    can = ", ".join(n for n, f in table.items() if f.built)
    if name not in table:
        raise UnknownFormatError(f"{what} dtype {name!r} is unknown; use one of {can}")
    if not table[name].built:
        raise FormatNotBuiltError(f"{what} dtype {name} is not built in this version; use one of {can}")
    return table[name]
