"""A checkpoint's own precision, from `quantization_config`: what its matrices take, and the KV dtype that it brings."""

import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from kvroll_core.budget.families import Settings, ShapeError
from kvroll_core.budget.families.settings import shown
from kvroll_core.budget.shape import ModelShape

_PLAIN = re.compile(
    r"lm_head|embed|norm|router|\bgate$|\.gate$|shared_expert_gate|e_score_correction|vision|visual|audio|projector|mtp"
)
"""Modules that are 16-bit in every checkpoint, or not counted here at all."""
_BITS = (1, 2, 3, 4, 5, 6, 8, 16)


@dataclass(frozen=True)
class Quantised:
    """`name` of the method as files say it; `element_bytes`: mean bytes of a quantised element with its share of scales and zero points;
    `experts_only`: matrices outside the experts stay 16-bit; `kv_cache`: the KV dtype that the checkpoint asks for, None where it says
    none; `read`: where it stood; `left_out`: modules that the file names as not quantised, beside the head, embeddings, norms and routers.
    """

    name: str
    element_bytes: float
    read: str
    experts_only: bool = False
    kv_cache: str | None = None
    left_out: tuple[str, ...] = ()

    def idle_bytes(self, shape: ModelShape) -> float:
        """Bytes of the experts that one token is not routed to."""
        return (shape.matrix_elements - shape.read_elements(1)) * self.element_bytes

    def weights_bytes(self, shape: ModelShape) -> int:
        """Bytes of all parameters: quantised matrices, everything else 16-bit.

        Raises:
            ShapeError: the model's weights cannot be counted.
        """
        matrices = shape.matrix_elements
        packed = shape.expert_elements if self.experts_only else matrices
        return int(packed * self.element_bytes) + 2 * (matrices - packed) + 2 * shape.plain_elements


def read_quantised(config: Mapping[str, Any]) -> Quantised | None:
    """The precision of a checkpoint, from the top level or from its text model's object; None of one that is not quantised.

    Raises:
        ShapeError: a method that we do not count, or a value that cannot be.
    """
    for where, holder in (("", config), ("text_config.", config.get("text_config"))):
        if not isinstance(holder, Mapping):
            continue
        for key in ("quantization_config", "compression_config", "quantization"):
            found = holder.get(key)
            if found is None:
                continue
            if not isinstance(found, Mapping):
                raise ShapeError(f"{key}: expected an object, found {shown(found)}")
            return _read(found, f"{where}{key}")
    return None


def _read(found: Mapping[str, Any], read: str) -> Quantised:
    settings = Settings(found)
    method = found.get("quant_method") or ("modelopt" if "quant_algo" in found else None)
    if not isinstance(method, str):
        raise ShapeError(f"{read}: expected quant_method, found {shown(method)}")
    readers = {
        "fp8": _fp8,
        "fbgemm_fp8": _fp8,
        "awq": _packed,
        "gptq": _packed,
        "auto-round": _packed,
        "compressed-tensors": _compressed_tensors,
        "mxfp4": _mxfp4,
        "modelopt": _modelopt,
        "modelopt_fp4": _modelopt,
        "bitsandbytes": _bitsandbytes,
    }
    if method not in readers:
        raise ShapeError(
            f"{read}: quant_method {method[:40]!r} is not counted; expected one of {', '.join(readers)}, or say --weights-bytes"
        )
    made = readers[method](settings, read)
    return made if made.experts_only else replace(made, left_out=_left_out(found))


def _left_out(found: Mapping[str, Any]) -> tuple[str, ...]:
    listed = (found.get(key) for key in ("ignore", "modules_to_not_convert", "ignored_layers", "exclude_modules"))
    names = [name for one in listed if isinstance(one, list) for name in one if isinstance(name, str)]
    return tuple(name for name in dict.fromkeys(names) if not _PLAIN.search(name))


def _fp8(s: Settings, read: str) -> Quantised:
    block = s.listed("weight_block_size", int)
    scales = 4 / (block[0] * block[1]) if block and len(block) == 2 and all(x > 0 for x in block) else 0.0
    return Quantised("fp8", 1 + scales, read, kv_cache=_kv_scheme(s))


def _packed(s: Settings, read: str) -> Quantised:
    method = str(s.raw("quant_method"))
    bits = s.raw("bits") if s.raw("bits") is not None else s.raw("w_bit")
    group = s.raw("group_size") if s.raw("group_size") is not None else s.raw("q_group_size")
    return Quantised(
        f"{method}-int{_bits(bits, read)}", _grouped(_bits(bits, read), group, read, zero_bits=_bits(bits, read)), read
    )


def _grouped(bits: int, group: Any, read: str, *, scale_bytes: float = 2, zero_bits: int = 0) -> float:
    """Bytes of an element: payload, and one scale and zero point for each group; -1 or none: for a whole row, next to nothing."""
    if group in (None, -1):
        return bits / 8
    if type(group) is not int or group < 1:
        raise ShapeError(f"{read}.group_size: expected a whole number of at least 1, or -1, found {shown(group)}")
    return bits / 8 + (scale_bytes + zero_bits / 8) / group


def _bits(found: Any, read: str) -> int:
    if type(found) is not int or found not in _BITS:
        raise ShapeError(f"{read}: expected bits of {', '.join(map(str, _BITS))}, found {shown(found)}")
    return found


def _compressed_tensors(s: Settings, read: str) -> Quantised:
    groups = s.raw("config_groups")
    if not isinstance(groups, Mapping) or not groups:
        raise ShapeError(f"{read}.config_groups: expected an object of groups, found {shown(groups)}")
    first = next(iter(groups.values()))
    weights = first.get("weights") if isinstance(first, Mapping) else None
    if not isinstance(weights, Mapping):
        raise ShapeError(f"{read}.config_groups: expected weights in its first group, found {shown(weights)}")
    bits, kind = _bits(weights.get("num_bits"), read), weights.get("type")
    fp4 = kind == "float" and bits == 4
    size = _grouped(bits, weights.get("group_size"), read, scale_bytes=1 if fp4 else 2)
    name = f"compressed-tensors-{'fp' if kind == 'float' else 'int'}{bits}"
    return Quantised(name, size, read, kv_cache=_kv_scheme(s))


def _mxfp4(s: Settings, read: str) -> Quantised:
    return Quantised("mxfp4", 0.5 + 1 / 32, read, experts_only=True)


def _modelopt(s: Settings, read: str) -> Quantised:
    algo = s.raw("quant_algo") or (s.nested("quantization").raw("quant_algo") if s.raw("quantization") else None)
    sizes = {
        "FP8": ("fp8", 1.0),
        "NVFP4": ("nvfp4", 0.5 + 1 / 16),
        "W4A8_AWQ": ("awq-int4", 0.5 + 2 / 128),
        "W4A16_AWQ": ("awq-int4", 0.5 + 2 / 128),
    }
    if algo is None and s.raw("config_groups") is not None:
        return _compressed_tensors(s, read)
    if not isinstance(algo, str) or algo.upper() not in sizes:
        raise ShapeError(f"{read}.quant_algo: expected one of {', '.join(sizes)}, found {shown(algo)}")
    name, size = sizes[algo.upper()]
    kv = s.raw("kv_cache_quant_algo")
    if kv is not None and kv != "FP8":
        raise ShapeError(f"{read}.kv_cache_quant_algo: expected FP8 or null, found {shown(kv)}")
    return Quantised(name, size, read, kv_cache="fp8_e4m3" if kv else _kv_scheme(s))


def _bitsandbytes(s: Settings, read: str) -> Quantised:
    if s.flag("load_in_4bit"):
        return Quantised("bitsandbytes-nf4", 0.5 + 4 / 64, read)
    if s.flag("load_in_8bit"):
        return Quantised("bitsandbytes-int8", 1.0, read)
    raise ShapeError(f"{read}: expected load_in_4bit or load_in_8bit of bitsandbytes, found neither")


def _kv_scheme(s: Settings) -> str | None:
    scheme = s.raw("kv_cache_scheme")
    if scheme is None:
        return None
    if not isinstance(scheme, Mapping) or scheme.get("num_bits") != 8:
        raise ShapeError(f"kv_cache_scheme: expected an object of 8 bits, found {shown(scheme)}")
    return "int8" if scheme.get("type") == "int" else "fp8_e4m3"


_DTYPES = {"bfloat16": "bf16", "float16": "fp16", "half": "fp16", "float32": "fp32", "float": "fp32"}


def auto_kv_cache(config: Mapping[str, Any], quantised: Quantised | None) -> tuple[str, str]:
    """The KV dtype of `auto`, and why: the checkpoint's scheme, else the dtype of the model.

    Raises:
        ShapeError: a dtype that we do not know.
    """
    if quantised and quantised.kv_cache:
        return quantised.kv_cache, f"auto: {quantised.read} names {quantised.kv_cache} for the KV cache"
    inner = config.get("text_config")
    for holder in (config, inner if isinstance(inner, Mapping) else {}):
        for key in ("dtype", "torch_dtype"):
            found = holder.get(key)
            if found is None:
                continue
            if not isinstance(found, str) or found.removeprefix("torch.") not in _DTYPES:
                raise ShapeError(f"{key}: expected one of {', '.join(_DTYPES)}, found {shown(found)}")
            word = _DTYPES[found.removeprefix("torch.")]
            return word, f"auto: {key} {found}"
    return "bf16", "auto: the file names no dtype, bf16 is taken"
