"""Which kind each layer is: by the list in the file (`layer_types`), else by the rule that the family's configuration class has.

A rule reads settings and says a word a layer. The words are those of `transformers`, ALLOWED_LAYER_TYPES in configuration_utils.py.
"""

from collections.abc import Callable, Iterable

from kvroll_core.budget.families.settings import Settings, ShapeError

FULL, SLIDING, CHUNKED, LINEAR, CONV = (
    "full_attention",
    "sliding_attention",
    "chunked_attention",
    "linear_attention",
    "conv",
)
HYBRID, HYBRID_SLIDING, INDEXED = "hybrid", "hybrid_sliding", "indexed_attention"
NOTHING = ("moe", "mlp", "dense", "sparse", "no_op")
"""Layers that keep nothing for a session."""
LEGACY = {
    "mamba": LINEAR,
    "mamba2": LINEAR,
    "m": LINEAR,
    "recurrent": LINEAR,
    "attention": FULL,
    "deepseek_sparse_attention": INDEXED,
}
Rule = Callable[[Settings, int], list[str]]


def all_of(kind: str) -> Rule:
    """Every layer is of that kind."""
    return lambda s, n: [kind] * n


def full_every(period: int | str, default: int = 0, other: str = SLIDING, offset: int = -1) -> Rule:
    """Layer i is full attention where (i - offset) divides by the period, the `other` kind elsewhere; the period is a number or a key."""

    def rule(s: Settings, n: int) -> list[str]:
        every = period if isinstance(period, int) else s.optional(period) or default
        return [FULL if (i - offset) % every == 0 else other for i in range(n)]

    return rule


def windowed_every(default: int) -> Rule:
    """EXAONE 4: as `sliding_window_pattern` says, a period or letters such as LLLG; all full without a window."""

    def rule(s: Settings, n: int) -> list[str]:
        pattern = s.raw("sliding_window_pattern")
        if s.raw("sliding_window") is None:
            return [FULL] * n
        if isinstance(pattern, str):
            if not pattern or set(pattern) - {"L", "G"}:
                raise ShapeError(f"sliding_window_pattern: expected letters L and G, or a period, found {pattern!r}")
            return [FULL if pattern[i % len(pattern)] == "G" else SLIDING for i in range(n)]
        return full_every("sliding_window_pattern", default)(s, n)

    return rule


def with_window(s: Settings, n: int) -> list[str]:
    """One window for all layers wherever `sliding_window` is a number (Mistral, Mixtral, Phi-3, Starcoder2)."""
    return [SLIDING if s.optional("sliding_window", least=0) else FULL] * n


def with_switched_window(s: Settings, n: int) -> list[str]:
    """The same behind `use_sliding_window` (Qwen3-MoE)."""
    return with_window(s, n) if s.flag("use_sliding_window") else [FULL] * n


def qwen2(s: Settings, n: int) -> list[str]:
    """A window from layer `max_window_layers` on, behind `use_sliding_window` (Qwen2, Qwen3 and their vision models)."""
    if not s.flag("use_sliding_window") or not s.optional("sliding_window", least=0):
        return [FULL] * n
    first = s.count("max_window_layers", least=0)
    return [SLIDING if i >= first else FULL for i in range(n)]


def qwen2_moe(s: Settings, n: int) -> list[str]:
    """A window on every other one of the first `max_window_layers` (as the class of Qwen2-MoE has it)."""
    if not s.flag("use_sliding_window") or not s.optional("sliding_window", least=0):
        return [FULL] * n
    last = s.count("max_window_layers", least=0)
    return [SLIDING if i % 2 == 0 and i < last else FULL for i in range(n)]


SWITCHED = (with_switched_window, qwen2, qwen2_moe)
"""Rules of classes that make the window null unless `use_sliding_window` is set."""


def dots1(s: Settings, n: int) -> list[str]:
    """A window from layer `max_window_layers` on."""
    if not s.optional("sliding_window", least=0):
        return [FULL] * n
    return [SLIDING if i >= s.count("max_window_layers", least=0) else FULL for i in range(n)]


def cohere2_moe(s: Settings, n: int) -> list[str]:
    """A pattern of its own for the first dense layers."""
    dense = min(s.optional("first_k_dense_replace", least=0) or 0, n)
    head = s.optional("prefix_dense_sliding_window_pattern") or 1
    rest = full_every("sliding_window_pattern", 4)(s, n - dense)
    return [FULL if (i + 1) % head == 0 else SLIDING for i in range(dense)] + rest


def _rope_layers(s: Settings, n: int) -> list[bool]:
    listed = s.listed("no_rope_layers", int)
    if listed:
        if len(listed) != n:
            raise ShapeError(f"no_rope_layers: expected one for each of {n} layers, found {len(listed)}")
        return [bool(x) for x in listed]
    every = s.optional("no_rope_layer_interval") or 4
    return [(i + 1) % every != 0 for i in range(n)]


def llama4(s: Settings, n: int) -> list[str]:
    """Chunks on the layers with rotary positions, all on those without."""
    chunked = s.raw("attention_chunk_size") is not None
    return [CHUNKED if rope and chunked else FULL for rope in _rope_layers(s, n)]


def smollm3(s: Settings, n: int) -> list[str]:
    """A window on the layers without rotary positions, behind `use_sliding_window`."""
    windowed = s.flag("use_sliding_window") and s.raw("sliding_window") is not None
    return [SLIDING if windowed and not rope else FULL for rope in _rope_layers(s, n)]


def last_full(rule: Rule) -> Rule:
    """The rule with its last layer made full attention (Gemma 4 does so to a list too)."""
    return lambda s, n: [*rule(s, n)[:-1], FULL]


def mimo_v2(s: Settings, n: int) -> list[str]:
    """`hybrid_layer_pattern` (1: a window), else the first and every sixth layer full."""
    pattern = s.listed("hybrid_layer_pattern", int, n)
    if pattern:
        return [SLIDING if x else FULL for x in pattern]
    return [FULL if i == 0 or (i + 1) % 6 == 0 else SLIDING for i in range(n)]


def flint(s: Settings, n: int) -> list[str]:
    """The first two, every fourth and the last layer full."""
    return [FULL if i < 2 or i % 4 == 1 or i == n - 1 else SLIDING for i in range(n)]


def lfm3(s: Settings, n: int) -> list[str]:
    """Convolutions with full attention and windows in turn."""
    return [FULL if i % 4 == 2 else SLIDING if i % 4 == 0 and i else CONV for i in range(n)]


def lara_mini(s: Settings, n: int) -> list[str]:
    """Five kinds in turn."""
    turn = (LINEAR, SLIDING, LINEAR, FULL, SLIDING)
    return [turn[i % 5] for i in range(n)]


def lfm2(s: Settings, n: int) -> list[str]:
    """Full attention on `full_attn_idxs`, all of them where it is absent; convolutions elsewhere."""
    full = s.listed("full_attn_idxs", int)
    return [FULL if full is None or i in full else CONV for i in range(n)]


def jamba(s: Settings, n: int) -> list[str]:
    """Attention on every `attn_layer_period`-th layer, from `attn_layer_offset` on."""
    period, offset = s.count("attn_layer_period"), s.count("attn_layer_offset", least=0)
    return [FULL if i % period == offset else LINEAR for i in range(n)]


def zamba(s: Settings, n: int) -> list[str]:
    """Two state-space layers, a hybrid, then hybrids by `attn_layer_period` and `attn_layer_offset`."""
    period, offset = s.count("attn_layer_period"), s.count("attn_layer_offset", least=0)
    rest = [HYBRID if i % period == offset else LINEAR for i in range(max(n - 3, 0))]
    return [LINEAR, LINEAR, HYBRID][:n] + rest


def zamba2(s: Settings, n: int) -> list[str]:
    """Hybrids where `hybrid_layer_ids` says so; the configuration class knows the 54 layers of the 2.7B model alone."""
    ids = s.listed("hybrid_layer_ids", int)
    if ids is None:
        raise ShapeError("expected layers_block_type or hybrid_layer_ids of a zamba2 model, found neither")
    return [HYBRID if i in ids else LINEAR for i in range(n)]


def bamba(s: Settings, n: int) -> list[str]:
    """Attention on `attn_layer_indices`."""
    full = s.listed("attn_layer_indices", int) or []
    return [FULL if i in full else LINEAR for i in range(n)]


def nemotron_h(s: Settings, n: int) -> list[str]:
    """`hybrid_override_pattern`: M state space, * attention, E experts, - dense."""
    pattern = s.raw("hybrid_override_pattern")
    letters = {"M": LINEAR, "*": FULL, "E": "moe", "-": "mlp"}
    if not isinstance(pattern, str) or set(pattern) - set(letters) or len(pattern) != n:
        raise ShapeError(
            f"hybrid_override_pattern: expected {n} letters of M, *, E and - (or layers_block_type), found {pattern!r}"
        )
    return [letters[x] for x in pattern]


def kimi_linear(s: Settings, n: int) -> list[str]:
    """Latent attention on the layers that `linear_attn_config.full_attn_layers` counts from 1, else every fifth."""
    full = s.nested("linear_attn_config").listed("full_attn_layers", int)
    if full is None:
        return [FULL if (i + 1) % 5 == 0 else LINEAR for i in range(n)]
    return [FULL if i + 1 in full else LINEAR for i in range(n)]


def minimax(s: Settings, n: int) -> list[str]:
    """`attn_type_list` (1: full attention), else full and linear in turn."""
    kinds = s.listed("attn_type_list", int, n)
    if kinds:
        return [FULL if x else LINEAR for x in kinds]
    return [LINEAR if i % 2 else FULL for i in range(n)]


def recurrent_gemma(s: Settings, n: int) -> list[str]:
    """`block_types` again and again; its attention always has the window."""
    turn = s.listed("block_types", str) or ["recurrent", "recurrent", "attention"]
    return [LINEAR if turn[i % len(turn)] == "recurrent" else SLIDING for i in range(n)]


def inkling(s: Settings, n: int) -> list[str]:
    """Windows on `local_layer_ids`, else on all but every sixth; each layer has convolutions besides."""
    local = s.listed("local_layer_ids", int)
    return [HYBRID_SLIDING if ((i + 1) % 6 if local is None else i in local) else HYBRID for i in range(n)]


def kinds_of(s: Settings, layers: int, rule: Rule, allowed: Iterable[str], *, listed: bool) -> list[str]:
    """A word for each layer, of those that the family has.

    Raises:
        ShapeError: a word that the family's layers are not, or another number of words.
    """
    words = s.listed("layer_types", str) if listed else None
    if words is None:
        return rule(s, layers)
    kinds = [LEGACY.get(word, word) for word in words]
    known = (*allowed, *NOTHING)
    if unknown := sorted(set(kinds) - set(known)):
        expected = f"{', '.join(known[:-1])} or {known[-1]}"
        raise ShapeError(f"layer_types: expected {expected}, found {', '.join(unknown)[:80]}")
    if len(kinds) != layers:
        raise ShapeError(f"layer_types: expected one for each of {layers} layers, found {len(kinds)}")
    return kinds
