"""A spec or a revision's content, as far as the price of a rollout depends on it."""

from collections.abc import Mapping
from decimal import Decimal
from typing import Any

from kvroll_core.precision.codec import read_spec, spec_content
from kvroll_core.price import RollSettings, Wish
from kvroll_core.quantity import QuantityError, parse_quantity
from kvroll_core.revision import canonical
from kvroll_operator.api.pool import PoolSpec


def content_of(spec: PoolSpec, image: str) -> str:
    """Canonical content of the revision that a spec names; `image` is that of a spec that leaves it unset."""
    content: dict[str, Any] = {
        "model": spec.model.model_dump(by_alias=True),
        "precision": spec_content(spec.precision.model_dump(by_alias=True)),
        "engine": spec.engine.model_dump(by_alias=True) if spec.engine else {},
        "resources": spec.resources.model_dump(by_alias=True) if spec.resources else {},
        "template": spec.template or {},
    }
    if not content["engine"].get("image"):
        content["engine"] = {**content["engine"], "image": image}
    return canonical(content)


def wish_of(content: Mapping[str, Any]) -> Wish | None:
    """What that spec, or content of a revision, asks for; None where it names no precision."""
    precision, model = content.get("precision"), content.get("model")
    if not precision or not model:
        return None
    engine = content.get("engine") or {}
    limits = (content.get("resources") or {}).get("limits") or {}
    return Wish(
        model_uri=model.get("uri", ""),
        precision=read_spec(precision),
        image=engine.get("image"),
        max_model_len=engine.get("maxModelLen"),
        max_sessions=engine.get("maxSessions"),
        kv_memory_bytes=_bytes(engine.get("kvMemory")),
        memory_limit_bytes=_bytes(limits.get("memory")),
    )


def devices_of(content: Mapping[str, Any]) -> int:
    """Devices of one worker: its extended resources (`nvidia.com/gpu: 2`), or itself where it asks for none."""
    limits = (content.get("resources") or {}).get("limits") or {}
    return sum(int(_count(count)) for name, count in limits.items() if "/" in name) or 1


def settings_of(spec: PoolSpec, content: Mapping[str, Any]) -> RollSettings:
    """The spec's knobs."""
    rollout, sessions = spec.rollout, spec.sessions
    return RollSettings(
        allow=tuple(sessions.allow),
        kv_across_weights=sessions.kv_across_weights,
        parallel=min(sessions.parallel, sessions.per_worker),
        bytes_per_second=sessions.bytes_per_second,
        max_surge=rollout.max_surge,
        max_unavailable=rollout.max_unavailable,
        partition=rollout.partition,
        group_size=spec.groups.size,
        devices=devices_of(content),
        min_ready_seconds=rollout.min_ready_seconds,
        is_gated=spec.gate is not None,
    )


def _bytes(quantity: str | int | None) -> int | None:
    if quantity is None:
        return None
    return int(_count(quantity)) or None


def _count(quantity: str | int) -> Decimal:
    """0 for what is no quantity: the API server refuses its Pods and says why, and no price may end a pass over it."""
    try:
        exact = parse_quantity(quantity)
        return exact.to_integral_value() if exact >= 0 else Decimal(0)
    except QuantityError:
        return Decimal(0)
