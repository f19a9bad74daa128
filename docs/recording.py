"""Records a run of `kvroll demo` as docs/demo.svg: `python docs/recording.py`. It takes the demo's two to three minutes.

Frames of the live screen, as it was drawn, one after the other, and the table at the end.
"""

import argparse
import asyncio
import io
import json
import re
from collections.abc import Callable
from pathlib import Path
from types import TracebackType
from typing import Any

from rich._export_format import CONSOLE_SVG_FORMAT
from rich.console import Console, Group, RenderableType
from rich.text import Text

from kvroll_cli.demo.picture import draw, summary
from kvroll_cli.demo.run import backend_of
from kvroll_cli.demo.scene import Scene
from kvroll_cli.demo.story import Story

COLUMNS, LINES = 116, 31
NUM_FRAMES = 14
FRAME_SECONDS = 1.6
LAST_FRAMES = 4
"""How many frames long the table at the end stands."""
OUT = Path(__file__).with_name("demo.svg")
"""The report goes beside it, as demo.json: README shows its table (`make docs`)."""
# Without the fonts that rich loads from elsewhere: a page that shows this loads nothing for it.
FORMAT = re.sub(r"@font-face \{\{.*?\}\}\s*", "", CONSOLE_SVG_FORMAT, flags=re.DOTALL).replace(
    "Fira Code, monospace", "monospace"
)


class Recorder:
    """A screen that keeps what it was shown."""

    def __init__(self) -> None:
        self.scenes: list[Scene] = []
        self.report: dict[str, Any] = {}

    def __enter__(self) -> "Recorder":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        return

    def say(self, text: str) -> None:
        print(text, flush=True)

    def show(self, look: Callable[[], Scene]) -> None:
        scene = look()
        if scene.streams:
            self.scenes.append(scene)

    def end(self, report: dict[str, Any]) -> None:
        self.report = report


def chosen(scenes: list[Scene]) -> list[Scene]:
    """Moments at which sessions stand elsewhere than before, evenly among all of them."""
    told = [scenes[0]]
    for scene in scenes[1:]:
        if [(w.group, w.phase, w.letters) for w in scene.workers] != [
            (w.group, w.phase, w.letters) for w in told[-1].workers
        ]:
            told.append(scene)
    count = min(NUM_FRAMES, len(told))
    return [told[round(at * (len(told) - 1) / max(1, count - 1))] for at in range(count)]


def frame(drawn: RenderableType, number: int) -> str:
    """One picture as SVG, with names of its own."""
    console = Console(
        record=True, width=COLUMNS, height=LINES, file=io.StringIO(), force_terminal=True, color_system="truecolor"
    )
    console.print(drawn)
    told = console.export_text(clear=False).count("\n")
    console.print("\n" * max(0, LINES - told - 2))  # frames of one size
    return console.export_svg(title="kvroll demo", code_format=FORMAT, unique_id=f"f{number}")


def film(frames: list[str], lengths: list[int]) -> str:
    """The frames over each other, one visible at a time, over and over."""
    total = sum(lengths) * FRAME_SECONDS
    size = re.search(r'viewBox="([^"]+)"', frames[0])
    assert size is not None
    style, body, since = [], [], 0
    still = len(frames) // 2  # what is seen where nothing is animated
    for number, (picture, length) in enumerate(zip(frames, lengths, strict=True)):
        begin, end = 100 * since / sum(lengths), 100 * (since + length) / sum(lengths)
        since += length
        style.append(
            f"@keyframes k{number} {{ 0%, {begin:.3f}% {{ visibility: hidden }} {begin + 0.001:.3f}%, {end:.3f}% {{ visibility: visible }}"
            f" {min(100, end + 0.001):.3f}%, 100% {{ visibility: hidden }} }}"
            f" .k{number} {{ visibility: {'visible' if number == still else 'hidden'};"
            f" animation: k{number} {total:.1f}s step-end infinite }}"
        )
        body.append(f'<g class="k{number}">{picture}</g>')
    return f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="{size[1]}"><style>{" ".join(style)}</style>{"".join(body)}</svg>\n'


def main() -> None:
    """Plays, picks, draws, writes."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", type=Path, default=OUT, help=f"the picture (default: {OUT.name} beside this)")
    out: Path = parser.parse_args().out
    recorder = Recorder()
    report = asyncio.run(Story(backend_of("Embedded"), recorder).run())
    if report["faults"]:
        raise SystemExit(f"expected a run without faults, found {report['faults']}")
    drawn: list[RenderableType] = [draw(scene, COLUMNS, LINES - 2) for scene in chosen(recorder.scenes)]
    drawn.append(Group(Text("What the clients counted", style="bold"), "", summary(report, COLUMNS)))
    frames = [frame(one, number) for number, one in enumerate(drawn)]
    out.with_suffix(".json").write_text(json.dumps(report, indent=2) + "\n", encoding="utf-8")
    out.write_text(film(frames, [1] * (len(frames) - 1) + [LAST_FRAMES]), encoding="utf-8")
    print(f"{out}: {len(frames)} frames, {out.stat().st_size / 1024:.0f} KiB")


if __name__ == "__main__":
    main()
