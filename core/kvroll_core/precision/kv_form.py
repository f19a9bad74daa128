"""The KV cache of a model's layers: one format, and layers that stay 16-bit in spite of it (`precision.skipLayers`).

First and last layers lose most to a coarse cache; vLLM's `--kv-cache-dtype-skip-layers` keeps chosen ones likewise.
"""

from collections.abc import Iterable
from dataclasses import dataclass

from kvroll_core.precision.formats import FormatNotBuiltError, find_kv_format, kv_format

SKIPPED_FORMAT = "bf16"
"""Of the layers that are left out."""
_SEALED_BITS = 4  # formats of so few bits seal whole pages of all layers


class SkipLayersError(ValueError):
    """Layers that cannot be left out."""


@dataclass(frozen=True)
class KvForm:
    """A KV format with the sorted indices of the layers that are kept in bf16; build it with `of` or `parse`.

    A page of all layers is one block: first the layers of the format, then the skipped ones, each part as a page of its own.
    """

    kv_format: str
    skip_layers: tuple[int, ...] = ()

    @classmethod
    def of(cls, name: str, skip_layers: Iterable[int] = ()) -> "KvForm":
        """In the one way of saying it: sorted, each once, and none where the format is what they would be kept in.

        Raises:
            UnknownFormatError: not one of kvroll's words.
            FormatNotBuiltError: kivi, whose pages are sealed as a whole.
            SkipLayersError: a negative index.
        """
        kv, layers = find_kv_format(name), tuple(sorted(set(skip_layers)))
        if layers and layers[0] < 0:
            raise SkipLayersError(f"layers to skip are counted from 0, found {layers[0]}")
        if layers and kv.payload_bits <= _SEALED_BITS:
            raise FormatNotBuiltError(
                f"KV cache dtype {name} with layers to skip ({_listed(layers)}) is not built in this version: leave them out"
            )
        return cls(name, () if name == SKIPPED_FORMAT else layers)

    @classmethod
    def parse(cls, word: str) -> "KvForm":
        """What `str` wrote.

        Raises:
            UnknownFormatError, FormatNotBuiltError, SkipLayersError: as `of`; or a list that is none of indices.
        """
        name, _, kept = word.partition("/")
        return cls.of(name, parse_layers(kept.partition(":")[2]))

    def __str__(self) -> str:
        return f"{self.kv_format}/{SKIPPED_FORMAT}:{self.skipped}" if self.skip_layers else self.kv_format

    @property
    def skipped(self) -> str:
        """The layers with commas between them."""
        return _listed(self.skip_layers)

    def parts(self, layers: int) -> tuple[tuple[str, tuple[int, ...]], ...]:
        """The formats of a page in their order, each with its layers.

        Raises:
            SkipLayersError: a layer that the model has not.
        """
        if self.skip_layers and self.skip_layers[-1] >= layers:
            raise SkipLayersError(f"expected layers to skip from 0 to {layers - 1}, found {self.skip_layers[-1]}")
        kept = tuple(layer for layer in range(layers) if layer not in self.skip_layers)
        both = ((self.kv_format, kept), (SKIPPED_FORMAT, self.skip_layers))
        return tuple(part for part in both if part[1])

    def page_bytes(self, *, layers: int, kv_heads: int, head_dim: int) -> int:
        """Bytes of a page of all layers, each part aligned."""
        sizes = {"kv_heads": kv_heads, "head_dim": head_dim}
        return sum(kv_format(name).page_bytes(layers=len(part), **sizes) for name, part in self.parts(layers))

    def token_bytes(self, *, layers: int, kv_heads: int, head_dim: int) -> float:
        """Bytes of one cached token of all layers."""
        sizes = {"kv_heads": kv_heads, "head_dim": head_dim}
        return sum(find_kv_format(name).token_bytes(layers=len(part), **sizes) for name, part in self.parts(layers))

    def changes(self, target: "KvForm") -> set[tuple[str, str]]:
        """What a change to `target` may do to a layer, as (format, format); some layer is taken to be skipped by neither."""
        found = {(self.kv_format, target.kv_format)}
        for layer in {*self.skip_layers, *target.skip_layers}:
            here, there = (SKIPPED_FORMAT if layer in f.skip_layers else f.kv_format for f in (self, target))
            found.add((here, there))
        return found


def parse_layers(text: str) -> tuple[int, ...]:
    """`0,1,29` as indices; nothing as none.

    Raises:
        SkipLayersError: something that is no list of indices.
    """
    try:
        return tuple(int(part) for part in text.split(",")) if text.strip() else ()
    except ValueError as error:
        raise SkipLayersError(f"expected layers like 0,1,29, found {text!r}") from error


def _listed(layers: Iterable[int]) -> str:
    return ",".join(map(str, layers))
