"""5,000 made-up requests at two real workers and a gateway: no process ends, and a stream beside them is what it is undisturbed."""

import asyncio
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.wire.process_fleet import Fleet
from tests.wire.request_storm import Storm
from tests.worker.tiny_model import write_model

REQUESTS = 5000


@pytest.mark.timeout(3600)
async def test_requests(tmp_path: Path, fault_report: Callable[[Any], None]) -> None:
    async with Fleet(write_model(tmp_path / "tiny"), tmp_path) as fleet:
        await fleet.start_workers(2)
        await fleet.start_gateway()
        storm = Storm(fleet, asyncio.get_running_loop())
        failure: BaseException | None = None
        try:
            await asyncio.to_thread(storm.run, REQUESTS)
        except Exception as error:
            failure = error
        page = await fleet.figures()
        fault_report(
            {
                "sent": storm.sent,
                "processes_ended": storm.ended,
                "bystander_differences": storm.bystander_differences,
                "bystander_runs": storm.bystander_runs,
                "wrong_answers": len(storm.wrong),
                "replays": int(page["kvroll_gateway_replays_total"]),
                "statuses": {str(status): count for status, count in sorted(storm.statuses.items())},
                "codes": dict(storm.codes.most_common()),
            }
        )
        assert failure is None, failure
        assert (storm.sent >= REQUESTS, storm.ended, storm.bystander_differences) == (True, 0, 0)
        assert storm.bystander_runs > 0
        assert not storm.wrong, "\n".join(storm.wrong[:20])
        assert page["kvroll_gateway_replays_total"] == 0
