"""The client's own count must see a doubled, missing or wrong token, or the demo proves nothing."""

from typing import Any

import xxhash

from kvroll_cli.demo.report import change_report, faults
from kvroll_cli.demo.transcript import Arrival, Transcript, percentile


def transcript(tokens: list[tuple[int, str, int, float]], record: list[int] | None) -> Transcript:
    arrivals = [Arrival(*t) for t in tokens]
    made = Transcript(prompt="", wave="w", arrivals=arrivals)
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
    assert [round(ms) for ms in good.stalls_ms()] == [50]
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
