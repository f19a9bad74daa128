"""Client of the workers' WorkerService. A worker that does not answer is unknown: None, neither idle nor gone."""

import asyncio
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

import grpc
import structlog

from kvroll.v1 import worker_pb2 as pb
from kvroll.v1.common_pb2 import WorkerRef
from kvroll.v1.worker_pb2_grpc import WorkerServiceStub
from kvroll.wire.channels import client_options
from kvroll_operator.api.facts import worker_facts
from kvroll_operator.api.figures import wall_sample
from kvroll_operator.cluster.pods import GRPC_PORT
from kvroll_operator.rollout.act.effects import DrainWorker, SealWorker, SetAdmission
from kvroll_operator.rollout.facts.observed import TALLY_WORDS, Report, Tally

REPORT_SECONDS = 4.0
REPORTS_AT_ONCE = 64
CALL_SECONDS = 5.0
log = structlog.get_logger()

WorkerError = grpc.aio.AioRpcError


def tally(counters: pb.DrainCounters) -> Tally:
    """The wire's counters."""
    return Tally(**{name: getattr(counters, name) for name in TALLY_WORDS})


@dataclass(frozen=True)
class OperatorEpoch:
    """Which operator calls: `transitions` counts the holders of the Lease with that UID. Without one, it is a process start in unix
    milliseconds, which says nothing beside a Lease's.
    """

    lease_uid: str
    transitions: int


@dataclass
class Workers:
    """Channels to the workers, by address. `epoch` fences older operators off: workers refuse a lower one."""

    epoch: OperatorEpoch
    _channels: dict[str, grpc.aio.Channel] = field(default_factory=dict)
    _used: dict[str, set[str]] = field(default_factory=dict)  # addresses by pool

    async def reports(self, pool: str, pods: Iterable[Mapping[str, Any]]) -> dict[str, Report | None]:
        """Asks the running worker Pods of a pool, many at a time; by Pod UID, None where no valid answer came in time."""
        asked = {p["metadata"]["uid"]: str(p["status"]["podIP"]) for p in pods if _can_answer(p)}
        at_once = asyncio.Semaphore(REPORTS_AT_ONCE)

        async def ask(uid: str, ip: str) -> Report | None:
            async with at_once:
                return await self._report(uid, ip)

        answers = await asyncio.gather(*(ask(uid, ip) for uid, ip in asked.items()))
        self._used[pool] = {_address(ip) for ip in asked.values()}
        # Other pools' loops may be in the middle of a call: closing their channels would cut it.
        await self._forget(set().union(*self._used.values()))
        return dict(zip(asked, answers, strict=True))

    async def set_admission(self, effect: SetAdmission) -> None:
        """Opens or closes a worker's admission.

        Raises:
            WorkerError: it did not answer, or is another instance by now.
        """
        request = pb.SetAdmissionRequest(
            operator_epoch=self._epoch(), instance_id=effect.instance_id, admitting=effect.admitting
        )
        await self._stub(effect.address).SetAdmission(request, timeout=CALL_SECONDS)

    async def drain(self, effect: DrainWorker) -> None:
        """Starts a drain or refreshes its targets and its share of the pool's moves.

        Raises:
            WorkerError: it did not answer, or is another instance by now.
        """
        policy = effect.drain.policy
        request = pb.DrainRequest(
            operator_epoch=self._epoch(),
            instance_id=effect.instance_id,
            drain_id=effect.drain.uid,
            allow=list(policy.allow),
            kv_across_weights=policy.kv_across_weights,
            targets=[
                pb.DrainTarget(
                    worker=WorkerRef(worker_id=t.worker_id, instance_id=t.instance_id, address=t.address),
                    same_revision=t.same_revision,
                )
                for t in effect.targets
            ],
            parallel=effect.parallel,
            bytes_per_second=policy.bytes_per_second or 0,
            max_downtime_ms=policy.max_downtime_ms,
        )
        await self._stub(effect.address).Drain(request, timeout=CALL_SECONDS)

    async def cancel_drain(self, instance_id: str, address: str, drain_id: str) -> None:
        """Tells a worker to move no more sessions off.

        Raises:
            WorkerError: it did not answer, or is another instance by now.
        """
        request = pb.CancelDrainRequest(operator_epoch=self._epoch(), instance_id=instance_id, drain_id=drain_id)
        await self._stub(address).CancelDrain(request, timeout=CALL_SECONDS)

    async def seal(self, effect: SealWorker) -> tuple[str, Tally] | None:
        """Asks for the seal: the receipt's instance and the final counters, or None while sessions are left.

        Raises:
            WorkerError: it did not answer, or is another instance by now.
        """
        request = pb.SealRequest(operator_epoch=self._epoch(), instance_id=effect.instance_id)
        try:
            answer = await self._stub(effect.address).Seal(request, timeout=CALL_SECONDS)
        except grpc.aio.AioRpcError as error:
            if error.code() is grpc.StatusCode.FAILED_PRECONDITION:
                return None
            raise
        return answer.instance_id, tally(answer.counters)

    async def forget(self, pool: str) -> None:
        """Ends the channels of a pool that is gone."""
        self._used.pop(pool, None)
        await self._forget(set().union(*self._used.values()))

    async def close(self) -> None:
        """Ends all channels."""
        await self._forget(set())

    async def _report(self, pod_uid: str, ip: str) -> Report | None:
        try:
            answer = await self._stub(_address(ip)).GetReport(pb.GetReportRequest(), timeout=REPORT_SECONDS)
            return report(answer, pod_uid)
        except grpc.aio.AioRpcError:
            return None
        except Exception as error:
            # A worker of another version, or another program at its address: one that cannot be understood is unknown.
            log.warning("report_unreadable", pod_uid=pod_uid, error=f"{type(error).__name__}: {error}"[:300])
            return None

    def _stub(self, address: str) -> Any:
        if address not in self._channels:
            self._channels[address] = grpc.aio.insecure_channel(address, options=client_options())
        return WorkerServiceStub(self._channels[address])

    def _epoch(self) -> pb.OperatorEpoch:
        return pb.OperatorEpoch(lease_uid=self.epoch.lease_uid, transitions=self.epoch.transitions)

    async def _forget(self, kept: set[str]) -> None:
        for address in set(self._channels) - kept:
            await self._channels.pop(address).close(None)


def report(answer: pb.GetReportResponse, pod_uid: str) -> Report | None:
    """The report of that Pod's worker; None if another Pod's worker answered at its old address."""
    if not answer.worker.instance_id.startswith(f"{pod_uid}/"):
        return None
    counts = answer.sessions
    return Report(
        instance_id=answer.worker.instance_id,
        address=answer.worker.address,
        ready=answer.ready,
        admitting=answer.admitting,
        sealed=answer.sealed,
        drain_id=answer.drain_id,
        sessions=counts.running + counts.waiting + counts.moving,
        pending=counts.reservations + counts.unacknowledged,
        tally=tally(answer.drain),
        remaining=answer.drain.remaining,
        last_error=answer.drain.last_error,
        kv_bytes_per_token=answer.pages.kv_bytes_per_token,
        facts=worker_facts(answer),
        wall=wall_sample(answer),
    )


def _can_answer(pod: Mapping[str, Any]) -> bool:
    status = pod.get("status", {})
    return status.get("phase") == "Running" and bool(status.get("podIP"))


def _address(ip: str) -> str:
    return f"[{ip}]:{GRPC_PORT}" if ":" in ip else f"{ip}:{GRPC_PORT}"
