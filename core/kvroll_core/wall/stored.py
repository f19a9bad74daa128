"""What an engine that is not ours stores its KV cache and its weights in: its own words, by the bits that they take."""

from dataclasses import dataclass

from kvroll_core.precision.formats import KV_FORMATS, WEIGHT_FORMATS
from kvroll_core.wall.engine import Engine

_SIXTEEN = ("bf16", "fp16")
_PLAIN = {"bfloat16": "bf16", "float16": "fp16", "half": "fp16", "f16": "fp16", "float32": "fp32", "f32": "fp32"}


class DtypeError(ValueError):
    """A dtype word that the engine does not have; the message names those that it has."""


@dataclass(frozen=True)
class Stored:
    """Bits of an element with its share of the scales, where the engine's dtype is none of our table's; None where it is.

    `kv` and `weights` are the words of the engine.
    """

    kv: str = ""
    kv_bits: float | None = None
    weights: str = ""
    weights_bits: float | None = None

    @classmethod
    def of(cls, engine: Engine, weights: str, kv_cache: str) -> "Stored":
        """That of an engine by its own words, and of a worker of ours nothing: our table has them.

        Raises:
            DtypeError: the engine has no such dtype.
        """
        if engine.is_ours:
            return cls()
        kv_word, kv_bits = _found(engine, "kvCache", kv_cache, KV_FORMATS)
        weights_word, weights_bits = _found(engine, "weights", weights, WEIGHT_FORMATS)
        return cls(kv_word, kv_bits, weights_word, weights_bits)

    @property
    def plain_kv(self) -> str:
        """The dtype of our table that stands for it: its own, or 16 bits that are scaled."""
        return self.kv if self.kv_bits is None else "bf16"

    @property
    def plain_weights(self) -> str:
        """The same of the weights."""
        return self.weights if self.weights_bits is None else "bf16"

    @property
    def kv_share(self) -> float:
        """Bytes of the cache over those at 16 bits; 1 where our table has it."""
        return 1.0 if self.kv_bits is None else self.kv_bits / 16

    @property
    def weights_share(self) -> float:
        """Bytes of the matrices over those at 16 bits; 1 where our table has it."""
        return 1.0 if self.weights_bits is None else self.weights_bits / 16


def _found(engine: Engine, lever: str, word: str, table: object) -> tuple[str, float | None]:
    if switch := engine.switch(lever, word):
        return switch.to, switch.bits
    plain = _PLAIN.get(word.lower(), word)
    if plain in (*_SIXTEEN, "fp32"):
        return plain, None
    words = [*_SIXTEEN, *(s.to for s in engine.switches if s.lever == lever)]
    raise DtypeError(f"expected a dtype of {engine.title} ({lever}): {', '.join(words)}; found {word!r}")
