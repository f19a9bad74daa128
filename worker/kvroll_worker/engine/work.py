"""What the steps of an engine read and compute, reckoned from formats, rows and contexts: what a wall is judged by. No clock, no arrays."""

from collections.abc import Iterable
from dataclasses import dataclass, replace

from kvroll_core.budget import WEIGHT_BLOCK, HeadKv, ModelShape, head_bytes
from kvroll_core.formats import HEAD_SAME, find_kv_format, find_weight_format
from kvroll_core.kv_form import KvForm
from kvroll_core.sealing import DEFAULT_RESIDUAL_TOKENS

Span = tuple[int, int, bool]
"""Consecutive rows of one session: the position of the first, how many, and whether the last one's logits are computed."""


@dataclass(frozen=True)
class Work:
    """A sum over steps: bytes read from memory and floating-point operations."""

    steps: int = 0
    read_bytes: float = 0.0
    flops: float = 0.0

    def plus(self, other: "Work") -> "Work":
        """Field by field the sum."""
        return Work(self.steps + other.steps, self.read_bytes + other.read_bytes, self.flops + other.flops)


class WorkModel:
    """What a step of a model at a precision does.

    `kv_cache` is a dtype word, or a form with layers that are skipped.
    Bytes: every matrix once, the head once if any row's logits are wanted, and the KV of each session's context once: the rows of
    a prefill find it in the cache, as the kernels walk them together. Left out: activations, the rows of the embedding, what is written.
    Operations: two an element that a row is multiplied with (vLLM's `v1/metrics/perf.py` counts so), and 4 x heads x head_dim for each
    token that a row attends to, in each layer.
    """

    def __init__(
        self,
        shape: ModelShape,
        weights: str,
        kv_cache: str,
        *,
        block: int = WEIGHT_BLOCK,
        head: str = HEAD_SAME,
        residual_tokens: int = DEFAULT_RESIDUAL_TOKENS,
    ) -> None:
        self._shape, self._residual, form = shape, residual_tokens, KvForm.parse(kv_cache)
        self._element_bytes = find_weight_format(weights).element_bytes(block)
        self._head_elements = shape.vocab * shape.hidden
        self._head_bytes = head_bytes(shape, weights, head)
        self._row_flops = shape.token_flops - 2 * self._head_elements
        self._groups = shape.kv_groups
        parts = form.parts(shape.layers)
        self._cached = [(g, find_kv_format(name)) for name, layers in parts for g in _only(shape, layers).kv_groups]

    def step(self, spans: Iterable[Span]) -> Work:
        """One step over these rows; no rows are no step."""
        rows = samples = 0
        kv_bytes = flops = 0.0
        for start, length, is_sampled in spans:
            rows, samples = rows + length, samples + is_sampled
            kv_bytes += self._context_bytes(start + length)
            flops += self._attention_flops(start, length)
        if not rows:
            return Work()
        read = self._shape.read_elements(rows) * self._element_bytes + kv_bytes
        read += self._head_bytes if samples else 0
        return Work(1, read, flops + rows * self._row_flops + 2 * samples * self._head_elements)

    def _context_bytes(self, tokens: int) -> float:
        residual = self._residual
        return sum(g.session_bytes(tokens, kv, residual_tokens=residual, whole_pages=False) for g, kv in self._cached)

    def _attention_flops(self, start: int, length: int) -> float:
        total = 0
        for group in self._groups:
            most = group.kept_tokens(start + length) if isinstance(group, HeadKv) else start + length
            total += group.layers * _attended(start, length, most)
        return 4.0 * self._shape.heads * self._shape.head_dim * total


def _only(shape: ModelShape, layers: tuple[int, ...]) -> ModelShape:
    """The shape with those layers alone, as far as their KV goes."""
    return replace(shape, layers=len(layers), windows=tuple(shape.windows[n] for n in layers) if shape.windows else ())


def _attended(start: int, length: int, most: int) -> int:
    """The sum of min(n, most) over n = start + 1 .. start + length."""
    below = min(max(most - start, 0), length)  # rows whose whole context counts
    return below * start + below * (below + 1) // 2 + (length - below) * most


class WorkCounter:
    """Adds steps up."""

    def __init__(self, model: WorkModel) -> None:
        self._model = model
        self.done = Work()

    def count(self, spans: Iterable[Span]) -> None:
        """One more step."""
        self.done = self.done.plus(self._model.step(spans))
