"""What the steps of an engine read and compute, reckoned from formats, rows and contexts: what a wall is judged by and an effect predicted
from. No clock, no arrays.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from kvroll_core.budget import HeadKv, KvGroup, ModelShape, head_bytes
from kvroll_core.precision.formats import find_kv_format
from kvroll_core.precision.precision import Precision

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

    Bytes: every matrix once, the head once if any row's logits are wanted, and the KV of each session's context once: the rows of
    a prefill find it in the cache, as the kernels walk them together. Left out: activations, the rows of the embedding, what is written.
    Operations: two an element that a row is multiplied with (vLLM's `v1/metrics/perf.py` counts so), and 4 x heads x head_dim for each
    token that a row attends to, in each layer.
    """

    def __init__(self, shape: ModelShape, precision: Precision) -> None:
        self._shape, self._precision = shape, precision
        self._head_elements = shape.vocab * shape.hidden
        self._row_flops = shape.token_flops - 2 * self._head_elements
        self._groups = shape.kv_groups

    @cached_property
    def head_bytes(self) -> int:
        """Bytes of the head, read once by a step that samples."""
        return head_bytes(self._shape, self._precision.weights, self._precision.head)

    def matrix_bytes(self, rows: float) -> float:
        """Bytes of matrices that a step of so many rows reads: the experts that they are routed to, everything else once."""
        return self._shape.read_elements(rows) * self._precision.element_bytes

    def context_bytes(self, tokens: int) -> Mapping[str, float]:
        """KV bytes of a session of that context, by the KV format that they are in."""
        residual = self._precision.residual_tokens
        found: dict[str, float] = {}
        for name, group in self._cached:
            kv = find_kv_format(name)
            held = group.session_bytes(tokens, kv, residual_tokens=residual, whole_pages=False)
            found[name] = found.get(name, 0.0) + held
        return found

    def row_flops(self, context: float, *, attention_cost: float = 1.0) -> float:
        """Operations of one row that looks back on `context` tokens, the head left out; those of attention count `attention_cost` times."""
        return self._row_flops + attention_cost * self._attention_flops(round(context), 1)

    def step(self, spans: Iterable[Span]) -> Work:
        """One step over these rows; no rows are no step."""
        rows = samples = 0
        kv_bytes = flops = 0.0
        for start, length, is_sampled in spans:
            rows, samples = rows + length, samples + is_sampled
            kv_bytes += sum(self.context_bytes(start + length).values())
            flops += self._attention_flops(start, length)
        if not rows:
            return Work()
        read = self.matrix_bytes(rows) + kv_bytes + (self.head_bytes if samples else 0)
        return Work(1, read, flops + rows * self._row_flops + 2 * samples * self._head_elements)

    @cached_property
    def _cached(self) -> tuple[tuple[str, KvGroup], ...]:
        return self._shape.kept(self._precision.kv_form)

    def _attention_flops(self, start: int, length: int) -> float:
        total = 0
        for group in self._groups:
            most = group.kept_tokens(start + length) if isinstance(group, HeadKv) else start + length
            total += group.layers * _attended(start, length, most)
        return 4.0 * self._shape.heads * self._shape.head_dim * total


def _attended(start: int, length: int, most: int) -> int:
    """The sum of min(n, most) over n = start + 1 .. start + length."""
    below = min(max(most - start, 0), length)  # rows whose whole context counts
    return below * start + below * (below + 1) // 2 + (length - below) * most


class WorkCounter:
    """Adds steps up."""

    def __init__(self, model: WorkModel) -> None:
        self._model = model
        self.done = Work()

    def figures(self) -> dict[str, Any]:
        """The sums by their names in an engine's stats."""
        return {
            "steps_total": self.done.steps,
            "read_bytes_total": self.done.read_bytes,
            "flops_total": self.done.flops,
        }

    def count(self, spans: Iterable[Span]) -> None:
        """One more step."""
        self.done = self.done.plus(self._model.step(spans))
