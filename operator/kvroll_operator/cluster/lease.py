"""Which operator acts: the one that holds a Lease. How often that Lease was taken is the epoch by which workers refuse an operator that was
followed by another.

Clocks are compared with none: a Lease has run out once a whole duration has passed here, by a clock that only goes forward, without its
holder having renewed it. The client library's own lock writes the count of holders never, so it is kept here.
"""

import asyncio
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from datetime import UTC, datetime

import structlog

from kvroll_operator.backoff import Backoff
from kvroll_operator.cluster.client import Api, ApiError, Json
from kvroll_operator.cluster.paths import Paths
from kvroll_operator.cluster.workers import OperatorEpoch

log = structlog.get_logger()

DURATION_SECONDS = 15
RENEW_SECONDS = 4.0
LOOK_SECONDS = 2.0


class LeaseLostError(RuntimeError):
    """Another operator holds the Lease."""


class NoLeasesError(RuntimeError):
    """The API server keeps no Leases."""


@dataclass
class LeaderLease:
    """One operator's side of the Lease `name`. An `identity` that comes again is one process that follows another, and counts as such."""

    api: Api
    paths: Paths
    name: str
    identity: str
    sleep: Callable[[float], Awaitable[None]] = asyncio.sleep
    monotonic: Callable[[], float] = time.monotonic
    epoch: OperatorEpoch | None = None
    _seen: tuple[str, ...] = ()
    _seen_at: float = 0.0
    _failures: Backoff = field(default_factory=lambda: Backoff(most_seconds=DURATION_SECONDS))

    async def acquire(self) -> OperatorEpoch:
        """Waits until the Lease is this operator's, through an API server that is away.

        Raises:
            NoLeasesError: the API server has no such kind of object.
        """
        while True:
            try:
                epoch = await self._take()
            except ApiError as error:
                delay = self._failures.next_seconds(error.retry_after_seconds)
                log.warning("lease_not_read", lease=self.name, error=str(error)[:500], failures=self._failures.failures)
                await self.sleep(delay)
                continue
            self._failures.reset()
            if epoch is not None:
                log.info("lease_taken", lease=self.name, transitions=epoch.transitions)
                return epoch
            await self.sleep(LOOK_SECONDS)

    async def keep(self, tell: Callable[[OperatorEpoch], None]) -> None:
        """Renews for ever; `tell` is called where the Lease had to be made anew, because somebody deleted it.

        An API server that is away takes the Lease from nobody: each pass begins by asking it, so nothing is done meanwhile, and whoever
        takes the Lease first once it is back is the next.

        Raises:
            LeaseLostError: another operator took it.
        """
        while True:
            await self.sleep(RENEW_SECONDS)
            try:
                await self._renew(tell)
            except ApiError as error:
                log.warning("lease_not_renewed", lease=self.name, error=str(error)[:500])

    async def release(self) -> None:
        """Gives it back, so that the next operator need not wait for it to run out."""
        try:
            lease = await self.api.get(self.paths.leases(self.name))
            if self._is_mine(lease):
                await self._write(lease, {"holderIdentity": ""})
        except ApiError as error:
            log.warning("lease_not_released", lease=self.name, error=str(error)[:500])

    async def _take(self) -> OperatorEpoch | None:
        try:
            lease = await self.api.get(self.paths.leases(self.name))
        except ApiError as error:
            if error.status != 404:
                raise
            return await self._make()
        if not self._is_free(lease):
            return None
        spec = {**self._held(), "leaseTransitions": int(lease.get("spec", {}).get("leaseTransitions") or 0) + 1}
        written = await self._write(lease, {**spec, "acquireTime": _instant()})
        return None if written is None else self._epoch_of(written)

    async def _make(self) -> OperatorEpoch | None:
        spec = {**self._held(), "leaseTransitions": 1, "acquireTime": _instant()}
        body = {"apiVersion": "coordination.k8s.io/v1", "kind": "Lease", "metadata": {"name": self.name}, "spec": spec}
        try:
            return self._epoch_of(await self.api.create(self.paths.leases(), body))
        except ApiError as error:
            if error.status == 404:
                raise NoLeasesError(
                    f"expected an API server that keeps Leases, found: {error}; start with --lease= where only one operator can run"
                ) from error
            if error.is_stale:
                return None
            raise

    def _is_free(self, lease: Json) -> bool:
        """Nobody's, that of a process before this one in the same Pod, or not renewed for its duration, as seen from here."""
        spec = lease.get("spec") or {}
        holder = spec.get("holderIdentity") or ""
        if holder in ("", self.identity):
            return True
        seen = (lease["metadata"]["uid"], lease["metadata"]["resourceVersion"])
        if seen != self._seen:
            self._seen, self._seen_at = seen, self.monotonic()
            return False
        return self.monotonic() - self._seen_at > float(spec.get("leaseDurationSeconds") or DURATION_SECONDS)

    async def _renew(self, tell: Callable[[OperatorEpoch], None]) -> None:
        try:
            lease = await self.api.get(self.paths.leases(self.name))
        except ApiError as error:
            if error.status != 404:
                raise
            epoch = await self._make()
            if epoch is not None:
                tell(epoch)
            return
        if not self._is_mine(lease):
            spec = lease.get("spec") or {}
            raise LeaseLostError(
                f"expected Lease {self.name} to be held by {self.identity} at {self.epoch}, found holder "
                f"{spec.get('holderIdentity')!r}, leaseTransitions {spec.get('leaseTransitions')}"
            )
        await self._write(lease, self._held())

    def _is_mine(self, lease: Json) -> bool:
        spec = lease.get("spec") or {}
        found = OperatorEpoch(lease["metadata"]["uid"], int(spec.get("leaseTransitions") or 0))
        return found == self.epoch and spec.get("holderIdentity") == self.identity

    def _held(self) -> Json:
        return {"holderIdentity": self.identity, "leaseDurationSeconds": DURATION_SECONDS, "renewTime": _instant()}

    async def _write(self, lease: Json, spec: Json) -> Json | None:
        """What stands there now; None where somebody else wrote first."""
        body = {"metadata": {"resourceVersion": lease["metadata"]["resourceVersion"]}, "spec": spec}
        try:
            return await self.api.patch(self.paths.leases(self.name), body)
        except ApiError as error:
            if error.is_stale:
                return None
            raise

    def _epoch_of(self, lease: Json) -> OperatorEpoch:
        self.epoch = OperatorEpoch(lease["metadata"]["uid"], int(lease["spec"]["leaseTransitions"]))
        return self.epoch


def _instant() -> str:
    """A time as a Lease has it. For people: nothing is decided by it."""
    return datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")
