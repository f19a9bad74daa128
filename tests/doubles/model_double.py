"""What the engine double computes: its tokenizer, descriptor, KV bytes and next token, as functions."""

from dataclasses import dataclass, field, replace

import xxhash

from kvroll_core.compat import Descriptor
from kvroll_worker.request import EnginePhase, SessionState

SLOT_BYTES = {"bf16": 64, "int8": 32}


@dataclass(eq=False)
class StoredPage:
    data: bytearray
    refs: int = 1
    content_hash: bytes | None = None


@dataclass(eq=False)
class StoredSession:
    state: SessionState
    phase: EnginePhase
    pages: list[StoredPage | None] = field(default_factory=list)
    num_kv: int = 0
    held: bool = False
    frozen: bool = False
    reservation: bool = False

    @property
    def ids(self) -> list[int]:
        return self.state.prompt_token_ids + self.state.output_token_ids


class DoubleTokenizer:
    """One token a byte."""

    vocab_size = 256

    def encode(self, text: str) -> list[int]:
        return list(text.encode())

    def render_chat(self, messages: list[dict[str, str]]) -> list[int]:
        return self.encode("".join(f"<{m['role']}>{m['content']}" for m in messages))


def descriptor_of(weights: str, kv_cache: str, weights_id: str = "w0", max_model_len: int = 4096) -> Descriptor:
    numerics = ("double", "build", "cpu", "", "", "", "isa")
    texts = ("base", "config", "tokenizer", "template")
    return Descriptor(1, weights_id, weights, *texts, kv_cache, "double-v1", "", "tp1", *numerics, max_model_len)


def kv_slot(prefix: list[int], weights: str, kv_cache: str, scale: int = 1) -> bytes:
    """KV of one position: depends on the whole prefix and the weights; int8 keeps half of what bf16 has."""
    seed = xxhash.xxh3_128_digest(weights.encode() + bytes(prefix))
    return (seed * (4 * scale))[: SLOT_BYTES[kv_cache] * scale]


def transcode(page: bytes, source: str, target: str, scale: int = 1) -> bytes:
    """bf16 to int8: the first half of every slot."""
    if source == target:
        return page
    assert (source, target) == ("bf16", "int8")
    size = SLOT_BYTES["bf16"] * scale
    return b"".join(page[at : at + size // 2] for at in range(0, len(page), size))


def next_token(state: SessionState, stored_kv: bytes, weights: str) -> int:
    ids = bytes(state.prompt_token_ids + state.output_token_ids)
    return 1 + xxhash.xxh3_64_intdigest(stored_kv + ids + weights.encode(), state.sampling.seed & 0xFFFF) % 255


def output_digest(token_ids: list[int]) -> str:
    return xxhash.xxh3_128_hexdigest(b"".join(t.to_bytes(4, "little") for t in token_ids))


def copy_of(state: SessionState) -> SessionState:
    return replace(
        state,
        prompt_token_ids=list(state.prompt_token_ids),
        output_token_ids=list(state.output_token_ids),
        precision_epochs=list(state.precision_epochs),
    )
