"""A worker at work: a model at a precision, the batch that it steps, and the bytes that this costs."""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from kvroll_core.budget import ModelShape, weights_bytes
from kvroll_core.precision.formats import KV_FORMATS
from kvroll_core.precision.precision import Precision
from kvroll_core.wall.engine import Switch
from kvroll_core.wall.stored import Stored
from kvroll_core.work import WorkModel


@dataclass(frozen=True)
class Load:
    """`sessions` in a batch of `tokens` context each, a KV pool of `pool_bytes`, one of `replicas`.

    `step_seconds` is the measured mean decode step, `kernel_share` the part of it that kernels take; None where they
    are not known. `stored` scales the bytes of a dtype that our table does not have.
    """

    shape: ModelShape
    precision: Precision
    sessions: float
    tokens: float
    pool_bytes: float
    step_seconds: float | None = None
    replicas: int = 1
    kernel_share: float | None = None
    stored: Stored = field(default_factory=Stored)

    @property
    def matrix_read_bytes(self) -> float:
        """Bytes of matrices that a step reads."""
        return self._model.matrix_bytes(self.sessions) * self.stored.weights_share

    @property
    def head_read_bytes(self) -> float:
        """Bytes of the head, which a decode step reads once."""
        return self._model.head_bytes

    @property
    def session_bytes_by_format(self) -> Mapping[str, float]:
        """KV bytes of a session of the mean length, by the format that they are in."""
        found = self._model.context_bytes(max(1, round(self.tokens)))
        return {name: size * self.stored.kv_share for name, size in found.items()}

    @property
    def session_bytes(self) -> float:
        """KV bytes of a session of the mean length.

        Raises:
            ValueError: the model's cache cannot be kept in that format.
        """
        return sum(self.session_bytes_by_format.values())

    @property
    def kv_read_bytes(self) -> float:
        """KV bytes that a decode step reads."""
        return self.sessions * self.session_bytes

    @property
    def weights_read_bytes(self) -> float:
        """Bytes of weights that a decode step reads: what it reads at least."""
        return self.matrix_read_bytes + self.head_read_bytes

    @property
    def read_bytes(self) -> float:
        """Bytes that a decode step reads."""
        return self.matrix_read_bytes + self.head_read_bytes + self.kv_read_bytes

    @property
    def sessions_that_fit(self) -> float:
        """Sessions of the mean length that the pool holds."""
        return self.pool_bytes / self.session_bytes

    def at(self, precision: Precision) -> "Load":
        """The same batch at another precision; memory that smaller weights free goes to the pool."""
        freed = self._weights_bytes(self.precision) - self._weights_bytes(precision)
        return replace(self, precision=precision, pool_bytes=self.pool_bytes + freed)

    def switched(self, switch: Switch) -> "Load":
        """The same batch where the engine stores its cache or its weights in what the switch says; memory that smaller weights free goes
        to the pool.
        """
        if switch.lever == "kvCache":
            return replace(self, stored=replace(self.stored, kv=switch.to, kv_bits=switch.bits))
        stored = replace(self.stored, weights=switch.to, weights_bits=switch.bits)
        matrices = self.shape.matrix_elements
        freed = matrices * (self.weights_bits - switch.bits) / 8
        precision = self.precision.at(weights="bf16")
        return replace(self, stored=stored, precision=precision, pool_bytes=self.pool_bytes + freed)

    @property
    def weights_bits(self) -> float:
        """Bits of an element of a matrix, its share of the scales included."""
        return 8 * self.precision.element_bytes * self.stored.weights_share

    @property
    def kv_bits(self) -> float:
        """Bits of an element of the cache."""
        bits = KV_FORMATS[self.precision.kv_cache].payload_bits
        return self.stored.kv_bits or bits

    @property
    def _model(self) -> WorkModel:
        return WorkModel(self.shape, self.precision)

    def _weights_bytes(self, precision: Precision) -> int:
        return weights_bytes(self.shape, precision.weights, block=precision.weight_block, head=precision.head)
