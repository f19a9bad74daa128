"""The importer, and the real model that it gives."""

import json
from pathlib import Path

import gguf
import numpy as np
import pytest

from kvroll_worker.engine.engine import Engine
from kvroll_worker.models.folder import MANIFEST, atomic_folder, is_intact
from kvroll_worker.models.gguf import GgufError, build_tokenizer, import_gguf, unpermute
from kvroll_worker.models.smollm2 import ensure_model
from kvroll_worker.request import Sampling, SessionState
from tests.doubles.engine_settings import engine_config
from tests.worker.tiny_model import collect


def test_unpermute_undoes_what_the_gguf_converter_does() -> None:
    heads, rows, width = 3, 24, 5
    original = np.arange(rows * width, dtype=np.float32).reshape(rows, width)
    permuted = original.reshape(heads, 2, rows // heads // 2, width).swapaxes(1, 2).reshape(rows, width)
    assert (unpermute(permuted, heads) == original).all()


def _write_nested(folder: Path) -> None:
    with atomic_folder(folder, "source 1") as target:
        (target / "a").write_text("half")
        (target / "nested").mkdir()  # only flat folders have manifests


def test_a_folder_appears_whole_or_not_at_all(tmp_path: Path) -> None:
    folder = tmp_path / "models" / "x"
    with pytest.raises(IsADirectoryError):
        _write_nested(folder)
    assert list((tmp_path / "models").iterdir()) == []
    for content in ("first", "second"):
        with atomic_folder(folder, "source 1") as target:
            (target / "a").write_text(content)
        assert (folder / "a").read_text() == content
    assert [path.name for path in (tmp_path / "models").iterdir()] == ["x"]
    assert is_intact(folder, "source 1")
    assert not is_intact(folder, "source 2")
    (folder / "a").write_text("Second")
    assert not is_intact(folder, "source 1")


@pytest.mark.parametrize("manifest", ["", "[]", "{}", '{"source": "s", "files": {"gone": "0"}}'])
def test_a_damaged_manifest_is_not_intact(tmp_path: Path, manifest: str) -> None:
    (tmp_path / MANIFEST).write_text(manifest)
    assert not is_intact(tmp_path, "s")


def test_digits_stand_alone_and_control_tokens_are_special() -> None:
    tokens = ["<|im_start|>", "a", "b", "1", "2", "12", "ab", "Ġ"]
    fields = {
        "tokenizer.ggml.tokens": tokens,
        "tokenizer.ggml.merges": ["1 2", "a b"],
        "tokenizer.ggml.token_type": [3, 1, 1, 1, 1, 1, 1, 1],
    }
    tokenizer = build_tokenizer(fields)
    assert tokenizer.encode("ab12 ab<|im_start|>").tokens == ["ab", "1", "2", "Ġ", "ab", "<|im_start|>"]
    assert tokenizer.decode(tokenizer.encode("ab12<|im_start|>").ids) == "ab12"


@pytest.fixture(scope="module")
def smollm2() -> Path:
    return ensure_model()


@pytest.mark.slow
@pytest.mark.model
def test_a_second_look_at_the_model_only_verifies(smollm2: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with monkeypatch.context() as patch:
        patch.setattr("kvroll_worker.models.smollm2._fetch", lambda target: pytest.fail("fetched again"))
        assert ensure_model(smollm2) == smollm2
    config = json.loads((smollm2 / "config.json").read_text())
    assert (config["num_hidden_layers"], config["num_key_value_heads"], config["rms_norm_eps"]) == (30, 3, 1e-5)


@pytest.mark.slow
@pytest.mark.model
@pytest.mark.parametrize(("weights", "kv_cache"), [("bf16", "bf16"), ("int8", "int8")])
def test_the_capital_of_france_is_paris(smollm2: Path, ops_name: str, weights: str, kv_cache: str) -> None:
    engine = Engine(
        engine_config(
            smollm2, weights=weights, kv_cache=kv_cache, max_model_len=512, kv_memory_bytes=32 << 20, ops=ops_name
        )
    )
    greedy = Sampling(temperature=0, max_tokens=3)
    engine.submit(
        SessionState("plain", "smollm2", engine.tokenizer.encode("The capital of France is"), sampling=greedy)
    )
    question = engine.tokenizer.render_chat([{"role": "user", "content": "What is the capital of France?"}])
    engine.submit(SessionState("chat", "smollm2", question, sampling=Sampling(temperature=0, max_tokens=24)))
    emitted = collect(engine)
    assert emitted["plain"][0][1] == " Paris"
    assert "".join(step[1] for step in emitted["chat"]) == "The capital of France is Paris."
    assert emitted["chat"][-1][:3] == (2, "", "stop")


def write_gguf(path: Path, architecture: str) -> Path:
    writer = gguf.GGUFWriter(path, architecture)
    writer.add_tokenizer_model("gpt2")
    writer.add_tokenizer_pre("smollm")
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path


def test_a_gguf_of_another_architecture_is_refused(tmp_path: Path) -> None:
    with pytest.raises(GgufError, match=r"expected general\.architecture = 'llama', found 'gemma'"):
        import_gguf(write_gguf(tmp_path / "x.gguf", "gemma"), tmp_path)
