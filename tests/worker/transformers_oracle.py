"""Logits of every position of a text, by our forward pass and by `transformers` on the same folder."""

from pathlib import Path
from typing import Any

import pytest
import torch

from kvroll_core.budget import pages_for
from kvroll_core.sealing import UNSEALED
from kvroll_kernels import dispatch
from kvroll_kernels.page_layout import PageLayout
from kvroll_worker.engine.detokenizer import TextStream
from kvroll_worker.engine.runner import Runner
from kvroll_worker.engine.scheduler import Chunk
from kvroll_worker.engine.session import Session
from kvroll_worker.engine.weights import load_weights
from kvroll_worker.kv.storage import PageStorage
from kvroll_worker.models.spec import load_spec
from kvroll_worker.models.tokenizer import Tokenizer
from tests.worker.tiny_model import state_of


def our_logits(folder: Path, ids: list[int], *, weights: str, kv: str, ops_name: str, chunk: int = 0) -> torch.Tensor:
    """[ids, vocab], computed in chunks of `chunk` rows (0: all at once)."""
    spec = load_spec(folder)
    shape, count = spec.shape, len(ids)
    ops = dispatch.load(ops_name)
    pages = pages_for(count)
    storage = PageStorage(ops, PageLayout(kv, shape.layers, shape.kv_heads, shape.head_dim), pages + 1)
    runner = Runner(ops, spec, load_weights(folder, spec, weights, ops), storage, count, count, pages * 32, UNSEALED)
    state = state_of("a", ids)
    session = Session(state, TextStream(Tokenizer(folder, spec), state.sampling), 0)
    session.slot, session.pages = 0, list(range(pages, 0, -1))
    found = []
    for start in range(0, count, chunk or count):
        length = min(chunk or count, count - start)
        runner.forward([Chunk(session, start, length, False)])
        found.append(torch.from_numpy(runner.logits(list(range(length))).copy()))
    return torch.cat(found)


def their_logits(folder: Path, ids: list[int], dtype: torch.dtype = torch.float32) -> torch.Tensor:
    """[ids, vocab], computed in `dtype` by plain matrix products ("eager"); with GPT-OSS's attention where there are sinks."""
    from transformers import AutoModelForCausalLM  # takes seconds

    model: Any = AutoModelForCausalLM.from_pretrained(folder, dtype=dtype, attn_implementation="eager")
    model.eval()
    with torch.no_grad(), pytest.MonkeyPatch.context() as patch:
        if getattr(model.config, "attention_sinks", False):
            _give_sinks(model, folder, patch)
        logits: torch.Tensor = model(torch.tensor([ids])).logits[0]
    return logits


def _give_sinks(model: Any, folder: Path, patch: pytest.MonkeyPatch) -> None:
    import sys

    from safetensors.torch import load_file
    from transformers.models.gpt_oss.modeling_gpt_oss import eager_attention_forward

    patch.setattr(sys.modules[type(model).__module__], "eager_attention_forward", eager_attention_forward)
    tensors = load_file(folder / "model.safetensors")
    for index, layer in enumerate(model.model.layers):
        layer.self_attn.sinks = tensors[f"model.layers.{index}.self_attn.sinks"].to(model.dtype)
