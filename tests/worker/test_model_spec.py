"""What is read from a model folder, what identifies it, and what is refused by name."""

import json
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.torch import load_file, save_file

from kvroll_core.budget import ModelShape
from kvroll_core.precision.formats import UnknownFormatError
from kvroll_kernels.arrays import BF16
from kvroll_kernels.reference.tensors import tensor_of
from kvroll_worker.models.identity import config_hash, weights_id
from kvroll_worker.models.safetensors_folder import TensorFolder
from kvroll_worker.models.spec import UnsupportedModelError, load_spec
from kvroll_worker.quant.weights import quantise
from tests.worker.tiny_model import TINY, MakeModel, write_model

FULL, SLIDING = "full_attention", "sliding_attention"
MISTRAL: dict[str, Any] = {"architectures": ["MistralForCausalLM"]}
QWEN2: dict[str, Any] = {"architectures": ["Qwen2ForCausalLM"]}
QWEN3: dict[str, Any] = {"architectures": ["Qwen3ForCausalLM"]}


def spec_with(folder: Path, **overrides: Any) -> Any:
    (folder / "config.json").write_text(json.dumps({**TINY, **overrides}))
    return load_spec(folder)


@pytest.mark.parametrize(
    ("overrides", "message"),
    [
        ({"architectures": ["GptOssForCausalLM"]}, "GptOssForCausalLM is not supported; supported: LlamaForCausalLM"),
        ({"architectures": []}, "architecture . is not supported"),
        ({"auto_map": {"AutoModelForCausalLM": "modeling_x.X"}}, "auto_map"),
        ({"hidden_act": "gelu"}, "hidden_act gelu is not supported; supported: silu"),
        ({"final_logit_softcapping": 30.0}, r"final_logit_softcapping 30\.0 is not supported"),
        ({"rms_norm_eps": None}, "expected rms_norm_eps"),
        ({"head_dim": 72}, "head_dim 72 is not supported; supported: multiples of 16 up to 256"),
        ({"head_dim": 512}, "head_dim 512 is not supported"),
        ({"num_key_value_heads": 3}, "num_attention_heads 4 is not a multiple of num_key_value_heads 3"),
        (
            {"rope_scaling": {"rope_type": "dynamic", "factor": 4}},
            "rope type dynamic is not supported; supported: default",
        ),
        ({"rope_scaling": {"rope_type": "yarn"}}, r"expected rope_parameters\.factor of rope type yarn, found none"),
        ({"rope_scaling": {"rope_type": "llama3", "factor": 2}}, r"expected rope_parameters\.high_freq_factor"),
        (
            {"rope_scaling": {"rope_type": "linear", "factor": 2, "mscale": 1}},
            r"rope_parameters\.mscale is not supported",
        ),
        (
            {"rope_parameters": {"full_attention": {"rope_theta": 1e4}}},
            r"rope_parameters\.full_attention is not supported",
        ),
        ({"partial_rotary_factor": 0.5}, r"partial_rotary_factor 0\.5 is not supported"),
        ({"sliding_window": 128}, "sliding_window 128 is not supported for LlamaForCausalLM"),
        ({**MISTRAL, "sliding_window": 0}, "sliding_window 0 is not supported"),
        ({**MISTRAL, "sliding_window": 8, "layer_types": [FULL, SLIDING]}, "layer_types with full_attention"),
        ({**QWEN3, "layer_types": ["chunked_attention", FULL]}, "layer_types chunked_attention is not supported"),
        ({**QWEN3, "layer_types": [FULL]}, "expected layer_types of 2 layers, found 1"),
        ({**QWEN3, "layer_types": [FULL, SLIDING], "sliding_window": 8}, "use_sliding_window None; set both"),
        ({**MISTRAL, "attention_bias": True}, "attention_bias is not supported for MistralForCausalLM"),
        ({**QWEN3, "mlp_bias": True}, "mlp_bias is not supported for Qwen3ForCausalLM"),
        ({"attention_sinks": 4}, "attention_sinks 4 is not supported; supported: true, false"),
    ],
)
def test_what_is_not_run_is_refused_by_name(tmp_path: Path, overrides: dict[str, Any], message: str) -> None:
    with pytest.raises(UnsupportedModelError, match=message):
        spec_with(tmp_path, **overrides)


@pytest.mark.parametrize(
    ("overrides", "windows"),
    [
        ({}, (0, 0)),
        ({**MISTRAL, "sliding_window": None}, (0, 0)),
        ({**MISTRAL, "sliding_window": 8}, (8, 8)),
        (MISTRAL, (4096, 4096)),  # what MistralConfig fills in
        ({**MISTRAL, "sliding_window": 8, "layer_types": [SLIDING, SLIDING]}, (8, 8)),
        ({**QWEN2, "sliding_window": 8, "max_window_layers": 0}, (0, 0)),
        ({**QWEN2, "sliding_window": 8, "use_sliding_window": True, "max_window_layers": 1}, (0, 8)),
        ({**QWEN2, "sliding_window": 8, "use_sliding_window": True}, (0, 0)),  # 28 layers look at everything
        ({**QWEN3, "sliding_window": 8, "use_sliding_window": True, "layer_types": [SLIDING, FULL]}, (8, 0)),
    ],
)
def test_windows_are_those_of_transformers(tmp_path: Path, overrides: dict[str, Any], windows: tuple[int, ...]) -> None:
    spec = spec_with(tmp_path, **overrides)
    assert spec.windows == windows
    assert (
        spec.shape.windows == ModelShape.from_config({**TINY, **overrides}).windows
    )  # as `kvroll budget` reads the file


def test_what_a_silent_file_means_is_what_transformers_fills_in(tmp_path: Path) -> None:
    config = {
        name: value for name, value in {**TINY, **QWEN3}.items() if name not in ("head_dim", "num_key_value_heads")
    }
    (tmp_path / "config.json").write_text(json.dumps({**config, "num_attention_heads": 32}))
    shape = load_spec(tmp_path).shape
    assert (shape.head_dim, shape.kv_heads) == (128, 32)


def test_biases_by_architecture(tmp_path: Path) -> None:
    def biases(**overrides: Any) -> tuple[bool, bool, bool]:
        spec = spec_with(tmp_path, **overrides)
        return spec.qkv_bias, spec.output_bias, spec.mlp_bias

    assert biases() == biases(**MISTRAL) == biases(**QWEN3) == (False, False, False)
    assert biases(**QWEN2) == (True, False, False)
    assert biases(attention_bias=True) == biases(**QWEN3, attention_bias=True) == (True, True, False)
    assert biases(mlp_bias=True) == (False, False, True)


def test_a_folder_without_a_model_is_refused(tmp_path: Path) -> None:
    with pytest.raises(UnsupportedModelError, match=r"config\.json"):
        load_spec(tmp_path)
    with pytest.raises(UnsupportedModelError, match=r"model\.safetensors"):
        TensorFolder(tmp_path)


def test_both_ways_to_write_rope_are_read(tmp_path: Path) -> None:
    old = spec_with(tmp_path, rope_theta=5e5, rope_scaling={"type": "linear", "factor": 2.0})
    new = spec_with(tmp_path, rope_parameters={"rope_type": "linear", "factor": 2.0, "rope_theta": 5e5})
    assert old == new
    assert config_hash(old) == config_hash(new) != config_hash(spec_with(tmp_path))


def test_eos_ids_come_from_the_generation_config_first(tmp_path: Path) -> None:
    assert spec_with(tmp_path).eos_token_ids == (257,)
    (tmp_path / "generation_config.json").write_text('{"eos_token_id": [257, 256]}')
    assert spec_with(tmp_path).eos_token_ids == (257, 256)


def test_weights_id_is_of_the_bytes_not_of_names(make_model: MakeModel, tmp_path: Path) -> None:
    original = make_model()
    other = write_model(tmp_path / "copy")
    assert weights_id(other) == weights_id(original)
    tensors = load_file(other / "model.safetensors")
    tensors["model.norm.weight"][0] += 1
    save_file(tensors, other / "model.safetensors")
    assert weights_id(other) != weights_id(original)
    assert sorted(path.name for path in other.iterdir()) == [
        "config.json",
        "model.safetensors",
        "tokenizer.json",
        "tokenizer_config.json",
    ]


def test_shards_are_found_through_the_index(make_model: MakeModel, tmp_path: Path) -> None:
    folder = tmp_path / "sharded"
    shutil.copytree(make_model(), folder)
    tensors = load_file(folder / "model.safetensors")
    (folder / "model.safetensors").unlink()
    names = sorted(tensors)
    parts = {"b.safetensors": names[::2], "a.safetensors": names[1::2]}
    for file, members in parts.items():
        save_file({name: tensors[name] for name in members}, folder / file)
    index = {"weight_map": {name: file for file, members in parts.items() for name in members}}
    (folder / "model.safetensors.index.json").write_text(json.dumps(index))
    found = TensorFolder(folder)
    for name in names:
        assert torch.equal(tensor_of(found.get(name, tuple(tensors[name].shape))), tensors[name])
    with pytest.raises(UnsupportedModelError, match=r"expected model\.norm\.weight as .* \[3\], found BF16 \[64\]"):
        found.get("model.norm.weight", (3,))


def test_int8_is_within_half_a_step_of_each_channel() -> None:
    weight = np.random.default_rng(1).standard_normal((8, 64), dtype=np.float32).astype(BF16)
    weight[3] = 0
    stored, scale, _ = quantise(weight, "int8")
    assert stored.dtype == np.int8
    assert scale is not None
    error = np.abs(stored.astype(np.float32) * scale[:, None] - weight.astype(np.float32))
    assert bool((error <= scale[:, None] / 2 + 1e-7).all())
    assert np.abs(stored).max(axis=1).tolist() == [127, 127, 127, 0, 127, 127, 127, 127]


def test_bf16_stays_as_it_is() -> None:
    weight = np.ones((2, 4), dtype=BF16)
    assert quantise(weight, "bf16")[1] is None
    with pytest.raises(UnknownFormatError, match="int3"):
        quantise(weight, "int3")
