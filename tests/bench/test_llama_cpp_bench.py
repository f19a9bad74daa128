"""What llama.cpp allocated for models of real layers and heads, and how its log is read."""

import pytest

from kvroll_bench.llama_cpp import WRITTEN, Written, caches_of, token_bytes

LOG = """
0.00.018.569 I llama_kv_cache:        CPU KV buffer size =   224.00 MiB
0.00.128.454 I llama_kv_cache: size =  224.00 MiB (  2048 cells,  28 layers,  1/1 seqs), K (f16):  112.00 MiB, V (f16):  112.00 MiB
0.00.128.454 I llama_kv_cache: size =  224.00 MiB (  2048 cells,  28 layers,  1/1 seqs), K (f16):  112.00 MiB, V (f16):  112.00 MiB
"""
ALLOCATED = {
    "Qwen3-0.6B": {28: 114688.0},
    "Qwen3-32B": {64: 262144.0},
    "Gemma 3 4B": {5: 20480.0, 29: 118784.0},
}
"""Bytes of a token by layers, as llama.cpp of xllamacpp 2026.10.11549 printed them on 2026-12-01."""


def test_a_log_says_bytes_of_a_cell_by_layers() -> None:
    assert caches_of(LOG) == {(28, 114688.0)}
    assert caches_of("llama_model_load: error") == set()


@pytest.mark.parametrize("one", WRITTEN, ids=lambda one: one.model)
def test_ours_is_what_it_allocated(one: Written) -> None:
    assert token_bytes(one) == ALLOCATED[one.model]
