"""What the demo shows: on terminals of every width, and where nobody looks at a terminal."""

import io
from typing import Any

import pytest
from rich.console import Console

from kvroll_cli.demo.load.transcript import TokenArrival, Transcript
from kvroll_cli.demo.picture import draw, summary
from kvroll_cli.demo.scene import Precisions, Scene, scene
from kvroll_cli.demo.screen import LineScreen, LiveScreen, screen_of

TEXT = "The keeper rose before dawn, trimmed the wick and wrote the weather into his logbook — 猫猫猫 and so on. " * 3


def pod(uid: str, group: int, revision: str) -> dict[str, Any]:
    labels = {"kvroll.dev/group": str(group), "kvroll.dev/revision": revision}
    return {"metadata": {"name": f"demo-{revision}-{group}-0-0", "uid": uid, "labels": labels}}


def pool() -> dict[str, Any]:
    return {
        "metadata": {"generation": 2},
        "spec": {"precision": {"weights": "bf16", "kvCache": "int8"}},
        "status": {
            "observedGeneration": 2,
            "updateRevision": "bbbb2222",
            "precisionMix": [{"revision": "aaaa1111", "weights": "bf16", "kvCache": "bf16", "workers": 3}],
            "groups": [
                {"id": 0, "phase": "Draining", "sessions": 7},
                {"id": 1, "phase": "Warming", "sessions": 6},
                {"id": 2, "phase": "Stable", "sessions": 7},
            ],
            "rollout": {"sessions": {"held": 7, "converted": 3, "lost": 0}},
        },
    }


def stream(*uids: str, ended: bool = False) -> Transcript:
    arrivals = [TokenArrival(i, str(i), 5, float(i)) for i in range(4)]
    return Transcript(
        prompt="?",
        arrivals=arrivals,
        text=TEXT,
        workers=[f"{uid}/boot" for uid in uids],
        ended_seconds=9.0 if ended else None,
    )


def moment(num_streams: int = 20) -> Scene:
    slots = [stream("u0", "v0") if i == 0 else stream(f"u{i % 3}", ended=i == 4) for i in range(num_streams)]
    precisions = Precisions()
    precisions.learn(pool())
    pods = [pod(f"u{g}", g, "aaaa1111") for g in range(3)] + [pod("v0", 0, "bbbb2222"), pod("v1", 1, "bbbb2222")]
    return scene(
        title="20 chats stream; patch: " + '{"spec": {"precision": {"kvCache": "int8"}, "rollout": {"maxSurge": 2}}}',
        seconds=12.3,
        slots=slots,
        transcripts=slots,
        pool=pool(),
        pods=pods,
        precisions=precisions,
        tokens_per_second=7.0,
    )


def drawn(columns: int, lines: int, **options: Any) -> str:
    console = Console(file=io.StringIO(), width=columns, height=lines, force_terminal=True, **options)
    console.print(draw(moment(), columns, lines))
    assert isinstance(console.file, io.StringIO)
    return console.file.getvalue()


def test_a_stream_that_moved_stands_at_its_new_worker() -> None:
    found = moment()
    assert (found.streams[0].group, found.streams[0].precision, found.streams[0].moves) == (0, "bf16/int8", 1)
    old, new = [row for row in found.workers if row.group == 0]
    assert (old.is_new, new.is_new) == (False, True)
    assert new.letters == "a"
    assert "a" not in old.letters
    assert "e" not in "".join(row.letters for row in found.workers), "it has ended"
    assert sum(len(row.letters) for row in found.workers) == found.num_streaming == 19


@pytest.mark.parametrize("columns", [60, 80, 100, 120, 200])
@pytest.mark.parametrize("lines", [24, 50])
def test_it_fits_the_terminal(columns: int, lines: int) -> None:
    shown = drawn(columns, lines, color_system=None)
    rows = shown.splitlines()
    assert len(rows) <= lines
    from rich.cells import cell_len

    assert max(cell_len(row.rstrip()) for row in rows) <= columns
    for word in ("GROUP", "Draining", "Warming", "Stable", "bf16/int8", "held 7", "converted 3"):
        assert word in shown, f"{word} is cut off at {columns} x {lines}"


def test_streams_that_do_not_fit_are_counted() -> None:
    assert "more" in drawn(60, 24, color_system=None)
    assert "more" not in drawn(120, 50, color_system=None)


def test_no_color_is_honoured() -> None:
    assert "\x1b[3" not in drawn(100, 40, color_system="truecolor", no_color=True).replace("\x1b[3m", "")
    assert "\x1b[33" in drawn(100, 40, color_system="truecolor") or "\x1b[32" in drawn(
        100, 40, color_system="truecolor"
    )


def test_a_terminal_is_drawn_live_and_nothing_else_is() -> None:
    assert isinstance(
        screen_of(Console(file=io.StringIO(), force_terminal=True, _environ={"TERM": "xterm"})), LiveScreen
    )
    assert isinstance(
        screen_of(Console(file=io.StringIO(), force_terminal=True, _environ={"TERM": "dumb"})), LineScreen
    )
    assert isinstance(screen_of(Console(file=io.StringIO())), LineScreen)


@pytest.mark.parametrize("columns", [60, 80])
def test_lines_are_never_wrapped(columns: int) -> None:
    """Whatever width the console believes in: a dumb terminal has one, and a log is read later."""
    console = Console(file=io.StringIO(), width=columns)
    with LineScreen(console) as screen:
        screen.say("patch: " + "word " * 60)
        screen.show(moment)
        screen.show(moment)
    assert isinstance(console.file, io.StringIO)
    step, state = console.file.getvalue().splitlines()
    assert len(step) > 300
    assert state == " 12.3 s  19 streams  0:Draining(7)  1:Warming(6)  2:Stable(7)  held 7 converted 3"


def test_the_live_picture_follows_what_is_looked_at() -> None:
    console = Console(file=io.StringIO(), force_terminal=True, width=110, height=40, _environ={"TERM": "xterm"})
    with LiveScreen(console) as screen:
        screen.say("a step")
        screen.show(moment)
        screen._live.refresh()  # what its thread does four times a second
    assert isinstance(console.file, io.StringIO)
    assert "a step" in console.file.getvalue()
    assert "Draining" in console.file.getvalue()


def test_the_table_at_the_end_names_what_was_lost() -> None:
    sessions = {"held": 20, "converted": 12, "replayed": 0, "exact": 0, "finished": 7, "checkpointed": 0, "lost": 1}
    change = {
        "from": {"weights": "bf16", "kvCache": "bf16"},
        "to": {"weights": "bf16", "kvCache": "int8"},
        "sessions": sessions,
        "tokens": {"delivered": 900, "duplicated": 0, "missing": 3, "wrong_sessions": 0},
        "stall_ms": {"p50": 120.0, "p99": 800.0, "max": 800.0},
        "roll_seconds": 31.2,
    }
    report = {"changes": [change, change]}
    wide = printed(summary(report, 200), 200)
    row = next(line for line in wide.splitlines() if line.startswith("KV cache"))
    assert " ".join(row.split()) == "KV cache bf16 -> int8 20 12 0 0 7 1 900 0 3 0.1 s, 0.8 s 31 s"
    narrow = printed(summary(report, 60), 60).splitlines()
    assert max(map(len, narrow)) <= 60
    assert [line.split() for line in narrow if line.startswith(("LOST", "MISSING"))] == [
        ["LOST", "1", "1"],
        ["MISSING", "3", "3"],
    ]
    assert any("0.1 s, 0.8 s" in line for line in narrow)


def printed(table: Any, columns: int) -> str:
    console = Console(file=io.StringIO(), width=columns)
    console.print(table)
    assert isinstance(console.file, io.StringIO)
    return console.file.getvalue()
