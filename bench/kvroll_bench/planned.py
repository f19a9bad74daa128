"""A change whose price stands beside what it came to, on a live pool under streaming load."""

import asyncio
from dataclasses import dataclass
from typing import Any

from kvroll_bench.trial import TrialPool
from kvroll_cli.demo.load.pace import Fixed
from kvroll_cli.demo.load.wave import Wave
from kvroll_cli.demo.roll import DemoChange, Roll, all_stream

# A step's rate right after the prompts is that of steps with prompts in them; and what sessions have by then should outweigh what they
# gain until their turn, which hangs on the CPUs.
SETTLE_SECONDS = 30


@dataclass(frozen=True)
class PlannedCase:
    """A change, and what it finds. Sessions are long enough that those of the price are those of the roll."""

    change: DemoChange
    replicas: int
    sessions: int

    def wave(self, pool: TrialPool) -> Wave:
        """The load that the change finds."""
        return pool.wave(self.sessions, Fixed((2700, 2800, 2900), 2700))


# One group each: no rate that is measured before a roll knows how three workers do on two CPUs, nor how much slower sessions grow
# meanwhile.
PLANNED_CASES = {
    "kv": PlannedCase(DemoChange(kv_cache="int8"), replicas=1, sessions=6),
    "weights": PlannedCase(DemoChange(weights="int8", allow=("Replay", "Finish")), replicas=1, sessions=4),
}


async def planned_and_actual(pool: TrialPool, case: PlannedCase) -> dict[str, Any]:
    """`status.plan` after the roll: `cost` is what was planned, `actual` what it came to.

    Raises:
        BackendError: the pool did not come up, or the roll did not complete.
    """
    await pool.apply(replicas=case.replicas)
    wave = case.wave(pool)
    wave.start()
    try:
        await all_stream(wave, 120)
        await asyncio.sleep(SETTLE_SECONDS)
        await Roll(pool.objects, pool.name, wave, case.change).run(timeout_seconds=600)
        return dict((await pool.status())["plan"])
    finally:
        await wave.abandon()
