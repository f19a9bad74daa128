"""What each dtype costs in quality on the small real model: `python bench/quality.py`.

Teacher-forced: every token of a fixed text is scored through the cache that the format itself wrote. Each format is
compared with weights bf16 and KV bf16 on the same tokens. Writes build/bench/quality.json. A 135M model is far more
sensitive than the large ones that papers measure, and a few hundred tokens leave about one percent of noise in top-1.
"""

import argparse
import json
import os
from pathlib import Path
from typing import Any

import torch

from kvroll_core.budget import pages_for
from kvroll_core.formats import KV_FORMATS, WEIGHT_FORMATS
from kvroll_kernels import dispatch
from kvroll_kernels.ops import Ops
from kvroll_kernels.page_layout import PageLayout
from kvroll_worker.engine.detokenizer import TextStream
from kvroll_worker.engine.request import Sampling, SessionState
from kvroll_worker.engine.runner import Runner
from kvroll_worker.engine.scheduler import Chunk
from kvroll_worker.engine.session import Session
from kvroll_worker.engine.weights import ModelWeights, load_weights
from kvroll_worker.kv.storage import PageStorage
from kvroll_worker.models.smollm2 import ensure_model
from kvroll_worker.models.spec import ModelSpec, load_spec
from kvroll_worker.models.tokenizer import Tokenizer

ROWS = 64
BASE = ("bf16", "bf16")
TEXT = """The harbour master kept two clocks on the wall of his office. One showed the time of the town, by which the
shops opened and the trains were supposed to leave; the other showed the time of high water, and it was the second clock
that people asked about. A fishing boat that draws nine feet cannot cross the bar at low tide, whatever the railway
says. In winter the master added a margin of half an hour, because a strong wind from the north holds the water back,
and he wrote the margin on a slate beside the door so that nobody could claim not to have seen it.

When the new lighthouse was built, engineers came from the capital to measure the depth of the channel. They lowered a
weighted line every twenty yards and wrote down what it told them, and at the end of the month they drew a chart. The
chart was accurate on the day it was printed. By the following spring the river had moved a bank of sand sixty yards to
the east, and the first captain who trusted the paper more than the slate spent a night on it, waiting for the sea to
come back. Nobody was hurt. The engineers returned, measured the channel again, and this time they asked the master how
often it changed. He told them that it changed whenever it rained in the hills, and that a chart is a letter from the
past: useful, as long as you remember when it was posted.

After that the chart was printed with a date in large type, and beneath the date there was a line that said how many
weeks the soundings could be trusted. The captains called it the most honest sentence ever printed by the government.
"""


def logits_of(ops: Ops, spec: ModelSpec, weights: ModelWeights, kv_format: str, session: Session) -> torch.Tensor:
    """Log-probabilities [ids - 1, vocab] of the next token after each id, in fp32."""
    count = session.num_tokens - 1
    layout = PageLayout(kv_format, spec.shape.layers, spec.shape.kv_heads, spec.shape.head_dim)
    pages = pages_for(count)
    storage = PageStorage(ops, layout, pages + 1)
    runner = Runner(ops, spec, weights, storage, ROWS, ROWS, pages * 32)
    session.slot, session.pages, session.num_tabled = 0, list(range(1, pages + 1)), 0
    found = []
    for first in range(0, count, ROWS):
        rows = range(first, min(first + ROWS, count))
        logits = torch.from_numpy(runner.forward([Chunk(session, row, 1, True) for row in rows]))
        found.append(torch.log_softmax(logits, dim=-1))
    return torch.cat(found)


def compare(found: torch.Tensor, base: torch.Tensor, targets: torch.Tensor) -> dict[str, float]:
    """Agreement of the likeliest token, KL(base || found) in nats, and the ratio of the perplexities of the text."""
    kl = (base.exp() * (base - found)).sum(dim=-1)
    loss, base_loss = (-logprobs.gather(1, targets[:, None]).mean() for logprobs in (found, base))
    return {
        "top1_agreement": float((found.argmax(dim=-1) == base.argmax(dim=-1)).float().mean()),
        "kl_mean": float(kl.mean()),
        "kl_p99": float(kl.quantile(0.99)),
        "perplexity": float(loss.exp()),
        "perplexity_ratio": float((loss - base_loss).exp()),
    }


def measure(threads: int, cases: list[tuple[str, str]]) -> dict[str, Any]:
    """Every (weights, KV) case against the base."""
    torch.set_num_threads(1)
    folder = ensure_model()
    spec = load_spec(folder)
    tokenizer = Tokenizer(folder, spec)
    ids = tokenizer.encode(TEXT)
    session = Session(SessionState("text", "smollm2", ids), TextStream(tokenizer, Sampling()), 0)
    ops = dispatch.load("native")
    ops.set_threads(threads)
    targets, base, rows = torch.tensor(ids[1:]), None, []
    loaded: tuple[str, ModelWeights] | None = None
    for weights, kv_cache in cases:
        if loaded is None or loaded[0] != weights:
            loaded = (weights, load_weights(folder, spec, weights, ops))
        found = logits_of(ops, spec, loaded[1], kv_cache, session)
        base = found if base is None else base
        rows.append({"weights": weights, "kv": kv_cache, **compare(found, base, targets)})
        print(
            "  ".join(
                f"{key} {value:.5f}" if isinstance(value, float) else str(value) for key, value in rows[-1].items()
            )
        )
    return {"model": "SmolLM2-135M-Instruct", "tokens": len(ids) - 1, "build": ops.build_hash(), "quality": rows}


def main() -> None:
    """Prints a line a case and writes the JSON."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--threads", type=int, default=len(os.sched_getaffinity(0)))
    parser.add_argument("--out", type=Path, default=Path("build/bench/quality.json"))
    arguments = parser.parse_args()
    kv = [("bf16", name) for name, entry in KV_FORMATS.items() if entry.built and name != "bf16"]
    weights = [(name, "bf16") for name, entry in WEIGHT_FORMATS.items() if entry.built and name != "bf16"]
    result = measure(arguments.threads, [BASE, *kv, *weights])
    arguments.out.parent.mkdir(parents=True, exist_ok=True)
    arguments.out.write_text(json.dumps(result, indent=2) + "\n")


if __name__ == "__main__":
    main()
