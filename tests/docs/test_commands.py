"""Every command that we tell people to type exists, in the form in which it is written."""

import importlib.util
import json
import re
from pathlib import Path
from typing import Any

import pytest
import typer.main
import yaml
from typer.testing import CliRunner

from kvroll_cli.main import app
from kvroll_operator.api.crds import drain_crd, pool_crd
from tests.docs.written import ROOT, Written, commands_in, documents, messages, notes, split

# click's own names are private in typer's copy of it.
Click = Any

PAGES = documents()
WRITTEN = [command for page in PAGES for command in commands_in(page)] + notes() + messages()
PLUGINS = {"kvroll"}
VALUED = {"--metrics-url", "--model", "--trace", "--file", "-f", "--backend", "--report", "--bar"}
LLAMA_70B = {
    "architectures": ["LlamaForCausalLM"],
    "model_type": "llama",
    "hidden_size": 8192,
    "intermediate_size": 28672,
    "num_attention_heads": 64,
    "num_hidden_layers": 80,
    "num_key_value_heads": 8,
    "vocab_size": 128256,
    "max_position_embeddings": 131072,
    "tie_word_embeddings": False,
    "torch_dtype": "bfloat16",
}
KUBECTL_VERBS = frozenset(
    re.findall(
        r"\S+",
        """annotate api-resources apply auth cluster-info config cordon create delete describe diff drain edit events exec explain expose
        get label logs patch port-forward proxy replace rollout scale taint top uncordon version wait""",
    )
)
BUILT_IN = frozenset(
    re.findall(
        r"\S+",
        """pods pod po nodes node services service svc events configmaps configmap cm secrets secret jobs job namespaces namespace ns
        deployments deployment deploy controllerrevisions controllerrevision serviceaccounts crd crds customresourcedefinitions pdb""",
    )
)
WITH_RESOURCE = {"get", "describe", "delete", "patch", "scale", "annotate", "label", "edit", "wait", "explain", "logs"}


def ours(program: str) -> list[Written]:
    return [command for command in WRITTEN if command.words[0] == program]


def is_ours(words: tuple[str, ...]) -> bool:
    return words[0] == "kvroll" or words[:2] == ("kubectl", "kvroll")


def listed(commands: list[Written]) -> pytest.MarkDecorator:
    unique = {(c.place, c.words): c for c in commands}
    return pytest.mark.parametrize("command", unique.values(), ids=str)


# --- kvroll ----------------------------------------------------------------------------------------------------------


def parse(words: tuple[str, ...]) -> None:
    """Parses as `kvroll` would, and runs nothing.

    Raises:
        Exception: click's UsageError.
    """
    group: Click = typer.main.get_command(app)
    context = group.make_context("kvroll", list(words), resilient_parsing=not words)
    if words and not words[0].startswith("-"):
        name, command, rest = group.resolve_command(context, [*words])
        command.make_context(name, rest, parent=context)


def arguments(command: Written) -> tuple[str, ...]:
    """Without the program's name; what is left out in the text is left out here, and a placeholder number is a number."""
    words = command.words[1:] if command.words[0] == "kvroll" else command.words[2:]
    kept: list[str] = []
    for word in words:
        if word not in ("…", "...") or (kept and kept[-1].startswith("--")):
            kept.append({"N": "3", "SECONDS": "3", "…": "X", "...": "X"}.get(word, word.strip("[]")))
    # An option that a sentence names without its value.
    return (*kept, "X") if kept and kept[-1] in VALUED else tuple(kept)


def refusal(command: Written) -> str:
    """Why `kvroll` would not take the command; empty when it does."""
    words = arguments(command)
    verb, *rest = words or ("--help",)
    if not rest and verb.isalpha():  # a verb is named, not typed
        return "" if verb in verbs() else f"expected one of {sorted(verbs())}, found {verb}"
    try:
        parse(words)
    except SystemExit as ended:
        return f"exit {ended.code}" if ended.code else ""
    except Exception as error:  # click's own, and a type's: whatever it says is what a user would see
        return "" if type(error).__name__ == "Exit" else str(getattr(error, "message", error))
    return ""


@listed([command for command in WRITTEN if is_ours(command.words)])
def test_kvroll_takes_it(command: Written) -> None:
    assert not refusal(command), f"{command}: {refusal(command)}"


def verbs() -> set[str]:
    group: Click = typer.main.get_command(app)
    return set(group.list_commands(None))


@pytest.mark.parametrize(
    "line", ["kvroll statsu chat", "kvroll status --wach", "kvroll budget --modle DIR", "kvroll plan a b", "kvroll upp"]
)
def test_what_kvroll_does_not_take_is_found(line: str) -> None:
    assert refusal(split("x.md", line)[0])


def is_cheap(command: Written) -> bool:
    words = arguments(command)
    return words[:1] == ("budget",) and len(words) > 1 and not set(words) & {"DIR", "FILE", "PATH"}


@listed([command for command in WRITTEN if is_ours(command.words) and is_cheap(command)])
def test_cheap_verbs_answer(command: Written, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    for name in ("llama-3.1-70b", "llama-3.1-8b"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "config.json").write_text(json.dumps(LLAMA_70B))
    done = CliRunner().invoke(app, list(arguments(command)))
    refused = "nowhere" in command.words  # the documents show what a refusal looks like
    assert (done.exit_code != 0) == refused, f"{command}: exit {done.exit_code}: {done.output}"


# --- kubectl ---------------------------------------------------------------------------------------------------------


def resources() -> set[str]:
    """Every word that kubectl takes for a kind of ours, and those of Kubernetes that we name."""
    found = set(BUILT_IN)
    for crd in (pool_crd(), drain_crd()):
        names, group = crd["spec"]["names"], crd["spec"]["group"]
        words = {names["plural"], names["singular"], *names.get("shortNames", ()), *names.get("categories", ())}
        found |= words | {f"{word}.{group}" for word in (names["plural"], names["singular"])}
    return found


def check_kubectl(command: Written) -> None:
    words = list(command.words[1:])
    while words and words[0].startswith("-"):  # -n NAMESPACE
        words = words[2 if words[0] in ("-n", "--namespace", "--context") else 1 :]
    if not words:
        return
    verb, *rest = words
    assert verb in KUBECTL_VERBS | PLUGINS, f"{command}: kubectl has no verb {verb}"
    named = [word for word in rest if not word.startswith("-")]
    if verb not in WITH_RESOURCE or not named or {"-f", "--filename"} & set(rest):
        return
    for kind in named[0].partition("/")[0].partition(".spec")[0].split(","):
        assert kind in resources() or verb == "logs", (
            f"{command}: no resource {kind}; expected one of {sorted(resources())}"
        )


@listed([command for command in ours("kubectl") if not is_ours(command.words)])
def test_kubectl_knows_the_verb_and_the_resource(command: Written) -> None:
    check_kubectl(command)


@pytest.mark.parametrize(
    "line", ["kubectl get inferencepools.kvroll.dev", "kubectl -n x get inferencepools", "kubectl gte kvpools"]
)
def test_what_kubectl_does_not_know_is_found(line: str) -> None:
    with pytest.raises(AssertionError):
        check_kubectl(split("NOTES.txt", line)[0])


# --- make, helm, python ----------------------------------------------------------------------------------------------


def targets() -> set[str]:
    text = (ROOT / "Makefile").read_text()
    found = re.findall(r"^([a-z0-9][a-z0-9 -]*):(?!=)", text, re.M)
    return {name for line in found for name in line.split()}


@listed(ours("make"))
def test_make_has_the_target(command: Written) -> None:
    for word in command.words[1:]:
        name, is_variable, value = word.partition("=")
        if is_variable:
            folder = "tests/faults/test_{}.py" if "test-faults" in command.words else "bench/{}.py"
            part = folder.format(value.replace("-", "_"))
            assert name != "PART" or value == "PART" or (ROOT / part).exists(), f"{command}: no {part}"
        elif not word.startswith("-"):
            assert word in targets(), f"{command}: the Makefile has no target {word}"


@listed(ours("helm"))
def test_helm_is_given_charts_and_values_that_exist(command: Written) -> None:
    known = {
        "install",
        "upgrade",
        "uninstall",
        "template",
        "test",
        "lint",
        "get",
        "list",
        "status",
        "rollback",
        "package",
    }
    words = [word for word in command.words[1:] if word not in ("…", "...")]
    if not words:
        return
    assert words[0] in known, f"{command}: helm has no verb {words[0]}"
    charts = [word for word in words if word.startswith("charts/")]
    for chart in charts:
        assert (ROOT / chart / "Chart.yaml").exists(), f"{command}: no chart at {chart}"
    for at, word in enumerate(words):
        if word == "--set" and charts:
            check_values(command, charts[0], words[at + 1])


def check_values(command: Written, chart: str, given: str) -> None:
    """Every path of a `--set` is one of the chart's values, or lies in one that is a map for the user to fill."""
    values = yaml.safe_load((ROOT / chart / "values.yaml").read_text())
    for assignment in given.split(","):
        place: Any = values
        for key in assignment.partition("=")[0].split("."):
            if isinstance(place, dict) and not place:
                break
            assert isinstance(place, dict) and key in place, f"{command}: {chart} has no value {assignment}"  # noqa: PT018
            place = place[key]


@listed([command for program in ("python", "python3") for command in ours(program)])
def test_python_has_the_module_or_the_file(command: Written) -> None:
    words = command.words[1:]
    if words[:1] == ("-m",) and words[1] not in ("pip", "venv"):
        assert importlib.util.find_spec(words[1]), f"{command}: no module {words[1]}"
    elif words and words[0].endswith(".py"):
        assert (ROOT / words[0]).exists(), f"{command}: no file {words[0]}"


def test_there_is_something_to_check() -> None:
    """A change of the documents' form must not empty the lists above."""
    assert len([c for c in WRITTEN if is_ours(c.words)]) > 40
    assert len(ours("kubectl")) > 30
    assert len(ours("make")) > 20
    assert {c.place.partition(":")[0] for c in WRITTEN} >= {
        "README.md",
        "docs/cli.md",
        "charts/kvroll/templates/NOTES.txt",
    }
    assert any(c.place.startswith("cli/") for c in messages())
