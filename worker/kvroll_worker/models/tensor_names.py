"""Which tensors a model's folder must hold, as transformers names them, and nothing else."""

from kvroll_worker.models.spec import ModelSpec

EMBEDDING, HEAD, NORM = "model.embed_tokens.weight", "lm_head.weight", "model.norm.weight"
QKV, OUTPUT, GATE_UP, DOWN = ("q_proj", "k_proj", "v_proj"), ("o_proj",), ("gate_proj", "up_proj"), ("down_proj",)


def layer_prefix(index: int) -> str:
    """What the names of a layer's tensors begin with."""
    return f"model.layers.{index}."


def tensor_names(spec: ModelSpec) -> frozenset[str]:
    """Every tensor that the forward pass reads."""
    top = {EMBEDDING, NORM} | (set() if spec.shape.tied_head else {HEAD})
    return frozenset(top | {layer_prefix(i) + name for i in range(spec.shape.layers) for name in _layer_names(spec)})


def derived_names(spec: ModelSpec) -> frozenset[str]:
    """Tensors that say nothing new: old checkpoints keep the rotation's frequencies, tied ones the head a second time."""
    rotary = {"model.rotary_emb.inv_freq"}
    rotary |= {f"{layer_prefix(i)}self_attn.rotary_emb.inv_freq" for i in range(spec.shape.layers)}
    return frozenset(rotary | ({HEAD} if spec.shape.tied_head else set()))


def _layer_names(spec: ModelSpec) -> set[str]:
    names = {"input_layernorm.weight", "post_attention_layernorm.weight"}
    for room, parts, bias in (
        ("self_attn", QKV, spec.qkv_bias),
        ("self_attn", OUTPUT, spec.output_bias),
        ("mlp", (*GATE_UP, *DOWN), spec.mlp_bias),
    ):
        names |= {f"{room}.{part}.{kind}" for part in parts for kind in ("weight", *(["bias"] if bias else []))}
    if spec.qk_norm:
        names |= {"self_attn.q_norm.weight", "self_attn.k_norm.weight"}
    if spec.sinks:
        names.add("self_attn.sinks")
    return names
