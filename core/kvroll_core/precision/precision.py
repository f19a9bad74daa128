"""A precision: everything that a rollout of precision changes, as one value."""

from dataclasses import dataclass, replace

from kvroll_core.precision.formats import (
    HEAD_SAME,
    WEIGHT_BLOCK,
    chosen_block,
    find_weight_format,
    head_dtype,
    kv_format,
    weight_format,
)
from kvroll_core.precision.kv_form import SKIPPED_FORMAT, KvForm
from kvroll_core.precision.sealing import DEFAULT_RESIDUAL_TOKENS, SEALED_FORMATS, Sealing, check_residual


@dataclass(frozen=True, eq=False)
class Precision:
    """How weights and KV are stored. Words may be unknown to this version until something is asked of them; `check` asks everything.

    `weights` and `kv_cache` are dtype words; `weight_block` inputs share a scale where the weight dtype lets it be chosen; `head` is a word
    of `HEADS`; the layers of `skip_layers` keep 16-bit KV; the newest `residual_tokens` stay 16-bit in the sealed formats. Two are equal
    where no byte differs: a block size that the dtype has not, or a residual that nothing is sealed by, makes no difference.
    """

    weights: str = "bf16"
    kv_cache: str = "bf16"
    weight_block: int = WEIGHT_BLOCK
    head: str = HEAD_SAME
    skip_layers: tuple[int, ...] = ()
    residual_tokens: int = DEFAULT_RESIDUAL_TOKENS

    @classmethod
    def of(cls, weights: str, kv_form: KvForm) -> "Precision":
        """Of these weights and that KV, the rest as by default."""
        return cls(weights, kv_form.kv_format, skip_layers=kv_form.skip_layers)

    def check(self) -> "Precision":
        """Itself.

        Raises:
            UnknownFormatError: a dtype word, block size or head that is none.
            FormatNotBuiltError: a dtype, or skipped layers beside it, that this version cannot run.
            SkipLayersError: a negative index of a layer.
            ResidualError: a residual that is no positive multiple of a page.
        """
        weight_format(self.weights)
        chosen_block(self.weights, self.weight_block)
        head_dtype(self.weights, self.head)
        kv_format(self.kv_cache)
        check_residual(self.residual_tokens)
        KvForm.of(self.kv_cache, self.skip_layers)
        return self

    def at(self, *, weights: str | None = None, kv_cache: str | None = None) -> "Precision":
        """Another dtype of weights or KV with all else as it is."""
        return replace(self, weights=weights or self.weights, kv_cache=kv_cache or self.kv_cache)

    @property
    def kv_form(self) -> KvForm:
        """The KV cache of all layers.

        Raises:
            ValueError: as `KvForm.of`.
        """
        return KvForm.of(self.kv_cache, self.skip_layers)

    @property
    def sealing(self) -> Sealing:
        """When its pages are sealed."""
        return Sealing(str(self.kv_form), self.residual_tokens)

    @property
    def block(self) -> int:
        """The block size that counts; 0 where the weight dtype has none to choose.

        Raises:
            UnknownFormatError: as `chosen_block`.
        """
        return chosen_block(self.weights, self.weight_block)

    @property
    def head_dtype(self) -> str:
        """The dtype word of the output head.

        Raises:
            UnknownFormatError: not a head.
        """
        return head_dtype(self.weights, self.head)

    @property
    def element_bytes(self) -> float:
        """Bytes of an element of a matrix, its share of the scales included.

        Raises:
            UnknownFormatError: not a weight dtype.
        """
        return find_weight_format(self.weights).element_bytes(self.weight_block)

    @property
    def _meaning(self) -> tuple[str, str, int, str, tuple[int, ...], int]:
        try:
            block = self.block
        except ValueError:  # a word of another version: it means what it says
            block = self.weight_block
        skipped = () if self.kv_cache == SKIPPED_FORMAT else tuple(sorted(set(self.skip_layers)))
        residual = self.residual_tokens if self.kv_cache in SEALED_FORMATS else 0
        return self.weights, self.kv_cache, block, self.head, skipped, residual

    def __eq__(self, other: object) -> bool:
        return self._meaning == other._meaning if isinstance(other, Precision) else NotImplemented

    def __hash__(self) -> int:
        return hash(self._meaning)

    def __str__(self) -> str:
        """`int4:32/int8/bf16:0,29`: weights with what is special about them, then the form of the KV."""
        _, kv_cache, block, head, skipped, residual = self._meaning
        weights = self.weights + (f":{block}" if block else "") + (f"+head:{head}" if head != HEAD_SAME else "")
        kv = kv_cache + (f":{residual}" if residual else "")
        return f"{weights}/{kv}" + (f"/{SKIPPED_FORMAT}:{','.join(map(str, skipped))}" if skipped else "")
