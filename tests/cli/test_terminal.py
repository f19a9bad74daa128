"""A file or a pipe has no width and maybe no Unicode; a terminal may be dumb."""

import io
import json
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from rich.console import Console
from rich.text import Text
from typer.testing import Result

from kvroll_cli import terminal
from kvroll_cli.watch import watch_view
from tests.cli.conftest import Recorded
from tests.cli.recorded import drain, pool

Kvroll = Callable[..., Result]
NAME = "a-pool-whose-name-is-as-long-as-a-label-may-be-sixty-three-char"
MODEL = "an-organisation/" + "a-model-with-a-name-of-two-hundred-columns-" * 4 + "instruct"
SENTENCE = " ".join(f"reason number {number} why no node has room for one more worker;" for number in range(30))


def long_pool() -> dict[str, object]:
    found = pool()
    found["metadata"]["name"] = NAME
    found["spec"]["model"]["name"] = MODEL
    found["status"]["rollout"]["message"] = SENTENCE
    found["status"]["conditions"][3]["message"] = SENTENCE
    return found


def lines_of(text: str) -> list[str]:
    return [line.rstrip() for line in text.splitlines()]


def test_status_wraps_and_cuts_nothing_in_a_pipe(api: Recorded, kvroll: Kvroll) -> None:
    api.listed("kvpools", long_pool())
    error = f"moving failed: {SENTENCE}"
    found = drain(lastError=error)
    found["metadata"]["labels"] = {**found["metadata"].get("labels", {}), "kvroll.dev/pool": NAME}
    api.listed("kvdrains", found)
    text = kvroll("status").stdout
    (row,) = [line for line in lines_of(text) if line.startswith("demo/")]
    assert NAME in row
    assert MODEL in row
    (condition,) = [line for line in lines_of(text) if line.startswith("CapacityFeasible")]
    assert condition.endswith(SENTENCE.strip())
    assert "…" not in text


def test_the_table_of_pools_wraps_and_cuts_nothing_in_a_pipe(api: Recorded, kvroll: Kvroll) -> None:
    second = long_pool()
    second["metadata"] = {**pool()["metadata"], "name": "other", "uid": "p-2"}
    api.listed("kvpools", long_pool(), second)
    api.listed("kvdrains")
    header, *rows = lines_of(kvroll("status").stdout)
    assert [row.split()[:2] for row in rows] == [[f"demo/{NAME}", MODEL], ["demo/other", MODEL]]
    assert header.split()[-1] == "WALL"


def test_advise_gives_every_reason_a_line_of_its_own_in_a_pipe(kvroll: Kvroll, tmp_path: Path) -> None:
    trace = tmp_path / ("a-trace-with-a-long-name-" * 6 + ".jsonl")
    requests = [
        {"arrival": i / 10, "duration": 60, "output_tokens": 400, "prompt": "the same words " * 40 + str(i)}
        for i in range(80)
    ]
    trace.write_text("\n".join(json.dumps(one) for one in requests))
    (tmp_path / "config.json").write_text(
        json.dumps(
            {
                "num_hidden_layers": 32,
                "hidden_size": 4096,
                "num_attention_heads": 32,
                "num_key_value_heads": 8,
                "intermediate_size": 14336,
                "vocab_size": 128256,
                "max_position_embeddings": 131072,
                "model_type": "llama",
            }
        )
    )
    done = kvroll("advise", "--trace", str(trace), "--model", str(tmp_path), "--device-memory", "18GiB")
    assert done.exit_code == 0, done.output
    table = lines_of(done.stdout)[lines_of(done.stdout).index("") + 1 :]
    assert [line.split()[0] for line in table[1:] if line] == ["1", "2", "3", "4", "5"], "a reason was folded"
    assert max(map(len, table)) > 150, "this says nothing where no line is long"


class Latin(io.TextIOWrapper):
    """stdout of a locale without Unicode."""

    def __init__(self) -> None:
        super().__init__(io.BytesIO(), encoding="latin-1")

    def written(self) -> str:
        self.flush()
        assert isinstance(self.buffer, io.BytesIO)
        return self.buffer.getvalue().decode("latin-1")


def test_a_locale_without_unicode_gets_look_alikes(monkeypatch: pytest.MonkeyPatch) -> None:
    out = Latin()
    monkeypatch.setattr(sys, "stdout", out)
    terminal.console().print(Text("bf16 → int8 … “held” 7 – 猫"))
    assert out.written() == 'bf16 -> int8 ... "held" 7 - ?\n'


def test_status_is_written_in_a_locale_without_unicode(
    api: Recorded, kvroll: Kvroll, monkeypatch: pytest.MonkeyPatch
) -> None:
    from kvroll_cli.commands.status import view as status_view
    from kvroll_cli.kube.cluster import Cluster
    from kvroll_cli.kube.snapshot import take

    api.listed("kvpools", long_pool())
    api.listed("kvdrains")
    found = take(Cluster.connect(namespace=None, all_namespaces=False, context=None), None)
    out = Latin()
    monkeypatch.setattr(sys, "stdout", out)
    terminal.console().print(status_view.details(found[0], None))
    assert NAME in out.written()


def test_a_dumb_terminal_is_written_to_line_by_line() -> None:
    looks = iter(["1/3", "2/3"])
    out = io.StringIO()
    console = Console(file=out, force_terminal=True, width=80, _environ={"TERM": "dumb"})

    def sleep(seconds: float) -> None:
        if out.getvalue().count("\n") == 2:
            raise KeyboardInterrupt

    watch_view(lambda: Text(next(looks)), console, interval_seconds=1, sleep=sleep)
    assert out.getvalue() == "1/3\n2/3\n"
