"""Every verb leaves by the table of docs/cli.md: 2 for a command line that is wrong by itself, 1 for what is not possible, and never with a
traceback.
"""

from collections.abc import Callable
from pathlib import Path

import pytest
from typer.testing import Result

from kvroll_cli.lazy import Verb
from kvroll_cli.main import VERBS

Kvroll = Callable[..., Result]
POOL_VERBS = ("history", "pause", "resume", "approve", "abort", "rollback", "retry")
CLUSTER = [*((verb, "chat") for verb in (*POOL_VERBS, "status", "plan", "dashboard", "wall", "advise"))]
GATE = ("gate", "--baseline", "http://127.0.0.1:9", "--candidate", "http://127.0.0.1:9")
WRONG = [
    ("nonsense",),
    ("plan",),
    ("plan", "chat", "-f", "pool.yaml"),
    ("wall",),
    ("advise",),
    ("status", "-w", "-o", "json"),
    ("status", "-o", "xml"),
    ("budget",),
    ("budget", "--model", "MODEL", "-m", "80GX"),
    ("budget", "--model", "MODEL", "-m", "-1"),
    ("wall", "--metrics-url", "http://127.0.0.1:9", "--device-bandwidth", "fast"),
    ("serve",),
    ("serve", "--model", "MODEL", "--port", "65536"),
    ("dashboard", "--port", "-1"),
    ("gate",),
    (*GATE, "--bar", "quality"),
    *((verb,) for verb in (*POOL_VERBS, "drain")),
]


@pytest.fixture
def nowhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """No cluster, and a folder with what a file name may turn out to be."""
    monkeypatch.setenv("KUBECONFIG", str(tmp_path / "no-kubeconfig"))
    monkeypatch.chdir(tmp_path)
    (tmp_path / "folder").mkdir()
    (tmp_path / "empty").touch()
    (tmp_path / "binary").write_bytes(bytes(range(256)))
    (tmp_path / "list").write_text("[1, 2]")
    return tmp_path


def left_with(code: int, done: Result, said: str) -> None:
    assert done.exit_code == code, f"{done.exit_code}: {done.output}{said}"
    assert "Traceback" not in done.output + said
    assert code != 1 or said.startswith("kvroll: "), said


@pytest.mark.parametrize("verb", VERBS, ids=[str(verb.name) for verb in VERBS])
def test_an_unknown_option_is_wrong_usage(kvroll: Kvroll, verb: Verb) -> None:
    assert kvroll(str(verb.name), "--no-such-option").exit_code == 2


@pytest.mark.parametrize("arguments", WRONG, ids=" ".join)
def test_wrong_usage_is_2(
    kvroll: Kvroll, nowhere: Path, capfd: pytest.CaptureFixture[str], arguments: tuple[str, ...]
) -> None:
    config = nowhere / "config.json"
    config.write_text(
        '{"model_type": "llama", "hidden_size": 64, "num_hidden_layers": 2, "num_attention_heads": 2, "vocab_size": 99, '
    )
    with config.open("a") as rest:
        rest.write('"intermediate_size": 128, "max_position_embeddings": 512}')
    done = kvroll(*(str(nowhere) if a == "MODEL" else a for a in arguments))
    left_with(2, done, capfd.readouterr().err)


@pytest.mark.parametrize("arguments", [*CLUSTER, ("drain", "chat", "chat-0")], ids=" ".join)
def test_no_kubeconfig_is_said(
    kvroll: Kvroll, nowhere: Path, capfd: pytest.CaptureFixture[str], arguments: tuple[str, ...]
) -> None:
    done = kvroll(*arguments)
    said = capfd.readouterr().err
    left_with(1, done, said)
    assert "expected a kubeconfig" in said


@pytest.mark.parametrize("found", ["folder", "empty", "binary", "list", "absent"])
@pytest.mark.parametrize(
    "arguments", [("plan", "-f"), ("advise", "--trace"), (*GATE, "--bar", "klP99<=1", "--dataset")],
    ids=["plan", "advise", "gate"],
)  # fmt: skip
def test_a_file_that_is_none_is_said(
    kvroll: Kvroll, nowhere: Path, capfd: pytest.CaptureFixture[str], arguments: tuple[str, ...], found: str
) -> None:
    done = kvroll(*arguments, str(nowhere / found))
    # A dataset that holds no question is refused as an argument; one that cannot be read is no fault of usage.
    code = 2 if arguments[0] == "gate" and found in ("empty", "list") else 1
    left_with(code, done, capfd.readouterr().err)
