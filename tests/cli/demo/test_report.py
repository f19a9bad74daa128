"""The client's own count must see a doubled, missing or wrong token, or the demo proves nothing."""

from typing import Any

import xxhash

from kvroll_cli.demo.load.transcript import TokenArrival, Transcript, percentile
from kvroll_cli.demo.report import Window, change_report, faults, shortfalls


def transcript(tokens: list[tuple[int, str, int, float]], record: list[int] | None) -> Transcript:
    arrivals = [TokenArrival(*t) for t in tokens]
    made = Transcript(prompt="", arrivals=arrivals)
    if record is not None:
        made.finish_reason = "length"
        made.record_tokens = len(record)
        made.record_digest = xxhash.xxh3_128_hexdigest(b"".join(i.to_bytes(4, "little") for i in record))
    return made


def report_of(*transcripts: Transcript) -> dict[str, Any]:
    change = change_report(
        source={"kvCache": "bf16"}, target={"kvCache": "int8"}, roll_seconds=1, transcripts=list(transcripts),
        rollout_sessions={"held": 1, "converted": 1}, kv_bytes_per_token=(2.0, 1.0),
    )  # fmt: skip
    return {"changes": [change]}


GOOD = [(0, "1-g-0", 7, 0.0), (1, "1-g-0", 8, 0.010), (2, "1-g-1", 9, 0.060)]


def test_whole_session_has_no_fault_and_its_stall_is_the_gap_at_the_move() -> None:
    good = transcript(GOOD, [7, 8, 9])
    assert faults(report_of(good)) == []
    assert [(when, round(ms)) for when, ms in good.stalls()] == [(0.060, 50)]
    assert report_of(good)["changes"][0]["tokens"] == {
        "delivered": 3,
        "duplicated": 0,
        "missing": 0,
        "wrong_sessions": 0,
    }


def test_doubled_token_is_a_fault() -> None:
    assert any("duplicated" in f for f in faults(report_of(transcript([*GOOD, GOOD[2]], [7, 8, 9]))))


def test_missing_token_is_a_fault() -> None:
    assert any("missing" in f for f in faults(report_of(transcript([GOOD[0], GOOD[2]], [7, 8, 9]))))
    assert any("missing" in f for f in faults(report_of(transcript(GOOD, [7, 8, 9, 10]))))


def test_other_token_than_the_record_is_a_fault() -> None:
    assert any("differ" in f for f in faults(report_of(transcript(GOOD, [7, 8, 10]))))


def test_stream_without_a_finish_is_lost() -> None:
    assert any("lost" in f for f in faults(report_of(transcript(GOOD, None))))


def test_nothing_delivered_is_a_fault() -> None:
    assert any("no token" in f for f in faults(report_of()))


def test_percentile_is_nearest_rank() -> None:
    assert percentile([], 50) is None
    assert percentile([3.0, 1.0, 2.0], 50) == 2.0
    assert percentile([1.0, 2.0, 3.0, 4.0], 100) == 4.0
    assert percentile([float(i) for i in range(1, 101)], 99) == 99.0


def changes_of(edge: float, *transcripts: Transcript) -> list[dict[str, Any]]:
    """Two changes under one load; the second is patched at `edge`."""
    common = {"source": {}, "target": {}, "roll_seconds": 1.0, "rollout_sessions": {}, "kv_bytes_per_token": (2.0, 1.0)}
    windows = Window(until_seconds=edge), Window(since_seconds=edge)
    return [change_report(**common, transcripts=list(transcripts), window=window) for window in windows]  # type: ignore[arg-type]


def test_a_token_a_stall_and_an_end_belong_to_the_change_in_which_they_fell() -> None:
    first, second = changes_of(0.05, spanning := transcript(GOOD, [7, 8, 9]))
    spanning.ended_seconds = 0.07
    first, second = changes_of(0.05, spanning)
    assert (first["tokens"]["delivered"], second["tokens"]["delivered"]) == (2, 1)
    assert (first["stall_ms"]["max"], second["stall_ms"]["max"]) == (None, 50.0)


def test_one_fault_is_counted_in_one_change_and_in_none_of_the_others() -> None:
    lost = transcript([*GOOD[:2], GOOD[1]], None)
    lost.ended_seconds = 0.03
    first, second = changes_of(0.05, lost)
    assert (first["sessions"]["lost"], second["sessions"]["lost"]) == (1, 0)
    assert (first["tokens"]["duplicated"], second["tokens"]["duplicated"]) == (1, 0)
    lost.ended_seconds = None  # it never ended: the last change has it
    first, second = changes_of(0.05, lost)
    assert (first["sessions"]["lost"], second["sessions"]["lost"]) == (0, 1)


def test_what_was_to_be_shown_and_was_not_is_a_shortfall() -> None:
    report = report_of(transcript(GOOD, [7, 8, 9]))
    assert shortfalls(report, [{"held": 1, "converted": 1}]) == []
    (said,) = shortfalls(report, [{"held": 16, "converted": 1}])
    assert "1 sessions held, at least 16 expected" in said
