"""The forward pass against `transformers` on the same (de-quantised) weights: every log-probability of the vocabulary."""

from pathlib import Path
from typing import Any

import pytest
import torch

from kvroll_core.sampling_bounds import BOUNDS, Bound
from kvroll_kernels.reference.tensors import array_of
from kvroll_kernels.reference.weights import dequantise
from kvroll_worker.quant.weights import quantise, source_dtype
from tests.worker.tiny_model import MakeEngine, MakeModel, collect, prompt_of, state_of

LLAMA3 = {
    "rope_type": "llama3",
    "factor": 8.0,
    "low_freq_factor": 1.0,
    "high_freq_factor": 4.0,
    "original_max_position_embeddings": 64,
}
CONFIGS: dict[str, dict[str, Any]] = {
    "llama-gqa": {},
    "llama-mqa-untied": {"num_key_value_heads": 1, "tie_word_embeddings": False},
    "llama-mha": {"num_key_value_heads": 4},
    "rope-llama3": {"rope_scaling": LLAMA3},
    "rope-linear": {"rope_scaling": {"rope_type": "linear", "factor": 4.0}},
    "mistral": {"architectures": ["MistralForCausalLM"], "model_type": "mistral", "sliding_window": None},
    "qwen2-bias": {"architectures": ["Qwen2ForCausalLM"], "model_type": "qwen2", "use_sliding_window": False},
    "qwen3-window": {
        "architectures": ["Qwen3ForCausalLM"],
        "model_type": "qwen3",
        "use_sliding_window": True,
        "sliding_window": 33,
        "layer_types": ["full_attention", "sliding_attention"],
    },
}


@pytest.fixture(autouse=True)
def _whole_rows(monkeypatch: pytest.MonkeyPatch) -> None:
    """Clients are told of a few tokens; these tests look at every one."""
    monkeypatch.setitem(BOUNDS, "logprobs", Bound(0, 264, whole=True))


def stored_as(values: torch.Tensor, weights: str) -> torch.Tensor:
    """What a matrix is after it was stored: `weights` is a dtype word, for int4 with `/block`."""
    dtype, _, block = weights.partition("/")
    return dequantise(*quantise(array_of(values).astype(source_dtype(dtype)), dtype, int(block or 64))).float()


def expected_logprobs(folder: Path, ids: list[int], first: int, weights: str, head: str = "Same") -> torch.Tensor:
    from transformers import AutoModelForCausalLM, DynamicCache  # takes seconds, and only these slow tests need it

    update = DynamicCache.update

    def rounded_update(cache: Any, keys: torch.Tensor, values: torch.Tensor, *rest: Any, **more: Any) -> Any:
        """Keeps keys and values as our pages do."""
        return update(cache, keys.bfloat16().float(), values.bfloat16().float(), *rest, **more)

    model: Any = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.bfloat16)
    model.float().eval()
    if weights != "bf16":
        for name, parameter in model.named_parameters():
            if "_proj.weight" in name:
                parameter.data = stored_as(parameter.data, weights)
    if head == "int8":
        model.lm_head.weight.data = stored_as(model.lm_head.weight.data, "int8")  # a tied one is the embedding
    with torch.no_grad(), pytest.MonkeyPatch.context() as patch:
        patch.setattr(DynamicCache, "update", rounded_update)
        logits = model(torch.tensor([ids])).logits[0, first:]
    return torch.log_softmax(logits.double(), dim=-1)


@pytest.mark.slow
@pytest.mark.parametrize("config", CONFIGS.values(), ids=CONFIGS.keys())
@pytest.mark.parametrize("weights", ["bf16", "int8", "fp8_e4m3", "int4", "int4/32", "mxfp4"])
def test_logprobs_are_those_of_transformers(
    make_engine: MakeEngine, make_model: MakeModel, config: dict[str, Any], weights: str
) -> None:
    check_logprobs(make_engine, make_model(**config), weights, "Same", config.get("num_key_value_heads", 2))


@pytest.mark.slow
@pytest.mark.parametrize("name", ["llama-gqa", "llama-mqa-untied"])
def test_the_logprobs_of_an_int8_head_are_those_of_transformers(
    make_engine: MakeEngine, make_model: MakeModel, name: str
) -> None:
    check_logprobs(
        make_engine, make_model(**CONFIGS[name]), "bf16", "int8", CONFIGS[name].get("num_key_value_heads", 2)
    )


def check_logprobs(make_engine: MakeEngine, folder: Path, weights: str, head: str, kv_heads: int) -> None:
    dtype, _, block = weights.partition("/")
    engine = make_engine(
        model=folder,
        weights=dtype,
        weight_block=int(block or 64),
        head=head,
        kv_memory_bytes=20 * 32 * 2 * kv_heads * 64,
    )
    prompt = prompt_of(70)
    engine.submit(state_of("a", prompt, max_tokens=12, logprobs=264))
    trace = collect(engine)["a"]
    found = torch.tensor([[dict(step[3])[i] for i in range(264)] for step in trace], dtype=torch.float64)
    ids = prompt + [step[0] for step in trace[:-1]]
    expected = expected_logprobs(folder, ids, len(prompt) - 1, weights, head)
    # Both sum in fp32, in other orders; now and then that tips a key or value over to the next bf16.
    assert (found - expected).abs().max() < 0.06
    # Measured: such a tip moves the mean to 0.0014, a key bias left out of one layer to 0.14, a rotation that is 1 % off to 0.9.
    assert (found - expected).abs().mean() < 0.005
    # Where two tokens are that close, either may be chosen.
    chosen = expected.gather(1, torch.tensor([[step[0]] for step in trace]))[:, 0]
    assert bool((chosen >= expected.max(dim=1).values - 0.06).all())


def test_int8_kv_stays_near_bf16_kv(make_engine: MakeEngine) -> None:
    found = []
    for kv_cache in ("bf16", "int8"):
        engine = make_engine(kv_cache=kv_cache)
        engine.submit(state_of("a", prompt_of(100), max_tokens=1, logprobs=264))
        [step] = collect(engine)["a"]
        found.append(torch.tensor([dict(step[3])[i] for i in range(264)]))
    difference = (found[0] - found[1]).abs()
    assert 0 < difference.max() < 0.3
