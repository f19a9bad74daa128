"""Client of the workers' WorkerService. A worker that does not answer is unknown: None, neither idle nor gone."""

import asyncio
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

import grpc

from kvroll.v1 import worker_pb2 as pb
from kvroll.v1.common_pb2 import WorkerRef
from kvroll.v1.worker_pb2_grpc import WorkerServiceStub
from kvroll_operator.api.facts import worker_facts
from kvroll_operator.api.figures import wall_sample
from kvroll_operator.cluster.pods import GRPC_PORT
from kvroll_operator.rollout.effects import CancelDrain, DrainWorker, SealWorker, SetAdmission
from kvroll_operator.rollout.observed import Report, Tally

REPORT_SECONDS = 4.0
CALL_SECONDS = 5.0
_OPTIONS = [("grpc.use_local_subchannel_pool", 1), ("grpc.max_reconnect_backoff_ms", 2000)]

WorkerError = grpc.aio.AioRpcError


def tally(counters: pb.DrainCounters) -> Tally:
    """The wire's counters."""
    return Tally(**{name: getattr(counters, name) for name in Tally.__dataclass_fields__})


@dataclass
class Workers:
    """Channels to the workers, by address. `epoch_ms` fences older operators off: workers refuse a lower one."""

    epoch_ms: int
    _channels: dict[str, grpc.aio.Channel] = field(default_factory=dict)
    _used: dict[str, set[str]] = field(default_factory=dict)  # addresses by pool

    async def reports(self, pool: str, pods: Iterable[Mapping[str, Any]]) -> dict[str, Report | None]:
        """Asks all running worker Pods of a pool at once; by Pod UID, None where no valid answer came in time."""
        asked = {p["metadata"]["uid"]: p["status"]["podIP"] for p in pods if _can_answer(p)}
        answers = await asyncio.gather(*(self._report(uid, ip) for uid, ip in asked.items()))
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

    async def drain(self, effect: DrainWorker, policy: Mapping[str, Any]) -> None:
        """Starts a drain or refreshes its targets; `policy` is the WorkerDrain's spec.

        Raises:
            WorkerError: it did not answer, or is another instance by now.
        """
        request = pb.DrainRequest(
            operator_epoch=self._epoch(),
            instance_id=effect.instance_id,
            drain_id=effect.drain.uid,
            allow=list(policy["allow"]),
            kv_across_weights=bool(policy.get("kvAcrossWeights", False)),
            targets=[
                pb.DrainTarget(
                    worker=WorkerRef(worker_id=t.worker_id, instance_id=t.instance_id, address=t.address),
                    same_revision=t.same_revision,
                )
                for t in effect.targets
            ],
            parallel=int(policy.get("parallel", 1)),
            bytes_per_second=int(policy.get("bytesPerSecond") or 0),
            max_downtime_ms=int(policy.get("maxDowntimeMs", 50)),
        )
        await self._stub(effect.address).Drain(request, timeout=CALL_SECONDS)

    async def cancel_drain(self, effect: CancelDrain) -> None:
        """Tells a worker to move no more sessions off.

        Raises:
            WorkerError: it did not answer, or is another instance by now.
        """
        request = pb.CancelDrainRequest(
            operator_epoch=self._epoch(), instance_id=effect.instance_id, drain_id=effect.drain.uid
        )
        await self._stub(effect.address).CancelDrain(request, timeout=CALL_SECONDS)

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
        except grpc.aio.AioRpcError:
            return None
        return report(answer, pod_uid)

    def _stub(self, address: str) -> Any:
        if address not in self._channels:
            self._channels[address] = grpc.aio.insecure_channel(address, options=_OPTIONS)
        return WorkerServiceStub(self._channels[address])

    def _epoch(self) -> pb.OperatorEpoch:
        return pb.OperatorEpoch(lease_uid="", transitions=self.epoch_ms)

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
