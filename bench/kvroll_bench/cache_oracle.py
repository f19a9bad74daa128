"""What `transformers` really keeps: a tiny instance of a family is built and run, and the tensors of its cache are counted.

Where its cache is known to hold another number of elements than an engine's, the rule stands in `expected`: it keeps window - 1 tokens
after a forward pass (the next token is not there yet), and a whole kernel of a short convolution (an engine keeps one column less, and
so does RecurrentGemma, in its modules).
"""

import json
import logging
import re
import warnings
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from kvroll_core.budget import HeadKv, KvGroup, LatentKv, ModelShape, StateKv
from kvroll_core.budget.families import FAMILIES

LENGTHS = (4, 20, 41)
_MOST_PARAMETERS = 50_000_000
_LAYERS = 8
_WINDOW = 7
_HIDDEN = 64
_LEFT_OUT = re.compile(
    r"layer_types|block_type|^indexer_types|^moe_layers|no_rope_layers|full_attn_idxs|sparsity_pattern|attention_layers|attention_types"
    r"|label|^per_layer|^rope_|dtype|architectures|model_type|version|mlp_only_layers"
)
_MROPE = {"rope_type": "default", "rope_theta": 10000.0}
_OVERRIDES: dict[str, dict[str, Any]] = {
    "afmoe": {"num_hidden_layers": 4, "num_experts": 4},
    "bamba": {"attn_layer_indices": [3, 5]},
    "dbrx": {
        "attn_config": {"kv_n_heads": 2, "clip_qkv": 8.0, "rope_theta": 10000.0},
        "ffn_config": {"ffn_hidden_size": 96, "moe_num_experts": 4},
    },
    "deepseek_v2": {"topk_method": "greedy", "n_routed_experts": 4, "num_experts_per_tok": 2},
    "dots1": {"n_shared_experts": 1, "n_routed_experts": 4, "num_experts_per_tok": 2, "max_window_layers": 4},
    "gemma3n_text": {"num_hidden_layers": 12, "num_kv_shared_layers": 2},
    "gemma4_text": {"num_kv_shared_layers": 2, "global_head_dim": 48},
    "gemma4_unified_text": {"num_kv_shared_layers": 2, "global_head_dim": 48},
    "gpt_neo": {"attention_types": [[["global", "local"], 4]]},
    "granitemoehybrid": {"layer_types": ["linear_attention", "full_attention"] * 4},
    "hunyuan_v1_dense": {"head_dim": 16},
    "hunyuan_v1_moe": {"head_dim": 16, "num_experts": 4, "moe_topk": 2},
    "lfm2_moe": {"layer_types": ["conv", "conv", "full_attention", "conv"] * 2},
    "lfm2": {"full_attn_idxs": [2, 5]},
    "longcat_flash": {"num_layers": 2, "zero_expert_num": 1, "num_hidden_layers": 4},
    "mamba2": {"num_heads": 8, "head_dim": 16, "n_groups": 2},
    "laguna": {"layer_types": ["full_attention", "sliding_attention"] * 4},
    "mellum": {"layer_types": ["full_attention", "sliding_attention"] * 4},
    "ministral": {"head_dim": 16},
    "nemotron": {"num_key_value_heads": 2},
    "nemotron_h": {"hybrid_override_pattern": "M*-ME*M-", "num_hidden_layers": 8, "n_routed_experts": 4, "moe_shared_expert_intermediate_size": 64},  # noqa: E501
    "qwen2": {"use_sliding_window": True, "max_window_layers": 3},
    "glm4v_text": {"rope_parameters": {**_MROPE, "mrope_section": [1, 1, 2], "partial_rotary_factor": 0.5}},
    "glm4v_moe_text": {"rope_parameters": {**_MROPE, "mrope_section": [1, 1, 2], "partial_rotary_factor": 0.5}},
    "qwen2_vl_text": {"use_sliding_window": True, "max_window_layers": 3, "rope_parameters": {**_MROPE, "mrope_section": [2, 3, 3]}},
    "qwen2_5_vl_text": {"use_sliding_window": True, "max_window_layers": 3, "rope_parameters": {**_MROPE, "mrope_section": [2, 3, 3]}},
    "qwen3": {"use_sliding_window": True, "max_window_layers": 3},
    "qwen3_moe": {"use_sliding_window": True},
    "phi3": {"sliding_window": _WINDOW},
    "mixtral": {"sliding_window": _WINDOW},
    "starcoder2": {"sliding_window": _WINDOW},
    "phimoe": {"sliding_window": _WINDOW},
    "smollm3": {"use_sliding_window": True, "sliding_window": _WINDOW},
    "zamba2": {"layers_block_type": ["linear_attention", "hybrid"] * 4, "n_mamba_heads": 8},
    "recurrent_gemma": {"lru_width": 96},
    "gpt-sw3": {},
}  # fmt: skip
"""What the general shrinking gets wrong, or what makes the family's own rule show."""


@dataclass(frozen=True)
class Comparison:
    """A family's cache here and there, in elements at `LENGTHS`; `problem` where it could not be run."""

    family: str
    measured: tuple[int, ...] = ()
    ours: tuple[int, ...] = ()
    parameters: int = 0
    our_parameters: int | None = None
    problem: str = ""

    @property
    def equal(self) -> bool:
        """The same at every length."""
        return bool(self.measured) and self.measured == self.ours

    @property
    def weights_error(self) -> float | None:
        """How far the formula for the weights is off, as a share; None where there is none."""
        return None if self.our_parameters is None else abs(self.our_parameters / self.parameters - 1)


def expected(part: KvGroup, tokens: int, *, whole_kernel: bool = True) -> int:
    """Elements that `transformers` keeps of a part of ours; with `whole_kernel` a column more of a short convolution."""
    if isinstance(part, HeadKv):
        held = tokens if part.window is None else min(tokens, part.window - 1)
        return part.layers * held * part.kv_heads * (part.head_dim + (part.value_dim or part.head_dim))
    if isinstance(part, LatentKv):
        return part.layers * tokens * (part.nope + part.rope + part.index)
    if isinstance(part, StateKv):
        columns = part.conv_columns + whole_kernel if part.conv_rows else 0
        return part.layers * (part.conv_rows * columns + part.recurrent)
    raise TypeError(f"expected a part that we count, found {type(part).__name__}")


def shrunk(config: dict[str, Any]) -> dict[str, Any]:
    """The sizes of a default configuration made small, with the relations between them kept."""
    heads = next(
        (
            config[k]
            for k in ("num_attention_heads", "n_head", "n_heads", "num_heads", "attention_heads")
            if config.get(k)
        ),
        None,
    )
    found = {}
    for key, value in config.items():
        if _LEFT_OUT.search(key) or isinstance(value, bool) or not isinstance(value, int):
            continue
        size = _small(key, value, heads)
        if size is not None:
            found[key] = size
    return found


_SMALL: tuple[tuple[str, Any], ...] = (
    (r"^vocab_size", lambda v: 128),
    (r"^(hidden_size|n_embd|d_model|lru_width|word_embed_proj_dim)$", lambda v: _HIDDEN),
    (r"^attention_hidden_size$", lambda v: 2 * _HIDDEN),
    (r"intermediate|ffn_|n_inner|ffn_dim", lambda v: 96),
    (r"^(num_hidden_layers|n_layers?|num_layers)$", lambda v: _LAYERS),
    (r"^((swa_)?num_attention_heads|n_heads?|num_heads|attention_heads)$", lambda v: 4),
    (r"^(mamba_n_heads|n_mamba_heads|mamba_num_heads)$", lambda v: 8 if v > 2 else 2),
    (r"^mamba_d_ssm$", lambda v: 2 * _HIDDEN),
    (r"^(mamba_d_head|mamba_head_dim|mamba_headdim)$", lambda v: 16),
    (r"head_dim|kv_channels|rotary_dim", lambda v: max(v // 8, 4)),
    (r"rank$", lambda v: max(v // 16, 4)),
    (r"d_state|state_size", lambda v: max(v // 8, 4)),
    (r"^linear_num_key_heads$", lambda v: 2),
    (r"^(linear_num_value_heads|linear_num_heads)$", lambda v: 4),
    (r"^n_groups$", lambda v: 2),
    (r"num_experts$|num_local_experts|routed_experts|n_experts", lambda v: 4),
    (r"experts_per_tok|moe_topk|moe_k$|top_k", lambda v: 2),
    (r"^(n_group|topk_group|num_expert_group)$", lambda v: 1),
    (r"sliding_window(_size)?$|attention_window_size|^window_size|^attention_chunk_size$", lambda v: _WINDOW if v else v),
    (r"^local_attention$", lambda v: 2 * _WINDOW),
    (r"max_position|n_positions|max_seq|model_max_length|context_length", lambda v: 512),
    (r"token_id$|token_index$", lambda v: 3),
    (r"^index_topk$", lambda v: 4),
    (r"^hidden_size_per_layer_input$", lambda v: 8),
    (r"^(first_k_dense_replace|num_dense_layers)$", lambda v: 1),
)  # fmt: skip


def _small(key: str, value: int, heads: int | None) -> int | None:
    if re.search(r"^(swa_)?num_key_value_heads$|^num_kv_heads$|^num_query_groups$", key):
        return 4 if value == heads else 1 if value == 1 else 2
    return next((int(to(value)) for pattern, to in _SMALL if re.search(pattern, key)), None)


def compared(name: str) -> Comparison:
    """Builds and runs a tiny model of the family."""
    import torch
    from transformers import CONFIG_MAPPING, AutoModel, AutoModelForCausalLM

    warnings.simplefilter("ignore")
    logging.disable(logging.WARNING)
    torch.manual_seed(0)
    cls = CONFIG_MAPPING[name]
    config = cls(**(shrunk(cls().to_dict()) | _OVERRIDES.get(name, {})))
    auto: Any = AutoModelForCausalLM if type(config) in AutoModelForCausalLM._model_mapping else AutoModel
    with torch.device("meta"):
        parameters = sum(p.numel() for p in auto.from_config(config).parameters())
    if parameters > _MOST_PARAMETERS:
        return Comparison(name, problem=f"{parameters} parameters after shrinking: not built")
    model = auto.from_config(config).eval()
    measured = tuple(_measured(model, n) for n in LENGTHS)
    shape = ModelShape.from_config({**json.loads(config.to_json_string(use_diff=False)), "model_type": name})
    silent = ModelShape.from_config({**json.loads(config.to_json_string()), **_said(config), "model_type": name})
    if shape.kv_groups != silent.kv_groups:
        return Comparison(
            name, problem=f"a file without the defaults reads otherwise: {silent.kv_groups}, not {shape.kv_groups}"
        )
    ours = tuple(
        sum(expected(part, n, whole_kernel=name != "recurrent_gemma") for part in shape.kv_groups) for n in LENGTHS
    )
    return Comparison(name, measured, ours, parameters, _elements(shape))


def _said(config: Any) -> dict[str, Any]:
    sizes = ("num_hidden_layers", "hidden_size", "num_attention_heads", "vocab_size", "intermediate_size")
    return {key: getattr(config, key) for key in sizes if hasattr(config, key)}


def _elements(shape: ModelShape) -> int | None:
    try:
        return shape.matrix_elements + shape.plain_elements
    except ValueError:
        return None


def _measured(model: Any, tokens: int) -> int:
    import torch
    from transformers import DynamicCache

    ids = torch.randint(5, 100, (1, tokens))
    with torch.no_grad():
        given = {"cache": DynamicCache(config=model.config)} if model.config.model_type in _TAKES_A_CACHE else {}
        found = model(input_ids=ids, use_cache=True, **given)
    words = ("cache", "past_key_values", "cache_params")
    cache = given.get("cache") or next((c for word in words if (c := getattr(found, word, None)) is not None), None)
    held = [vars(m).get(k) for m in model.modules() for k in _STATES]
    if cache is not None:
        held += [vars(layer) for layer in cache.layers] + [v for k, v in vars(cache).items() if k != "layers"]
    if not (count := sum(int(tensor.numel()) for tensor in _tensors(held))):
        raise TypeError("no cache came back")
    return count


_TAKES_A_CACHE = ("recurrent_gemma",)
"""Models that do not return the cache that they made."""
_STATES = ("recurrent_states", "conv1d_state")
"""What RecurrentGemma keeps in its modules instead of in a cache."""


def _tensors(held: Any) -> Iterator[Any]:
    import torch

    if isinstance(held, torch.Tensor):
        yield held
    elif isinstance(held, dict):
        for key, value in held.items():
            if "window_tensor" not in str(key):
                yield from _tensors(value)
    elif isinstance(held, list | tuple):
        for value in held:
            yield from _tensors(value)


def one_thread() -> None:
    """For a process among others."""
    import torch

    torch.set_num_threads(1)


def oracle_families() -> list[str]:
    """The families of the table that the installed `transformers` has a class for."""
    from transformers import CONFIG_MAPPING

    return [name for name in FAMILIES if name in CONFIG_MAPPING and name not in NOT_COMPARED]


NOT_COMPARED = {
    "deepseek_v4": "its class keeps the tokens of an unfinished group and their gates besides, which no engine does; counted token by token"
    " in tests/core/test_budget_models.py instead",
    "qwen2_vl": "the word of a wrapper; its text model is compared",
    "qwen2_5_vl": "the word of a wrapper; its text model is compared",
}
