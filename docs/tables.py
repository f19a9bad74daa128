"""Renders the tables that documents share with code, between `<!-- begin: NAME -->` and `<!-- end: NAME -->`.

`python docs/tables.py` rewrites them, `--check` fails when one is stale.
"""

import json
import re
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import yaml

from kvroll_core.budget import FAMILIES
from kvroll_core.precision.formats import KV_FORMATS, PAGE_TOKENS, WEIGHT_FORMATS

ROOT = Path(__file__).resolve().parents[1]
HEAD_DIM = 128
MEASURED = ROOT / "docs/quality.json"
JUDGED = ROOT / "docs/gate.json"
RECORDED = ROOT / "docs/demo.json"
SIMULATED = {
    "bf16": (99.61, 0.00005, -0.02),
    "int8": (98.05, 0.00111, 0.22),
    "fp8_e4m3": (95.05, 0.00717, 0.43),
    "mxfp8": (93.80, 0.01201, 1.19),
    "kivi4": (97.33, 0.00246, 0.34),
    "kivi2": (81.90, 0.13783, 16.03),
}
"""Top-1 in percent, mean KL and perplexity in percent: the formats simulated in torch on an fp32 base (6,144 tokens of technical
English in windows of 768, kivi with the newest 128 tokens kept)."""
MARGINS = (0.2, 0.5, 1.0, 2.0, 3.0)
BAR = 0.97
LLAMA_70B = {"layers": 80, "kv_heads": 8, "head_dim": HEAD_DIM}
WEIGHT_BLOCK = 64


def kv_table() -> str:
    """Bytes of every KV dtype, with a model that everybody knows as the scale."""
    lines = [
        f"| KV cache | bytes a token, layer, KV head (head_dim {HEAD_DIM}) | Llama-3.1-70B: a token | {PAGE_TOKENS}-token page | built |",
        "|---|---|---|---|---|",
    ]
    for name, dtype in KV_FORMATS.items():
        token_kib, page_mib = dtype.token_bytes(**LLAMA_70B) / 2**10, dtype.page_bytes(**LLAMA_70B) / 2**20
        built = "yes" if dtype.built else "no"
        lines.append(
            f"| `{name}` | {dtype.head_token_bytes(HEAD_DIM):g} | {token_kib:g} KiB | {page_mib:.2f} MiB | {built} |"
        )
    return "\n".join(lines)


def weights_table() -> str:
    """Bytes of every weight dtype."""
    lines = [f"| weights | bytes an element (block {WEIGHT_BLOCK}) | built |", "|---|---|---|"]
    lines += [
        f"| `{n}` | {f.element_bytes(WEIGHT_BLOCK):g} | {'yes' if f.built else 'no'} |"
        for n, f in WEIGHT_FORMATS.items()
    ]
    return "\n".join(lines)


def families_table() -> str:
    """Every family that the budget counts, by what its layers keep, and where that was read."""
    by_kind: dict[str, list[str]] = {}
    for family in FAMILIES.values():
        by_kind.setdefault(family.attention, []).append(f"`{family.name}`" + ("" if family.counted else "*"))
    lines = ["| what its layers keep | `model_type` |", "|---|---|"]
    lines += [f"| {kind} | {', '.join(sorted(names))} |" for kind, names in sorted(by_kind.items())]
    return "\n".join(
        [*lines, "", f"{len(FAMILIES)} families; of those with a star the weights are not counted by a formula."]
    )


def values_table() -> str:
    """Every value of charts/kvroll: its path, its default, and the `# --` comment above it."""
    text = (ROOT / "charts/kvroll/values.yaml").read_text()
    meanings = dict(_comments(text))
    lines = ["| value | default | meaning |", "|---|---|---|"]
    for path, default in _leaves(yaml.safe_load(text)):
        lines.append(f"| `{path}` | `{json.dumps(default)}` | {meanings.get(path, '')} |")
    return "\n".join(lines)


def claims_table() -> str:
    """Every claim of tests/core/claims: what it says, what we found, and what is not reproduced."""
    # The table lives with its tests, which are no part of the distribution.
    sys.path.insert(0, str(ROOT))
    from tests.core.claims.table import CLAIMS

    lines = ["| claim | source | here |", "|---|---|---|"]
    for claim in CLAIMS:
        found = [_figure(f) for f in claim.figures]
        if claim.bench:
            keys = ", ".join(f"`{key}`" for key in claim.bench.keys)
            found.append(f"measured by `{claim.bench.script}` ({claim.bench.says}): {keys} of `{claim.bench.result}`")
        if claim.not_reproduced:
            because = ":" if claim.figures else ", because"
            found.append(f"not reproduced{because} {claim.not_reproduced}")
        remark = f" {claim.remark}" if claim.remark else ""
        lines.append(f"| {claim.claim} | {claim.source} | {'; '.join(found).removesuffix('.')}.{remark} |")
    return "\n".join(lines)


def _figure(figure: Any) -> str:
    bound = "at least " if figure.at_least else "at most " if figure.at_most else ""
    unit = f" {figure.unit}" if figure.unit else ""
    return f"{figure.name}: **{_significant(figure.compute())}{unit}** (claimed {bound}{_significant(figure.claimed)})"


def _significant(value: float) -> str:
    return f"{value:.0f}" if value >= 100 else f"{value:.3g}"


def quality_rows() -> list[dict[str, Any]]:
    """What `make bench PART=engine` measured when docs/quality.json was renewed."""
    rows: list[dict[str, Any]] = json.loads(MEASURED.read_text())["quality"]
    return rows


def kv_quality_table() -> str:
    """Every measured KV dtype at weights bf16, beside what the simulation gave."""
    lines = [
        "| KV cache | top-1 | KL mean | KL p99 | perplexity | needles found | simulated: top-1 | KL mean | perplexity |",
        "|---|---|---|---|---|---|---|---|---|",
    ]
    for row in quality_rows():
        if row["weights"] == "bf16":
            top1, kl, ppl = SIMULATED.get(row["kv"], (None, None, None))
            simulated = "| – | – | – |" if top1 is None else f"| {top1:.2f} % | {kl:.5f} | {ppl:+.2f} % |"
            lines.append(f"| `{row['kv']}` {_measured(row)} {simulated}")
    return "\n".join(lines)


def weight_quality_table() -> str:
    """Every measured weight dtype at KV bf16."""
    lines = ["| weights | top-1 | KL mean | KL p99 | perplexity | needles found |", "|---|---|---|---|---|---|"]
    lines += [f"| `{row['weights']}` {_measured(row)} |" for row in quality_rows() if row["kv"] == "bf16"]
    return "\n".join(lines)


def needle_table() -> str:
    """Needles found by length of the haystack, and over all lengths by depth, of every measured pair."""
    rows = quality_rows()
    by_length, by_depth = "needle_recall_by_length", "needle_recall_by_depth"
    lengths, depths = sorted(rows[0][by_length], key=int), sorted(rows[0][by_depth], key=float)
    lines = [
        f"| weights | KV cache | {' | '.join(f'{one} tokens' for one in lengths)} | {' | '.join(f'depth {one}' for one in depths)} |",
        "|---" * (2 + len(lengths) + len(depths)) + "|",
    ]
    for row in rows:
        found = [*(row[by_length][one] for one in lengths), *(row[by_depth][one] for one in depths)]
        lines.append(f"| `{row['weights']}` | `{row['kv']}` | {' | '.join(f'{one:.0%}' for one in found)} |")
    return "\n".join(lines)


def error_rates_table() -> str:
    """How often the gate's judge was wrong, by what was resampled and how far the bar is from the truth."""
    lines = [
        "| resampled | margin, points | wrong Fail | undecided | prompts | wrong Pass | undecided | prompts |",
        "|---|---|---|---|---|---|---|---|",
    ]
    rows = [row for row in json.loads(JUDGED.read_text())["error_rates"] if row["margin"] in MARGINS]
    kinds = {
        "orders of the dataset": [r for r in rows if r["over"] == "dataset" and not r["noise"]],
        "samples": [r for r in rows if r["over"] == "sample" and not r["noise"]],
        "samples, noisy baseline": [r for r in rows if r["noise"] and r["candidate"].split()[0] != "bf16"],
        "the baseline again, orders": [r for r in rows if r["noise"] and _is_itself(r, "dataset")],
        "the baseline again, samples": [r for r in rows if r["noise"] and _is_itself(r, "sample")],
    }
    for kind, found in kinds.items():
        for margin in MARGINS:
            sides = [
                [r for r in found if r["margin"] == margin and r["error"] == error]
                for error in ("false reject", "false accept")
            ]
            if any(sides):
                lines.append(f"| {kind} | {margin:g} | {' | '.join(_side(side) for side in sides)} |")
    return "\n".join(lines)


def _is_itself(row: dict[str, Any], over: str) -> bool:
    return bool(row["candidate"].split()[0] == "bf16" and row["over"] == over)


def _side(rows: list[dict[str, Any]]) -> str:
    if not rows:
        return "– | – | –"
    trials, false = sum(row["trials"] for row in rows), sum(row["false"] for row in rows)
    undecided = sum(row["undecided_rate"] * row["trials"] for row in rows) / trials
    prompts = sum(row["mean_samples"] * row["trials"] for row in rows) / trials
    return f"{false} of {trials} | {undecided:.0%} | {prompts:.0f}"


def candidates_table() -> str:
    """The verdicts at one bar, by candidate."""
    rows = [row for row in json.loads(JUDGED.read_text())["error_rates"] if row["bar"] == BAR and not row["noise"]]
    lines = [
        "| candidate | true value | resampled | wrong | undecided | prompts |",
        "|---|---|---|---|---|---|",
    ]
    for row in rows:
        lines.append(
            f"| `{row['candidate']}` | {row['true_value']:.4f} | {'orders' if row['over'] == 'dataset' else 'samples'} |"
            f" {row['false']} of {row['trials']} | {row['undecided_rate']:.0%} | {row['mean_samples']:.0f} of {row['prompts']} |"
        )
    return "\n".join(lines)


def _measured(row: dict[str, Any]) -> str:
    hits = f"{round(row['needle_recall'] * row['needles'])} of {row['needles']}"
    return (
        f"| {row['top1_agreement']:.2%} | {row['kl_mean']:.5f} | {row['kl_p99']:.4f} | {row['ppl_delta']:+.2%} | {hits}"
    )


def _leaves(values: dict[str, Any], prefix: str = "") -> Iterator[tuple[str, Any]]:
    for key, value in values.items():
        if isinstance(value, dict) and value:
            yield from _leaves(value, f"{prefix}{key}.")
        else:
            yield f"{prefix}{key}", value


def _comments(text: str) -> Iterator[tuple[str, str]]:
    stack: list[tuple[int, str]] = []
    comment = ""
    for line in text.splitlines():
        if found := re.match(r"\s*# -- (.*)", line):
            comment = found.group(1)
        elif found := re.match(r"(\s*)(\w+):", line):
            stack = [(depth, key) for depth, key in stack if depth < len(found.group(1))]
            stack.append((len(found.group(1)), found.group(2)))
            if comment:
                yield ".".join(key for _, key in stack), comment
            comment = ""


def demo_table() -> str:
    """What the recorded run of the demo came to."""
    report = json.loads(RECORDED.read_text())
    lines = [
        "| change | held | converted | replayed | finished | lost | tokens delivered | doubled | missing | stall p50, max | roll |",
        "|---|---|---|---|---|---|---|---|---|---|---|",
    ]
    for change in report["changes"]:
        sessions, tokens, stall = change["sessions"], change["tokens"], change["stall_ms"]
        words = [
            f"{name} {change['from'][key]} → {change['to'][key]}"
            for key, name in (("kvCache", "KV cache"), ("weights", "weights"))
            if change["from"][key] != change["to"][key]
        ]
        counts = [str(sessions[way]) for way in ("held", "converted", "replayed", "finished", "lost")]
        counts += [str(tokens[what]) for what in ("delivered", "duplicated", "missing")]
        felt = f"{stall['p50'] / 1000:.1f} s, {stall['max'] / 1000:.1f} s"
        lines.append(f"| {', '.join(words)} | {' | '.join(counts)} | {felt} | {change['roll_seconds']:.0f} s |")
    return "\n".join(lines)


TABLES: dict[str, tuple[str, Callable[[], str]]] = {
    "kv-formats": ("docs/formats.md", kv_table),
    "weight-formats": ("docs/formats.md", weights_table),
    "families": ("docs/budget.md", families_table),
    "claims": ("docs/claims.md", claims_table),
    "kv-quality": ("docs/quality.md", kv_quality_table),
    "weight-quality": ("docs/quality.md", weight_quality_table),
    "needles": ("docs/quality.md", needle_table),
    "error-rates": ("docs/gate.md", error_rates_table),
    "error-rates-at-a-bar": ("docs/gate.md", candidates_table),
    "demo": ("README.md", demo_table),
    "values": ("charts/kvroll/README.md", values_table),
}


def rendered(text: str, name: str, table: str) -> str:
    """`text` with that table in its place.

    Raises:
        ValueError: the document has no place for it, or more than one.
    """
    begin, end = f"<!-- begin: {name} -->", f"<!-- end: {name} -->"
    if text.count(begin) != 1 or text.count(end) != 1:
        raise ValueError(f"expected one `{begin}` and one `{end}`, found {text.count(begin)} and {text.count(end)}")
    head, _, rest = text.partition(begin)
    return f"{head}{begin}\n{table}\n{end}{rest.partition(end)[2]}"


def main(*, check: bool) -> int:
    """Writes every table, or with `check` only says which are stale; 1 when one is."""
    stale = []
    for name, (document, table) in TABLES.items():
        path = ROOT / document
        before = path.read_text()
        after = rendered(before, name, table())
        if after != before:
            stale.append(f"{document} ({name})")
            if not check:
                path.write_text(after)
    if stale:
        print(f"{'stale, run make docs' if check else 'rendered'}: {', '.join(stale)}", file=sys.stderr)
    return int(check and bool(stale))


if __name__ == "__main__":
    sys.exit(main(check="--check" in sys.argv[1:]))
