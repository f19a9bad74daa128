"""A precision as others write it: a worker's descriptor on the wire, `spec.precision` of a pool, a worker's flags, labels of a metric.

The one place that knows their names for its parts. What is unset there has the default of `Precision`.
"""

from collections.abc import Mapping
from typing import Any, Protocol

from kvroll_core.precision.formats import HEAD_INT8, HEAD_SAME, KV_FORMATS, WEIGHT_BLOCK, WEIGHT_FORMATS
from kvroll_core.precision.kv_form import SKIPPED_FORMAT, KvForm, parse_layers
from kvroll_core.precision.precision import Precision
from kvroll_core.precision.sealing import DEFAULT_RESIDUAL_TOKENS


class DescribedPrecision(Protocol):
    """The fields of a descriptor that say a precision, as a message of the wire or as our value; an older worker leaves some at 0 or ""."""

    @property
    def weights_dtype(self) -> str: ...
    @property
    def weight_block(self) -> int: ...
    @property
    def head_dtype(self) -> str: ...
    @property
    def kv_format(self) -> str: ...
    @property
    def kv_skip_layers(self) -> str: ...
    @property
    def residual_tokens(self) -> int: ...


def described(precision: Precision) -> dict[str, Any]:
    """Those fields, by name; 0 or "" for what the dtypes do not have.

    Raises:
        ValueError: words that this version does not know.
    """
    return {
        "weights_dtype": precision.weights,
        "weight_block": precision.block,
        "head_dtype": precision.head_dtype,
        "kv_format": precision.kv_cache,
        "kv_skip_layers": precision.kv_form.skipped,
        "residual_tokens": precision.residual_tokens if precision.sealing.seals else 0,
    }


def read_described(found: DescribedPrecision) -> Precision:
    """What those fields say.

    Raises:
        SkipLayersError: skipped layers that are no list of indices.
    """
    return Precision(
        weights=found.weights_dtype,
        kv_cache=found.kv_format,
        weight_block=found.weight_block or WEIGHT_BLOCK,
        head=_head(found.head_dtype),
        skip_layers=parse_layers(found.kv_skip_layers),
        residual_tokens=found.residual_tokens or DEFAULT_RESIDUAL_TOKENS,
    )


def labels(found: DescribedPrecision) -> dict[str, str]:
    """The labels of `kvroll_engine_info`; knobs that the dtypes do not have are left out."""
    skipped = f"/{SKIPPED_FORMAT}:{found.kv_skip_layers}" if found.kv_skip_layers else ""
    knobs = {
        "weight_block": str(found.weight_block or ""),
        "head": found.head_dtype,
        "residual_tokens": str(found.residual_tokens or ""),
    }
    told = {name: value for name, value in knobs.items() if value}
    return {"weights": found.weights_dtype, "kv_cache": found.kv_format + skipped, **told}


def read_labels(info: Mapping[str, str]) -> Precision:
    """What those labels, or another engine's with the same names, say; bf16 where they say nothing.

    Raises:
        ValueError: a form of KV, or a number, that is none.
    """
    form = KvForm.parse(info.get("kv_cache") or "bf16")
    return Precision(
        weights=info.get("weights") or "bf16",
        kv_cache=form.kv_format,
        weight_block=int(info.get("weight_block") or 0) or WEIGHT_BLOCK,
        head=_head(info.get("head") or ""),
        skip_layers=form.skip_layers,
        residual_tokens=int(info.get("residual_tokens") or 0) or DEFAULT_RESIDUAL_TOKENS,
    )


def read_spec(spec: Mapping[str, Any]) -> Precision:
    """`spec.precision` of a pool, or of the content of a revision.

    Raises:
        KeyError: it names no dtype of weights or KV.
    """
    return Precision(
        weights=spec["weights"],
        kv_cache=spec["kvCache"],
        weight_block=spec.get("weightBlockSize") or WEIGHT_BLOCK,
        head=spec.get("head") or HEAD_SAME,
        skip_layers=tuple(spec.get("skipLayers") or ()),
        residual_tokens=spec.get("residualTokens") or DEFAULT_RESIDUAL_TOKENS,
    )


def spec_content(spec: Mapping[str, Any]) -> dict[str, Any]:
    """`spec.precision` as it counts for a revision: without what changes nothing, so that a default spelt out, or a block size that the
    dtype has not, rolls nothing.

    Raises:
        ValueError: layers to skip beside a format that cannot have them.
    """
    content, asked = dict(spec), read_spec(spec)
    known = WEIGHT_FORMATS.get(asked.weights)
    if known is None or not known.block_sizes or asked.weight_block == WEIGHT_BLOCK:
        content["weightBlockSize"] = None
    if asked.head == HEAD_SAME:
        content["head"] = None
    content["skipLayers"] = list(asked.kv_form.skip_layers) if asked.kv_cache in KV_FORMATS else None
    return content


def worker_flags(spec: Mapping[str, Any]) -> list[str]:
    """The flags of a worker that runs `spec.precision`; what is unset is left to the worker."""
    flags = ["--weights", spec["weights"], "--kv-cache", spec["kvCache"]]
    for flag, name in (("--weight-block-size", "weightBlockSize"), ("--head", "head")):
        if spec.get(name) is not None:
            flags += [flag, str(spec[name])]
    if spec.get("skipLayers"):
        flags += ["--kv-skip-layers", ",".join(map(str, spec["skipLayers"]))]
    if spec.get("residualTokens") is not None:
        flags += ["--residual-tokens", str(spec["residualTokens"])]
    return flags


def _head(dtype: str) -> str:
    return HEAD_INT8 if dtype == HEAD_INT8 else HEAD_SAME
