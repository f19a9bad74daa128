"""What is read from a model folder, what identifies it, and what is refused by name."""

import json
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.torch import load_file, save_file

from kvroll_core.formats import UnknownFormatError
from kvroll_kernels.arrays import BF16
from kvroll_kernels.reference.tensors import tensor_of
from kvroll_worker.models.identity import config_hash, weights_id
from kvroll_worker.models.safetensors_folder import TensorFolder
from kvroll_worker.models.spec import UnsupportedModelError, load_spec
from kvroll_worker.quant.weights import quantise
from tests.worker.tiny_model import TINY, MakeModel, write_model


def spec_with(folder: Path, **overrides: Any) -> Any:
    (folder / "config.json").write_text(json.dumps({**TINY, **overrides}))
    return load_spec(folder)


@pytest.mark.parametrize(
    ("overrides", "message"),
    [
        ({"architectures": ["Qwen3ForCausalLM"]}, "Qwen3ForCausalLM is not supported; supported: LlamaForCausalLM"),
        (
            {"rope_scaling": {"rope_type": "yarn", "factor": 4}},
            "rope type yarn is not supported; supported: default, linear, llama3",
        ),
        ({"sliding_window": 128}, "sliding_window 128 is not supported"),
        ({"attention_bias": True}, "attention_bias"),
        ({"hidden_act": "gelu"}, "hidden_act gelu is not supported; supported: silu"),
    ],
)
def test_what_is_not_run_is_refused_by_name(tmp_path: Path, overrides: dict[str, Any], message: str) -> None:
    with pytest.raises(UnsupportedModelError, match=message):
        spec_with(tmp_path, **overrides)


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
    with TensorFolder(folder) as found:
        for name in names:
            assert torch.equal(tensor_of(found.get(name, tuple(tensors[name].shape))), tensors[name])
        with pytest.raises(
            UnsupportedModelError, match=r"expected model\.norm\.weight as .* \[3\], found bfloat16 \[64\]"
        ):
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
