"""The series of a wall verdict, from stats as they come."""

from kvroll_worker.request import EngineStats
from kvroll_worker.serve.wall_series import WallSeries


def test_time_counts_as_waiting_while_the_newest_stats_wait() -> None:
    series = WallSeries("m")
    page: dict[str, float] = {}
    for now, waits in ((0.0, False), (1.0, True), (3.0, True), (3.5, False)):
        series.take(
            EngineStats(0, 0, 0, 0, 1, 1, 1, 1.0, 0, 0, 0, 0, waiting_for_room=waits),
            busy_seconds=now / 2,
            busy_cpu_seconds=now / 4,
            now=now,
        )
    for family in series.collect():
        page.update({sample.name: sample.value for sample in family.samples})
    assert page["kvroll_waiting_for_room_seconds_total"] == 3.0
    assert page["kvroll_step_seconds_total"] == 1.75
    assert page["kvroll_step_cpu_seconds_total"] == 0.875
