"""Checkpoints that someone else quantised, and tensors that nothing reads: refused by name before a weight is loaded."""

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file

from kvroll_kernels import dispatch
from kvroll_kernels.dispatch import native_is_built
from kvroll_worker.engine.step.weights import load_weights
from kvroll_worker.models.safetensors_folder import TensorFolder
from kvroll_worker.models.spec import UnsupportedModelError, load_spec
from kvroll_worker.models.tensor_names import tensor_names
from tests.worker.tiny_model import TINY, MakeModel, random_weights

Tensors = dict[str, torch.Tensor]
Q = "model.layers.0.self_attn.q_proj"
OPS = "native" if native_is_built() else "reference"


def gptq(tensors: Tensors) -> None:
    """8 rows of 4 bits in an int32, as AutoGPTQ packs them."""
    out, width = tensors.pop(f"{Q}.weight").shape
    tensors[f"{Q}.qweight"] = torch.zeros(width // 8, out, dtype=torch.int32)
    tensors[f"{Q}.qzeros"] = torch.zeros(1, out // 8, dtype=torch.int32)
    tensors[f"{Q}.scales"] = torch.ones(1, out, dtype=torch.float16)
    tensors[f"{Q}.g_idx"] = torch.zeros(width, dtype=torch.int32)


def awq(tensors: Tensors) -> None:
    out, width = tensors.pop(f"{Q}.weight").shape
    tensors[f"{Q}.qweight"] = torch.zeros(width, out // 8, dtype=torch.int32)
    tensors[f"{Q}.qzeros"] = torch.zeros(1, out // 8, dtype=torch.int32)
    tensors[f"{Q}.scales"] = torch.ones(1, out, dtype=torch.float16)


def packed(tensors: Tensors) -> None:
    """compressed-tensors pack-quantized."""
    out, width = tensors.pop(f"{Q}.weight").shape
    tensors[f"{Q}.weight_packed"] = torch.zeros(out, width // 8, dtype=torch.int32)
    tensors[f"{Q}.weight_scale"] = torch.ones(out, 1, dtype=torch.bfloat16)
    tensors[f"{Q}.weight_shape"] = torch.tensor([out, width])


def fp8(tensors: Tensors) -> None:
    """The names of a plain checkpoint, with a scale beside: what a reader who casts would misread."""
    tensors[f"{Q}.weight"] = tensors[f"{Q}.weight"].to(torch.float8_e4m3fn)
    tensors[f"{Q}.weight_scale"] = torch.ones(tensors[f"{Q}.weight"].shape[0], 1)


def fp8_alone(tensors: Tensors) -> None:
    tensors[f"{Q}.weight"] = tensors[f"{Q}.weight"].to(torch.float8_e4m3fn)


def int8(tensors: Tensors) -> None:
    tensors[f"{Q}.weight"] = tensors[f"{Q}.weight"].to(torch.int8)
    tensors[f"{Q}.SCB"] = torch.ones(tensors[f"{Q}.weight"].shape[0])


def kv_scales(tensors: Tensors) -> None:
    tensors["model.layers.0.self_attn.k_scale"] = torch.ones(1)


CHECKPOINTS: list[tuple[Callable[[Tensors], None], dict[str, Any] | None, str]] = [
    (gptq, {"quant_method": "gptq", "bits": 4, "group_size": 128}, r"quantization_config \(gptq, bits 4\)"),
    (awq, {"quant_method": "awq", "bits": 4, "zero_point": True}, r"quantization_config \(awq, bits 4\)"),
    (
        packed,
        {"quant_method": "compressed-tensors", "format": "pack-quantized"},
        r"quantization_config \(compressed-tensors, format pack-quantized\)",
    ),
    (fp8, {"quant_method": "fp8", "fmt": "e4m3"}, r"quantization_config \(fp8, fmt e4m3\)"),
    (int8, {"load_in_8bit": True}, r"quantization_config \(\?\)"),
    # The same tensors under a config that does not say so.
    (gptq, None, r"quantised tensors are not supported, found .*q_proj\.g_idx I32, .*q_proj\.qweight I32"),
    (awq, None, r"q_proj\.qweight I32"),
    (packed, None, r"q_proj\.weight_packed I32"),
    (fp8, None, r"q_proj\.weight F8_E4M3, .*q_proj\.weight_scale F32"),
    (fp8_alone, None, r"q_proj\.weight F8_E4M3"),
    (int8, None, r"q_proj\.SCB F32, .*q_proj\.weight I8"),
    (kv_scales, None, r"self_attn\.k_scale F32"),
]


@pytest.fixture
def folder(make_model: MakeModel, tmp_path: Path) -> Path:
    copy = tmp_path / "model"
    shutil.copytree(make_model(), copy)
    return copy


def change(folder: Path, act: Callable[[Tensors], object], **config: Any) -> None:
    tensors = load_file(folder / "model.safetensors")
    act(tensors)
    save_file(tensors, folder / "model.safetensors")
    said = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps({**said, **config}))


def load(folder: Path) -> None:
    load_weights(folder, load_spec(folder), "bf16", dispatch.load(OPS))


@pytest.mark.parametrize(("act", "quantization", "message"), CHECKPOINTS)
def test_a_quantised_checkpoint_is_refused_before_a_weight_is_loaded(
    folder: Path,
    act: Callable[[Tensors], None],
    quantization: dict[str, Any] | None,
    message: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    change(folder, act, quantization_config=quantization)
    monkeypatch.setattr(TensorFolder, "blocks", lambda *_: pytest.fail("a weight was read"))
    with pytest.raises(UnsupportedModelError, match=message) as refusal:
        load(folder)
    assert "kvroll quantises while loading: use the checkpoint that it was made from" in str(refusal.value)


@pytest.mark.parametrize(
    ("name", "method"),
    [("quantize_config.json", "GPTQ"), ("quant_config.json", "AWQ"), ("hf_quant_config.json", "ModelOpt")],
)
def test_a_file_that_quantisers_write_is_a_sign_too(folder: Path, name: str, method: str) -> None:
    (folder / name).write_text("{}")
    with pytest.raises(UnsupportedModelError, match=rf"{name} \({method}\)"):
        load_spec(folder)


def test_tensors_that_nothing_reads_are_refused(folder: Path) -> None:
    change(folder, lambda tensors: tensors.update({f"{Q}.bias": torch.ones(64), "model.layers.0.lora": torch.ones(1)}))
    with pytest.raises(UnsupportedModelError, match=r"found model\.layers\.0\.lora F32, .*q_proj\.bias F32; without"):
        load(folder)


def test_an_absent_tensor_is_named_before_a_weight_is_loaded(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    change(folder, lambda tensors: tensors.pop("model.layers.1.mlp.down_proj.weight"))
    monkeypatch.setattr(TensorFolder, "blocks", lambda *_: pytest.fail("a weight was read"))
    with pytest.raises(UnsupportedModelError, match=r"found no model\.layers\.1\.mlp\.down_proj\.weight"):
        load(folder)


def test_old_rotations_and_a_second_copy_of_a_tied_head_say_nothing_new(folder: Path) -> None:
    def repeat(tensors: Tensors) -> None:
        tensors["model.layers.0.self_attn.rotary_emb.inv_freq"] = torch.ones(8)
        tensors["lm_head.weight"] = tensors["model.embed_tokens.weight"].clone()

    change(folder, repeat)
    load(folder)
    change(folder, lambda tensors: tensors["lm_head.weight"][0].add_(1))
    with pytest.raises(UnsupportedModelError, match=r"tie_word_embeddings is true, but lm_head\.weight differs"):
        load(folder)


def test_a_broken_shard_and_a_tensor_in_two_are_refused(folder: Path) -> None:
    shutil.copy(folder / "model.safetensors", folder / "b.safetensors")
    index = folder / "model.safetensors.index.json"
    index.write_text(json.dumps({"weight_map": {"x": "model.safetensors", "y": "b.safetensors"}}))
    with pytest.raises(UnsupportedModelError, match=r"in one shard, found it in b\.safetensors and model\.safetensors"):
        TensorFolder(folder)
    whole = (folder / "b.safetensors").read_bytes()
    for content in (whole[:-1], whole[:100], b""):
        (folder / "b.safetensors").write_bytes(content)
        with pytest.raises(UnsupportedModelError, match=r"expected a safetensors file at .*b\.safetensors"):
            TensorFolder(folder)
    (folder / "b.safetensors").unlink()
    with pytest.raises(UnsupportedModelError, match=r"expected a safetensors file at .*b\.safetensors"):
        TensorFolder(folder)


@pytest.mark.parametrize(
    "overrides",
    [
        {"attention_bias": True, "mlp_bias": True, "tie_word_embeddings": False},
        {"architectures": ["MistralForCausalLM"], "model_type": "mistral", "attention_sinks": True},
        {"architectures": ["Qwen2ForCausalLM"], "model_type": "qwen2"},
        {"architectures": ["Qwen3ForCausalLM"], "model_type": "qwen3"},
    ],
)
def test_the_names_are_those_that_a_folder_holds(make_model: MakeModel, overrides: dict[str, Any]) -> None:
    assert tensor_names(load_spec(make_model(**overrides))) == random_weights({**TINY, **overrides}).keys()
