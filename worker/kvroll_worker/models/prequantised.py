"""Checkpoints whose weights were quantised by someone else, recognised so that they are refused and never misread.

Signs: what transformers, AutoGPTQ, AutoAWQ, ModelOpt and compressed-tensors write into config.json, beside it, and as
names and dtypes of tensors.
"""

from collections.abc import Collection
from pathlib import Path
from typing import Any

from kvroll_worker.models.errors import UnsupportedModelError

_CONFIG_WORDS = ("quantization_config", "compression_config")
_FILES = {"quantize_config.json": "GPTQ", "quant_config.json": "AWQ", "hf_quant_config.json": "ModelOpt"}
_SUFFIXES = (
    *("qweight", "qzeros", "scales", "g_idx"),
    *("weight_packed", "weight_scale", "weight_scale_inv", "weight_zero_point", "weight_shape", "weight_global_scale"),
    *("input_scale", "input_global_scale", "k_scale", "v_scale", "absmax", "quant_map", "SCB"),
)
_PLAIN_DTYPES = {"F64", "F32", "F16", "BF16"}
_ADVICE = (
    "kvroll quantises while loading: use the checkpoint that it was made from, with the weights dtype that you want"
    " (fp8_e4m3, int8, int4, mxfp4)"
)


def refuse_prequantised(folder: Path, config: dict[str, Any]) -> None:
    """Looks at config.json and at the names of the files beside it.

    Raises:
        UnsupportedModelError: they say that the weights are quantised, and how.
    """
    for word in _CONFIG_WORDS:
        if said := config.get(word):
            raise UnsupportedModelError(f"{word} ({_describe(said)}) is not supported; {_ADVICE}")
    for name, method in _FILES.items():
        if (folder / name).exists():
            raise UnsupportedModelError(f"{name} ({method}) in {folder} is not supported; {_ADVICE}")


def refuse_other_tensors(dtypes: dict[str, str], read: frozenset[str], ignored: frozenset[str]) -> None:
    """The tensors that are there (name to the file's dtype word) must be those that the forward pass reads, in plain dtypes.

    Raises:
        UnsupportedModelError: some are absent, quantised or not read by anything; the first are named.
    """
    found = dtypes.keys() - ignored
    if quantised := [name for name in found if looks_quantised(name, dtypes[name])]:
        raise UnsupportedModelError(f"quantised tensors are not supported, found {_some(quantised, dtypes)}; {_ADVICE}")
    if unread := found - read:
        raise UnsupportedModelError(
            f"expected no tensors but those that config.json implies, found {_some(unread, dtypes)};"
            " without them the output would be another model's"
        )
    if absent := read - found:
        raise UnsupportedModelError(f"expected the tensors that config.json implies, found no {_some(absent, dtypes)}")


def looks_quantised(name: str, dtype: str = "F32") -> bool:
    """Whether a tensor is a part of a quantised weight, by its name or its dtype (the file's word)."""
    return name.rpartition(".")[2] in _SUFFIXES or dtype not in _PLAIN_DTYPES


def _describe(said: Any) -> str:
    if not isinstance(said, dict):
        return str(said)
    method = said.get("quant_method", "?")
    details = [f"{word} {said[word]}" for word in ("format", "bits", "fmt") if word in said]
    return ", ".join([str(method), *details])


def _some(names: Collection[str], dtypes: dict[str, str]) -> str:
    first = [f"{name} {dtypes.get(name, '')}".strip() for name in sorted(names)[:3]]
    return ", ".join(first) + (f" and {len(names) - 3} more" if len(names) > 3 else "")
