"""How a model is spread over devices: tensor-parallel ranks share each layer, pipeline stages share the layers, data-parallel replicas
share the sessions.
"""

from dataclasses import dataclass, replace

from kvroll_core.budget.cache import HeadKv, KvGroup, SplitError
from kvroll_core.budget.shape import ModelShape
from kvroll_core.precision.formats import find_kv_format
from kvroll_core.precision.kv_form import KvForm


@dataclass(frozen=True)
class Ranks:
    """So many of each; their product is the number of devices."""

    tensor: int = 1
    pipeline: int = 1
    data: int = 1

    @property
    def devices(self) -> int:
        """Devices in all."""
        return self.tensor * self.pipeline * self.data


@dataclass(frozen=True)
class WindowBytes:
    """Layers of one window: its length, how many they are, and bytes that each token in it costs all of them."""

    window_tokens: int
    layers: int
    bytes_per_token: float


def window_bytes(shape: ModelShape, kv_cache: str, kv_skip_layers: tuple[int, ...] = ()) -> tuple[WindowBytes, ...]:
    """The windows of a model, the shortest first."""
    found: dict[int, tuple[int, float]] = {}
    for name, group in shape.kept(KvForm.of(kv_cache, kv_skip_layers)):
        if isinstance(group, HeadKv) and group.window:
            layers, size = found.get(group.window, (0, 0.0))
            one = group.session_bytes(1, find_kv_format(name), residual_tokens=0, whole_pages=False)
            found[group.window] = (layers + group.layers, size + one)
    return tuple(WindowBytes(window, layers, size) for window, (layers, size) in sorted(found.items()))


def stage_shapes(shape: ModelShape, ranks: Ranks) -> tuple[ModelShape, ...]:
    """The model as one rank of each pipeline stage holds it: layers in a row, the earlier stages one more where they do not divide.

    Raises:
        SplitError: heads or states do not divide by the tensor-parallel ranks, or there are fewer layers than stages.
    """
    if ranks == Ranks(data=ranks.data):
        return (shape,)
    if ranks.pipeline > shape.layers:
        raise SplitError(f"{shape.layers} layers do not divide into {ranks.pipeline} pipeline stages")
    if shape.heads % ranks.tensor:
        raise SplitError(f"{shape.heads} attention heads do not divide by {ranks.tensor} tensor-parallel ranks")
    every, more = divmod(shape.layers, ranks.pipeline)
    stages, first = [], 0
    for stage in range(ranks.pipeline):
        count = every + (stage < more)
        stages.append(_rank(shape.only(tuple(range(first, first + count))), ranks.tensor))
        first += count
    return tuple(stages)


def _rank(shape: ModelShape, tensor: int) -> ModelShape:
    if tensor == 1 or shape.latent or shape.compressed:
        return _rank_of_parts(shape, tensor) if shape.layer_parts else shape
    if shape.layer_parts:
        return _rank_of_parts(shape, tensor)
    heads = HeadKv(1, shape.kv_heads, shape.head_dim).on_rank(tensor)
    return replace(shape, kv_heads=heads.kv_heads)


def _rank_of_parts(shape: ModelShape, tensor: int) -> ModelShape:
    def share(part: KvGroup) -> KvGroup:
        return part.on_rank(tensor)

    return replace(shape, layer_parts=tuple(tuple(map(share, parts)) for parts in shape.layer_parts))
