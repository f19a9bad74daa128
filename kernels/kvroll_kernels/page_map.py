"""Pages whose layers differ in format: where each layer lies, and how a page of one form becomes one of another."""

from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

from kvroll_core.precision.formats import PAGE_TOKENS
from kvroll_core.precision.kv_form import KvForm
from kvroll_core.precision.sealing import SEALED_FORMATS
from kvroll_kernels.arrays import UINT8, Array, zeros
from kvroll_kernels.ops import Ops
from kvroll_kernels.page_layout import PageLayout


class Part(NamedTuple):
    """Layers of one format in a page: their layout, which they are, and the byte at which they begin."""

    layout: PageLayout
    layers: tuple[int, ...]
    offset: int

    def of(self, page: Array) -> Array:
        """A view of this part's bytes of a page."""
        return page[self.offset : self.offset + self.layout.page_bytes]


@dataclass(frozen=True)
class PageMap:
    """A page of all layers in one block: the parts of its form one after the other, each laid out like a page of its layers alone.

    Raises:
        kvroll_core.precision.kv_form.SkipLayersError: the form skips a layer that there is not.
    """

    form: KvForm
    layers: int
    kv_heads: int
    head_dim: int

    def __post_init__(self) -> None:
        self.form.parts(self.layers)

    @cached_property
    def parts(self) -> tuple[Part, ...]:
        """In their order in the page."""
        found: list[Part] = []
        offset = 0
        for name, layers in self.form.parts(self.layers):
            layout = PageLayout(name, len(layers), self.kv_heads, self.head_dim)
            found.append(Part(layout, layers, offset))
            offset += layout.page_bytes
        return tuple(found)

    @property
    def is_sealed(self) -> bool:
        """Whether it is a page of a sealed format, which has no other parts."""
        return self.form.kv_format in SEALED_FORMATS

    @property
    def page_bytes(self) -> int:
        """Bytes of a page, each part with its alignment."""
        return sum(part.layout.page_bytes for part in self.parts)

    @cached_property
    def places(self) -> tuple[tuple[int, int], ...]:
        """For each layer the index of its part, and its own index in that part."""
        found = {layer: (p, at) for p, part in enumerate(self.parts) for at, layer in enumerate(part.layers)}
        return tuple(found[layer] for layer in range(self.layers))


def page_in_form(ops: Ops, page: Array, source: PageMap, target: PageMap, valid_tokens: int) -> Array:
    """A page's bytes (uint8) in the target's form, its slots from `valid_tokens` on as zeros.

    A layer that both keep in one format is copied; others come out as `Ops.transcode` writes them.
    """
    sizes = (source.layers, source.kv_heads, source.head_dim)
    if source.is_sealed:  # its scales are of whole layers and pages: by way of what it holds, in fp32
        plain = PageMap(KvForm("fp32"), *sizes)
        return page_in_form(
            ops, ops.transcode(page, source.form.kv_format, "fp32", *sizes), plain, target, valid_tokens
        )
    if target.is_sealed:
        if valid_tokens < PAGE_TOKENS:
            raise ValueError(f"{target.form} seals whole pages of {PAGE_TOKENS} tokens, found one with {valid_tokens}")
        plain = PageMap(KvForm("fp32"), *sizes)
        whole = page_in_form(ops, page, source, plain, valid_tokens)
        return ops.transcode(whole, "fp32", target.form.kv_format, *sizes)
    result = zeros((target.page_bytes,), UINT8)
    layers_of = {part.layers: part for part in source.parts}
    for part in target.parts:
        same = layers_of.get(part.layers)
        if same is not None:
            part.of(result)[:] = _transcoded(ops, same.of(page), same.layout, part.layout)
        else:
            for index, layer in enumerate(part.layers):
                at, place = source.places[layer]
                _copy_layer(ops, source.parts[at], page, place, part, result, index)
        _clear(part, result, valid_tokens)
    return result


def _transcoded(ops: Ops, page: Array, source: PageLayout, target: PageLayout) -> Array:
    sizes = (source.layers, source.kv_heads, source.head_dim)
    return ops.transcode(page, source.kv_format, target.kv_format, *sizes)


def _copy_layer(ops: Ops, source: Part, page: Array, place: int, target: Part, result: Array, index: int) -> None:
    """One layer by way of a page that has it alone."""
    one, other = (PageLayout(p.layout.kv_format, 1, p.layout.kv_heads, p.layout.head_dim) for p in (source, target))
    alone = zeros((one.page_bytes,), UINT8)
    one.payload(alone)[0] = source.layout.payload(source.of(page))[place]
    if one.has_scales:
        one.scales(alone)[0] = source.layout.scales(source.of(page))[place]
    changed = _transcoded(ops, alone, one, other)
    target.layout.payload(target.of(result))[index] = other.payload(changed)[0]
    if other.has_scales:
        target.layout.scales(target.of(result))[index] = other.scales(changed)[0]


def _clear(part: Part, page: Array, valid_tokens: int) -> None:
    if valid_tokens < PAGE_TOKENS:
        part.layout.payload(part.of(page))[:, :, :, valid_tokens:] = 0
        if part.layout.has_scales:
            part.layout.scales(part.of(page))[:, :, :, valid_tokens:] = 0
