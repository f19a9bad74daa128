"""A checkpoint with NaN or infinity in it, or with numbers that the chosen dtype does not hold, is refused at load by the tensor's name."""

import shutil
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file

from kvroll_core.precision.formats import WEIGHT_FORMATS
from kvroll_worker.models.errors import UnsupportedModelError
from tests.worker.tiny_model import MakeEngine, MakeModel

NAN, INF = float("nan"), float("inf")
DTYPES = list(WEIGHT_FORMATS)
TENSORS = {
    "embedding": "model.embed_tokens.weight",
    "norm": "model.norm.weight",
    "vector": "model.layers.1.input_layernorm.weight",
    "matrix": "model.layers.1.mlp.down_proj.weight",
    "fused": "model.layers.0.self_attn.v_proj.weight",
}


@pytest.fixture
def ops_name() -> str:
    return "native"


def broken(model: Path, folder: Path, name: str, value: float, dtype: torch.dtype = torch.bfloat16) -> Path:
    """The model with one number of one tensor replaced, in its last row."""
    shutil.copytree(model, folder)
    tensors = {key: tensor.to(dtype) for key, tensor in load_file(folder / "model.safetensors").items()}
    tensors[name].view(-1)[-3] = value
    save_file(tensors, folder / "model.safetensors")
    return folder


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize(("place", "value"), [("embedding", NAN), ("matrix", INF), ("fused", -INF), ("norm", NAN)])
def test_what_is_no_number_is_refused_by_name(
    make_engine: MakeEngine, make_model: MakeModel, tmp_path: Path, dtype: str, place: str, value: float
) -> None:
    folder = broken(make_model(), tmp_path / "model", TENSORS[place], value)
    with pytest.raises(UnsupportedModelError, match=f"{TENSORS[place]}, found -?(nan|inf) at"):
        make_engine(model=folder, weights=dtype)


@pytest.mark.parametrize(("dtype", "value"), [("fp16", 1e5), ("fp16", -65520.0), ("int4", 1e30), ("bf16", 3.4e38)])
def test_what_the_dtype_does_not_hold_is_refused_by_name(
    make_engine: MakeEngine, make_model: MakeModel, tmp_path: Path, dtype: str, value: float
) -> None:
    folder = broken(make_model(), tmp_path / "model", TENSORS["matrix"], value, torch.float32)
    with pytest.raises(UnsupportedModelError, match=TENSORS["matrix"]):
        make_engine(model=folder, weights=dtype)


def test_the_largest_number_that_fp16_holds_is_taken(
    make_engine: MakeEngine, make_model: MakeModel, tmp_path: Path
) -> None:
    folder = broken(make_model(), tmp_path / "model", TENSORS["matrix"], 65519.0, torch.float32)
    assert make_engine(model=folder, weights="fp16").sessions() == {}


def test_a_bias_is_looked_at_too(make_engine: MakeEngine, make_model: MakeModel, tmp_path: Path) -> None:
    model = make_model(architectures=["Qwen2ForCausalLM"], model_type="qwen2", use_sliding_window=False)
    name = "model.layers.0.self_attn.k_proj.bias"
    with pytest.raises(UnsupportedModelError, match=f"{name}, found nan"):
        make_engine(model=broken(model, tmp_path / "model", name, NAN))
