"""A sample of the storm that `make test-faults PART=requests` is."""

import asyncio
from pathlib import Path

import pytest

from tests.wire.process_fleet import Fleet
from tests.wire.request_storm import Storm
from tests.worker.tiny_model import write_model


@pytest.mark.slow
async def test_a_sample_of_made_up_requests_ends_nothing_and_disturbs_nobody(tmp_path: Path) -> None:
    async with Fleet(write_model(tmp_path / "tiny"), tmp_path) as fleet:
        await fleet.start_workers(2)
        await fleet.start_gateway()
        storm = Storm(fleet, asyncio.get_running_loop())
        await asyncio.to_thread(storm.run, 150)
        assert not storm.wrong, "\n".join(storm.wrong[:20])
        assert (storm.ended, storm.bystander_differences) == (0, 0)
        assert storm.statuses[200] > 10
        assert storm.statuses[400] > 10
