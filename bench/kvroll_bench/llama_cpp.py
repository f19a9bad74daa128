"""What llama.cpp itself allocates: models of real layers and heads, tiny in every other size, are written as GGUF and opened by it.

It needs `pip install xllamacpp gguf`, which are no dependency of the project: without them the rows are not there, and the report says
so. A cache line of its log says cells, layers and MiB, from which follow the bytes of one cell in one layer.
"""

import importlib
import importlib.util
import re
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from kvroll_core.budget import ModelShape
from kvroll_core.precision.formats import find_kv_format

NEEDED = ("xllamacpp", "gguf")
CELLS = 2048
_LINE = re.compile(r"llama_kv_cache: size =\s*([\d.]+) MiB \(\s*(\d+) cells,\s*(\d+) layers")
_HIDDEN, _INNER, _VOCAB = 64, 64, 64


@dataclass(frozen=True)
class Written:
    """A model: its word in GGUF, the sizes that its cache depends on as its config.json has them, and keys of GGUF besides."""

    model: str
    word: str
    config: dict[str, Any]
    keys: dict[str, int] = field(default_factory=dict)
    norms: tuple[str, ...] = ()


WRITTEN = (
    Written("Qwen3-0.6B", "qwen3", {"model_type": "qwen3", "num_hidden_layers": 28, "num_attention_heads": 16, "num_key_value_heads": 8,
            "head_dim": 128}),
    Written("Qwen3-32B", "qwen3", {"model_type": "qwen3", "num_hidden_layers": 64, "num_attention_heads": 64, "num_key_value_heads": 8,
            "head_dim": 128}),
    Written("Gemma 3 4B", "gemma3", {"model_type": "gemma3_text", "num_hidden_layers": 34, "num_attention_heads": 8,
            "num_key_value_heads": 4, "head_dim": 256, "sliding_window": 1024}, {"gemma3.attention.sliding_window": 1024},
            ("post_attention_norm", "post_ffw_norm")),
)  # fmt: skip


def missing() -> list[str]:
    """What is not installed."""
    return [name for name in NEEDED if importlib.util.find_spec(name) is None]


def allocated() -> Iterator[dict[str, Any]]:
    """A row for each cache that it made: `said` and `ours` in bytes of one token in all layers of that cache."""
    for one in WRITTEN:
        ours = token_bytes(one)
        for layers, said in sorted(_caches(one)):
            mine = ours.get(layers, 0.0)
            yield {"engine": "llama.cpp", "model": one.model, "source": "bench/kvroll_bench/llama_cpp.py", "layers": layers,
                   "unit": "bytes a token", "said": said, "ours": mine, "error": abs(mine / said - 1)}  # fmt: skip


def token_bytes(one: Written) -> dict[int, float]:
    """By our arithmetic: bytes of a token in 16 bits in all layers of a kind, by how many layers they are."""
    sizes = {
        "hidden_size": _HIDDEN,
        "intermediate_size": _INNER,
        "vocab_size": _VOCAB,
        "max_position_embeddings": CELLS,
    }
    groups = ModelShape.from_config(sizes | one.config).kv_groups
    kv = find_kv_format("fp16")
    return {g.layers: g.session_bytes(1, kv, residual_tokens=0, whole_pages=False) for g in groups}


def _caches(one: Written) -> set[tuple[int, float]]:
    """(layers, bytes of one cell in all of them) of each cache in its log.

    Raises:
        RuntimeError: it made none.
    """
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "model.gguf"
        _write(file, one)
        done = subprocess.run(
            [sys.executable, "-c", _OPEN, str(file), str(CELLS)], capture_output=True, text=True, timeout=60
        )
    found = caches_of(done.stdout + done.stderr)
    if not found:
        raise RuntimeError(f"expected a line of llama_kv_cache for {one.model}, found {done.stderr[-300:]!r}")
    return found


def caches_of(log: str) -> set[tuple[int, float]]:
    """The same of a log; it tells of each twice, once while it tries what fits."""
    return {(int(layers), float(mib) * 2**20 / int(cells)) for mib, cells, layers in _LINE.findall(log)}


_OPEN = """
import sys
import xllamacpp
asked = xllamacpp.CommonParams()
asked.model.path, asked.n_ctx = sys.argv[1], int(sys.argv[2])
asked.n_parallel, asked.warmup, asked.n_gpu_layers, asked.verbosity = 1, False, 0, 5
server = xllamacpp.Server(asked)
"""


def _write(file: Path, one: Written) -> None:
    gguf, numpy = importlib.import_module("gguf"), importlib.import_module("numpy")
    writer = gguf.GGUFWriter(str(file), one.word)
    layers, heads = one.config["num_hidden_layers"], one.config["num_attention_heads"]
    kv, dim = one.config["num_key_value_heads"], one.config["head_dim"]
    counts: list[tuple[Callable[[Any], None], Any]] = [
        (writer.add_block_count, layers), (writer.add_context_length, CELLS), (writer.add_embedding_length, _HIDDEN),
        (writer.add_feed_forward_length, _INNER), (writer.add_head_count, heads), (writer.add_head_count_kv, kv),
        (writer.add_key_length, dim), (writer.add_value_length, dim), (writer.add_layer_norm_rms_eps, 1e-6),
        (writer.add_rope_freq_base, 1e6), (writer.add_vocab_size, _VOCAB), (writer.add_tokenizer_model, "none"),
    ]  # fmt: skip
    for add, value in counts:
        add(value)
    for key, count in one.keys.items():
        writer.add_uint32(key, count)
    shapes: dict[str, tuple[int, ...]] = {
        "token_embd": (_VOCAB, _HIDDEN),
        "output_norm": (_HIDDEN,),
        "output": (_VOCAB, _HIDDEN),
    }
    every: dict[str, tuple[int, ...]] = {
        "attn_norm": (_HIDDEN,), "attn_q": (heads * dim, _HIDDEN), "attn_k": (kv * dim, _HIDDEN), "attn_v": (kv * dim, _HIDDEN),
        "attn_output": (_HIDDEN, heads * dim), "attn_q_norm": (dim,), "attn_k_norm": (dim,), "ffn_norm": (_HIDDEN,),
        "ffn_gate": (_INNER, _HIDDEN), "ffn_down": (_HIDDEN, _INNER), "ffn_up": (_INNER, _HIDDEN),
    } | dict.fromkeys(one.norms, (_HIDDEN,))  # fmt: skip
    shapes |= {f"blk.{layer}.{name}": shape for layer in range(layers) for name, shape in every.items()}
    for name, shape in shapes.items():
        writer.add_tensor(f"{name}.weight", numpy.zeros(shape, numpy.float16 if len(shape) > 1 else numpy.float32))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
