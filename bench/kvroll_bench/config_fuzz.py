"""Damages configurations and asks for their budget: what comes back is an answer or a sentence, and never a traceback."""

import random
from dataclasses import dataclass, field
from typing import Any

from kvroll_bench.engine_logs import PRINTED
from kvroll_core.budget import FAMILIES, Ask, ModelShape, auto_kv_cache, read_quantised, reckon

_NONSENSE: tuple[Any, ...] = (
    0, -1, -3, 1, 2, 3, 7, 30, 10**12, 10**30, 1.5, float("nan"), float("inf"), True, False, None, "", "32", "a", "4096", [], [1], ["a"],
    {},
    {"a": 1}, [None], [[1]], "full_attention", ["full_attention"], ["mamba"], {"num_bits": "x"}, {"quant_method": "fp8"},
    {"quant_method": "gptq", "bits": 0}, {"quant_method": []}, {"head_dim": 0}, "\x00",
    "é" * 500,
)  # fmt: skip
_KEYS = (
    "head_dim", "num_key_value_heads", "sliding_window", "layer_types", "num_kv_shared_layers", "quantization_config", "text_config",
    "kv_lora_rank", "full_attention_interval", "per_layer_config", "no_rope_layers", "sliding_window_pattern", "hybrid_override_pattern",
    "block_configs", "linear_attn_config", "compress_ratios", "intermediate_size", "num_experts", "num_experts_per_tok", "dtype",
    "max_position_embeddings", "is_encoder_decoder", "architectures", "model_type", "attn_config", "indexer_types", "block_types",
)  # fmt: skip
_UNKNOWN = ("", "qwen9", "deepseek_v9", "bert", "t5", "nobody-knows", "llama ", "LLAMA")


@dataclass
class Fuzz:
    """What became of the inputs."""

    inputs: int = 0
    answered: int = 0
    refused: int = 0
    tracebacks: int = 0
    numbers_for_unknown: int = 0
    impossible: int = 0
    examples: list[str] = field(default_factory=list)

    def report(self) -> dict[str, Any]:
        """By their names in the report."""
        return vars(self)

    def ask(self, config: Any) -> None:
        """One input."""
        self.inputs += 1
        try:
            quantised = read_quantised(config) if isinstance(config, dict) else None
            kv, _ = auto_kv_cache(config, quantised) if isinstance(config, dict) else ("bf16", "")
            shape = ModelShape.from_config(config)
            fit = reckon(shape, Ask("bf16", kv, 1, 4096, weights_bytes=1))
        except ValueError as error:
            self.refused += 1
            if not str(error):
                self._note("an empty sentence", config)
        except Exception as error:  # this is what is looked for
            self.tracebacks += 1
            self._note(f"{type(error).__name__}: {error}", config)
        else:
            self.answered += 1
            if fit.kv_bytes_total < 0 or (shape.layers < 1):
                self.impossible += 1
            if shape.facts.family not in FAMILIES:
                self.numbers_for_unknown += 1
                self._note("a number for an unknown family", config)

    def _note(self, what: str, config: Any) -> None:
        if len(self.examples) < 20:
            self.examples.append(f"{what[:200]} <- {config!r}"[:600])


def fuzzed(inputs: int, seed: int) -> Fuzz:
    """So many inputs, of known models with up to three keys damaged, of unknown families, and of things that are no configuration."""
    chance, found = random.Random(seed), Fuzz()
    models = [p.config for p in PRINTED]
    for whole in (None, [], "a", 3, True, [{"model_type": "llama"}]):
        found.ask(whole)
    while found.inputs < inputs:
        config = dict(chance.choice(models))
        if chance.random() < 0.5:
            config["model_type"] = chance.choice([*FAMILIES, *_UNKNOWN])
        for _ in range(chance.randint(0, 3)):
            key = chance.choice([*config, *_KEYS])
            if chance.random() < 0.2:
                config.pop(key, None)
            else:
                config[key] = chance.choice(_NONSENSE)
        found.ask({"model_type": "wrapper", "text_config": config} if chance.random() < 0.1 else config)
    return found
