"""Writes core/kvroll_core/budget/families/defaults.json from the configuration classes of the installed `transformers`: what each fills in
where a file is silent, its words for ours, and which of its keys tell of a cache.
"""

import dataclasses
import json
import re
from pathlib import Path
from typing import Any

FILE = Path(__file__).resolve().parents[2] / "core/kvroll_core/budget/families/defaults.json"
_KEY = re.compile(
    r"\b(?:s|inner|attention|settings)\.(?:count|optional|raw|flag|listed|nested|divided)\(\s*\"(\w+)\"(?:, \"(\w+)\")?"
)
_SIZES = {"intermediate_size", "vocab_size", "tie_word_embeddings", "max_position_embeddings"}
_EXPERTS = {
    "n_routed_experts", "num_experts", "num_local_experts", "num_experts_per_tok", "experts_per_token", "moe_intermediate_size",
    "shared_expert_intermediate_size", "n_shared_experts", "first_k_dense_replace", "mlp_only_layers", "qk_nope_head_dim",
    "v_head_dim", "q_lora_rank", "index_n_heads",
}  # fmt: skip
_IN_THE_FILE = {"num_hidden_layers", "hidden_size"}
"""Sizes that no file leaves out: a default of them would be another model's."""
_WORDS = {
    "mamba": {"mamba_expand": "expand", "mamba_d_state": "state_size", "mamba_d_conv": "conv_kernel"},
    "falcon_mamba": {"mamba_expand": "expand", "mamba_d_state": "state_size", "mamba_d_conv": "conv_kernel"},
    "mamba2": {"mamba_expand": "expand", "mamba_d_state": "state_size", "mamba_d_conv": "conv_kernel", "mamba_n_heads": "num_heads",
               "mamba_d_head": "head_dim", "mamba_n_groups": "n_groups"},
    "nemotron_h": {"mamba_expand": "expand", "mamba_d_state": "ssm_state_size", "mamba_d_conv": "conv_kernel", "mamba_n_groups": "n_groups",
                   "mamba_n_heads": "mamba_num_heads", "mamba_d_head": "mamba_head_dim"},
    "zamba2": {"mamba_n_heads": "n_mamba_heads", "mamba_n_groups": "mamba_ngroups"},
    "longcat_flash": {"num_hidden_layers": "num_layers"},
    "xglm": {"intermediate_size": "ffn_dim"},
    "opt": {"intermediate_size": "ffn_dim"},
}  # fmt: skip
"""Words for ours that no class declares."""
_UNREAD = {"zamba2": {"head_dim"}, "zamba": {"head_dim"}, "jamba": {"head_dim"}}
_DECODERS_BY_OTHER_NAMES = {"kimi_k2": "deepseek_v3"}


def our_keys() -> set[str]:
    """Every key that the readers ask for."""
    sources = [FILE.parent / f"{name}.py" for name in ("layers", "parts", "reading")]
    found = {key for source in sources for pair in _KEY.findall(source.read_text()) for key in pair if key}
    swa = {f"swa_{key}" for key in ("num_key_value_heads", "head_dim")}
    return found | swa | _SIZES | _EXPERTS | {"local_attention"}


def collected() -> dict[str, Any]:
    """The whole file, but for `counted`, which the oracle decides."""
    from transformers import CONFIG_MAPPING
    from transformers.models.auto import modeling_auto as auto

    from kvroll_core.budget.families.reading import _TELLING
    from kvroll_core.budget.families.table import FAMILIES

    ours = our_keys()
    families = {}
    for name in sorted(FAMILIES):
        word = _DECODERS_BY_OTHER_NAMES.get(name, name)
        if word not in CONFIG_MAPPING:
            continue
        config = CONFIG_MAPPING[word]
        fields = {f.name: f.default for f in dataclasses.fields(config) if f.default is not dataclasses.MISSING}
        names = {k: v for k, v in config.attribute_map.items() if k in ours} | _WORDS.get(name, {})
        names = {k: v for k, v in names.items() if k not in _UNREAD.get(name, ())}
        defaults = {k: fields.get(names.get(k, k)) for k in sorted(ours - _IN_THE_FILE)}
        families[name] = {
            "module": f"{config.__module__.split('.')[-2]} ({config.__name__})",
            "defaults": {k: v for k, v in defaults.items() if isinstance(v, (bool, int, str)) and v is not False},
            "names": names,
            "fields": sorted(k for k in fields if _TELLING.search(k)),
        }
    causal = dict(auto.MODEL_FOR_CAUSAL_LM_MAPPING_NAMES)
    return {
        "families": families,
        "architectures": {
            c: m
            for m, cs in sorted(causal.items(), reverse=True)
            for c in (cs if isinstance(cs, tuple) else (cs,))
            if m in FAMILIES
        },
        "wrappers": _wrappers(CONFIG_MAPPING),
        "encoder_decoders": sorted(set(auto.MODEL_FOR_SEQ_TO_SEQ_CAUSAL_LM_MAPPING_NAMES) | {"whisper", "reformer"}),
        "encoders": sorted(
            set(auto.MODEL_FOR_MASKED_LM_MAPPING_NAMES) - set(auto.MODEL_FOR_SEQ_TO_SEQ_CAUSAL_LM_MAPPING_NAMES)
        ),
    }


def _wrappers(mapping: Any) -> dict[str, str]:
    found = {}
    for name in mapping:
        try:
            sub = (mapping[name].sub_configs or {}).get("text_config")
            word = getattr(sub, "model_type", "") or ""
            if not word and sub is not None:
                word = mapping[name]().text_config.model_type
        except Exception:  # a class that needs arguments has no default text model
            continue
        if word:
            found[name] = word
    return found


def write(counted: list[str] | None = None) -> None:
    """Renews the file; keeps the list of counted families unless a new one is given."""
    before = json.loads(FILE.read_text()) if FILE.exists() else {"counted": []}
    found = {"counted": sorted(before["counted"] if counted is None else counted), **collected()}
    lines = [
        f"  {json.dumps(k)}: "
        + (
            "{\n"
            + ",\n".join(f"    {json.dumps(n)}: {json.dumps(v, sort_keys=True)}" for n, v in value.items())
            + "\n  }"
            if k == "families"
            else json.dumps(value, sort_keys=True)
        )
        for k, value in found.items()
    ]
    FILE.write_text("{\n" + ",\n".join(lines) + "\n}\n")
