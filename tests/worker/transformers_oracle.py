"""Logits of every position of a text, by our forward pass and by `transformers` on the same folder, and how far each is from the truth.

The truth is the architecture of `transformers` carried out in float64. No distance is a number of its own: a sum's rounding differs
with the width of a CPU's vectors. What `transformers`' own float32 is off here, on this CPU, is the unit.
"""

from functools import partial
from pathlib import Path
from typing import Any

import pytest
import torch
from torch.nn import functional

from kvroll_core.budget import pages_for
from kvroll_core.precision.sealing import UNSEALED
from kvroll_kernels import dispatch
from kvroll_kernels.page_layout import PageLayout
from kvroll_worker.engine.schedule.scheduler import Chunk
from kvroll_worker.engine.session import EngineSession
from kvroll_worker.engine.step.runner import Runner
from kvroll_worker.engine.step.weights import load_weights
from kvroll_worker.engine.text.detokenizer import TextStream
from kvroll_worker.kv.storage import PageStorage
from kvroll_worker.models.spec import load_spec
from kvroll_worker.models.tokenizer import Tokenizer
from tests.worker.tiny_model import state_of

RMS_FACTOR = 2.0
"""Measured: 0.5 on the real model, whatever vectors the library uses."""
MOST_FACTOR = 4.0
"""The worst of a million logits scatters more than their mean."""


def our_logits(folder: Path, ids: list[int], *, weights: str, kv: str, ops_name: str, chunk: int = 0) -> torch.Tensor:
    """[ids, vocab], computed in chunks of `chunk` rows (0: all at once)."""
    spec = load_spec(folder)
    shape, count = spec.shape, len(ids)
    ops = dispatch.load(ops_name)
    pages = pages_for(count)
    storage = PageStorage(ops, PageLayout(kv, shape.layers, shape.kv_heads, shape.head_dim), pages + 1)
    runner = Runner(ops, spec, load_weights(folder, spec, weights, ops), storage, count, count, pages * 32, UNSEALED)
    state = state_of("a", ids)
    session = EngineSession(state, TextStream(Tokenizer(folder, spec), state.sampling), 0)
    session.slot, session.pages = 0, list(range(pages, 0, -1))
    found = []
    for start in range(0, count, chunk or count):
        length = min(chunk or count, count - start)
        runner.forward([Chunk(session, start, length, False)])
        found.append(torch.from_numpy(runner.logits(list(range(length))).copy()))
    return torch.cat(found)


def their_logits(folder: Path, ids: list[int], dtype: torch.dtype = torch.float32) -> torch.Tensor:
    """[ids, vocab], computed in `dtype` by plain matrix products ("eager"); with GPT-OSS's attention where there are sinks.

    In float64 norms and softmax are float64 too, which the library computes in float32 whatever the model's dtype is.
    """
    from transformers import AutoModelForCausalLM  # takes seconds

    model: Any = AutoModelForCausalLM.from_pretrained(folder, dtype=dtype, attn_implementation="eager")
    model.eval()
    with torch.no_grad(), pytest.MonkeyPatch.context() as patch:
        if getattr(model.config, "attention_sinks", False):
            _give_sinks(model, folder, patch)
        if dtype is torch.float64:
            _compute_all_in_float64(model, patch)
        logits: torch.Tensor = model(torch.tensor([ids])).logits[0]
    return logits


def off_by(found: torch.Tensor, truth: torch.Tensor) -> tuple[float, float]:
    """Root mean square, and the most, of the differences from the truth."""
    distance = (found.double() - truth).abs()
    return float(distance.square().mean().sqrt()), float(distance.max())


def check_against_float64(folder: Path, ids: list[int], ours: torch.Tensor) -> None:
    """Ours is at most RMS_FACTOR times (and at its worst logit MOST_FACTOR times) as far from the truth as `transformers`' float32 is."""
    truth = their_logits(folder, ids, torch.float64)
    assert truth.dtype is torch.float64
    assert truth.std() > 0.5  # otherwise a distance says nothing
    their_rms, their_most = off_by(their_logits(folder, ids), truth)
    our_rms, our_most = off_by(ours, truth)
    assert 0 < their_rms < 1e-3 * float(truth.std()), "the library's float32 is no yardstick here"
    assert our_rms <= RMS_FACTOR * their_rms, f"{our_rms:.2e}, {our_rms / their_rms:.2f} times theirs"
    assert our_most <= MOST_FACTOR * their_most, f"{our_most:.2e}, {our_most / their_most:.2f} times theirs"


def _compute_all_in_float64(model: Any, patch: pytest.MonkeyPatch) -> None:
    softmax = functional.softmax

    def exact(values: torch.Tensor, *arguments: Any, **settings: Any) -> torch.Tensor:
        return softmax(values, *arguments, **settings | {"dtype": values.dtype})

    patch.setattr(functional, "softmax", exact)
    for norm in (part for part in model.modules() if type(part).__name__.endswith("RMSNorm")):
        patch.setattr(norm, "forward", partial(_rms_norm, norm))


def _rms_norm(norm: Any, values: torch.Tensor) -> torch.Tensor:
    scale = torch.rsqrt(values.square().mean(-1, keepdim=True) + norm.variance_epsilon)
    scaled: torch.Tensor = norm.weight * (values * scale)
    return scaled


def _give_sinks(model: Any, folder: Path, patch: pytest.MonkeyPatch) -> None:
    import sys

    from safetensors.torch import load_file
    from transformers.models.gpt_oss.modeling_gpt_oss import eager_attention_forward

    patch.setattr(sys.modules[type(model).__module__], "eager_attention_forward", eager_attention_forward)
    tensors = load_file(folder / "model.safetensors")
    for index, layer in enumerate(model.model.layers):
        layer.self_attn.sinks = tensors[f"model.layers.{index}.self_attn.sinks"].to(model.dtype)
