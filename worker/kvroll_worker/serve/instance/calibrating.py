"""Measures the device beside the service: the device at once, the dtypes while nothing else is to do, one piece between two steps."""

import asyncio
import time
from collections.abc import Sequence
from typing import TYPE_CHECKING

import structlog

from kvroll_worker.serve.instance.host import WorkerHost

if TYPE_CHECKING:  # a wrong flag should not wait for the kernels
    from kvroll_worker.engine.calibration import Calibration, Piece

_log = structlog.get_logger("kvroll.worker.calibration")
QUIET_SECONDS = 10.0
"""Without a step, before the dtypes are measured: a worker that starts in a roll has its first sessions sooner."""
PAUSE_SECONDS = 0.05


async def calibrate(
    host: WorkerHost, calibration: "Calibration", free_bytes: int, *, quiet_seconds: float = QUIET_SECONDS
) -> None:
    """Measures every piece and shows it in the metrics; nothing where it would take more than half of `free_bytes`."""
    if calibration.peak_bytes > free_bytes // 2:
        found = {"expected_bytes": 2 * calibration.peak_bytes, "found_bytes": free_bytes}
        _log.warning("device not measured: too little memory is free, so walls stay unknown", **found)
        return
    device = await _measure(host, calibration.device_pieces())
    await host.call(lambda _: calibration.release())
    _log.info("device measured", cpu_seconds=round(device, 3))
    quiet, formats = _Quiet(host), 0.0
    for piece in calibration.format_pieces():
        if not quiet.lasts(quiet_seconds):
            await host.call(lambda _: calibration.release())
            await quiet.begins(quiet_seconds)
        formats += await _measure(host, [piece])
        await asyncio.sleep(PAUSE_SECONDS)
    await host.call(lambda _: calibration.release())
    _log.info("dtypes measured", cpu_seconds=round(formats, 3))


async def _measure(host: WorkerHost, pieces: "Sequence[Piece]") -> float:
    """CPU seconds that it took."""
    spent = 0.0
    for piece in pieces:
        per_second, seconds = await host.call(lambda _, piece=piece: _measured(piece))  # type: ignore[misc]
        host.metrics.wall.measured(piece.kind, piece.name, per_second)
        spent += seconds
    return spent


class _Quiet:
    """Since when the engine has made no step."""

    def __init__(self, host: WorkerHost) -> None:
        self._host, self._busy_seconds, self._since = host, -1.0, time.monotonic()

    def lasts(self, seconds: float) -> bool:
        """True if no step was made for that long."""
        if self._host.loop.busy_seconds != self._busy_seconds or self._host.loop.step_began is not None:
            self._busy_seconds, self._since = self._host.loop.busy_seconds, time.monotonic()
        return time.monotonic() - self._since >= seconds

    async def begins(self, seconds: float) -> None:
        """Returns when no step was made for that long."""
        while not self.lasts(seconds):
            await asyncio.sleep(PAUSE_SECONDS)


def _measured(piece: "Piece") -> tuple[float, float]:
    """The figure, and the CPU seconds of this process meanwhile."""
    began = time.process_time()
    return piece.measure(), time.process_time() - began
