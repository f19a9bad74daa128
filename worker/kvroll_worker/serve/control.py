"""WorkerService: what the operator may ask. Every call names the instance it means and carries the operator's epoch."""

from typing import Any, NoReturn

import grpc
import grpc.aio
import structlog

from kvroll.v1 import worker_pb2 as wpb
from kvroll.v1.worker_pb2_grpc import WorkerServiceServicer
from kvroll_worker.move.drain import DrainRun
from kvroll_worker.move.source.transfer import Mover
from kvroll_worker.move.target.reservations import TargetPhase
from kvroll_worker.own.held import HeldPhase
from kvroll_worker.serve.instance.host import WorkerHost
from kvroll_worker.serve.instance.measured import memory_asked, model_size, session_classes
from kvroll_worker.wire.codec import descriptor_to_wire

Context = grpc.aio.ServicerContext[Any, Any]
_log = structlog.get_logger("kvroll.worker.control")


class OperatorFence:
    """Refuses an operator that was replaced: lower transitions of the same Lease, or a Lease that another one followed."""

    def __init__(self) -> None:
        self._lease_uid = ""
        self._transitions = 0
        self._past_leases: set[str] = set()

    def refusal(self, epoch: wpb.OperatorEpoch) -> str | None:
        """Why the caller is refused, None if it is the newest operator known.

        An epoch without a Lease is a clock's: it says nothing beside one of a Lease, and must not end it.
        """
        if self._lease_uid and not epoch.lease_uid:
            return f"an operator without a Lease calls, the one of Lease {self._lease_uid} is known"
        if epoch.lease_uid in self._past_leases:
            return f"operator Lease {epoch.lease_uid} was followed by {self._lease_uid}"
        if epoch.lease_uid == self._lease_uid and epoch.transitions < self._transitions:
            return f"operator epoch {epoch.transitions} is below {self._transitions}: another operator took over"
        if epoch.lease_uid != self._lease_uid:
            if self._lease_uid:
                self._past_leases.add(self._lease_uid)
            self._lease_uid = epoch.lease_uid
        self._transitions = epoch.transitions
        return None


class WorkerService(WorkerServiceServicer):
    """Report, admission, drain and seal."""

    def __init__(self, host: WorkerHost, max_sessions: int) -> None:
        self._host = host
        self._max_sessions = max_sessions
        self._mover = Mover(host)
        self._fence = OperatorFence()
        self._drain: DrainRun | None = None
        host.effects.on_gone(self._gone)

    async def GetReport(self, request: wpb.GetReportRequest, context: Context) -> wpb.GetReportResponse:
        return self.report()

    def report(self) -> wpb.GetReportResponse:
        """What this instance is, holds and does now."""
        host, stats = self._host, self._host.stats
        running = (held.record for held in host.ledger.sessions.values() if held.phase is HeldPhase.RUNNING)
        response = wpb.GetReportResponse(
            worker=host.ref,
            descriptor=descriptor_to_wire(host.descriptor),
            ready=host.loop.alive,
            admitting=host.admitting,
            sealed=host.sealed,
            sessions=self._counts(),
            pages=wpb.PageCounts(
                total=stats.pages_total,
                free=stats.pages_free,
                page_bytes=stats.page_bytes,
                kv_bytes_per_token=stats.kv_bytes_per_token,
            ),
            model=host.model,
            max_sessions=self._max_sessions,
            budget=host.budget,
            lengths=session_classes(running, host.window),
            model_size=model_size(host.shape),
            memory=memory_asked(host.asked),
            rates=host.measured.to_wire(host.step_seconds()),
            wall=host.metrics.wall.to_wire(),
        )
        if self._drain is not None:
            response.drain_id = self._drain.drain_id
            response.drain.CopyFrom(self._drain.report())
        return response

    async def SetAdmission(self, request: wpb.SetAdmissionRequest, context: Context) -> wpb.SetAdmissionResponse:
        await self._guard(request.operator_epoch, request.instance_id, context)
        if request.admitting and self._host.sealed:
            await _precondition(context, "this instance is sealed: it never admits again")
        self._host.set_admission(request.admitting)
        return wpb.SetAdmissionResponse(admitting=self._host.admitting)

    async def Drain(self, request: wpb.DrainRequest, context: Context) -> wpb.DrainResponse:
        await self._guard(request.operator_epoch, request.instance_id, context)
        if self._host.admitting:
            await _precondition(context, "admission is open: close it with SetAdmission before a drain")
        try:
            drain = self.start_drain(request)
        except ValueError as error:
            await context.abort(grpc.StatusCode.INVALID_ARGUMENT, f"allow: {error}")
            raise AssertionError("abort() raises") from error
        return wpb.DrainResponse(counters=drain.report())

    def start_drain(self, request: wpb.DrainRequest) -> DrainRun:
        """Starts the drain with that id, or gives the running one its newest targets.

        Raises:
            ValueError: a word of `allow` that is not a way on.
        """
        drain = self._drain
        if drain is not None and drain.drain_id == request.drain_id:
            drain.refresh(request)
            return drain
        begun = DrainRun(self._host, self._mover, request)
        if drain is not None:
            drain.cancel()
        self._drain = begun
        self._host.tasks.spawn(begun.run())
        return begun

    async def CancelDrain(self, request: wpb.CancelDrainRequest, context: Context) -> wpb.CancelDrainResponse:
        await self._guard(request.operator_epoch, request.instance_id, context)
        if self._drain is not None and self._drain.drain_id == request.drain_id:
            self._drain.cancel()
        return wpb.CancelDrainResponse()

    async def Seal(self, request: wpb.SealRequest, context: Context) -> wpb.SealResponse:
        await self._guard(request.operator_epoch, request.instance_id, context)
        host = self._host
        if not host.sealed:
            asides = host.asides.session_ids
            in_engine = set(await host.call(lambda engine: engine.sessions())) - asides - host.asides.session_ids
            counts = self._counts()  # nothing is awaited from here to the seal
            if host.admitting:
                await _precondition(context, "admission is open: close it with SetAdmission before sealing")
            if host.ledger.sessions or len(host.ledger.targets) or in_engine:
                text = f"{len(host.ledger.sessions)} sessions ({counts.unacknowledged} of them finished, frames unacknowledged)"
                await _precondition(
                    context, f"cannot seal: {text}, {counts.reservations} reservations, {len(in_engine)} in the engine"
                )
            host.sealed = True
            host.asides.stop(
                f"worker {host.ref.worker_id} is sealed"
            )  # nobody waits for a gate of a worker that leaves
            _log.info("sealed", instance=host.ref.instance_id)
        counters = self._drain.report() if self._drain is not None else wpb.DrainCounters()
        return wpb.SealResponse(instance_id=host.ref.instance_id, counters=counters)

    def _counts(self) -> wpb.SessionCounts:
        ledger = self._host.ledger
        sessions = list(ledger.sessions.values())
        open_phases = [r.phase for r in ledger.targets.open_reservations()]
        prepared = sum(phase is TargetPhase.PREPARED for phase in open_phases)
        going = [h for h in sessions if h.phase is not HeldPhase.FINISHED]
        moving = sum(h.move is not None and h.move.frozen for h in going)
        waiting = min(self._host.stats.waiting, len(going) - moving)
        return wpb.SessionCounts(
            running=len(going) - moving - waiting,
            waiting=waiting,
            moving=moving + prepared,
            reservations=len(open_phases),
            unacknowledged=len(sessions) - len(going),
        )

    def _gone(self, session_id: str, way: str) -> None:
        if self._drain is not None:
            self._drain.gone(session_id, way)

    async def _guard(self, epoch: wpb.OperatorEpoch, instance_id: str, context: Context) -> None:
        mine = self._host.ref.instance_id
        if instance_id != mine:
            await _precondition(
                context, f"expected instance {instance_id}, this is {mine}: the other one's sessions are gone"
            )
        refusal = self._fence.refusal(epoch)
        if refusal is not None:
            await _precondition(context, refusal)


async def _precondition(context: Context, text: str) -> NoReturn:
    await context.abort(grpc.StatusCode.FAILED_PRECONDITION, text)
    raise AssertionError("abort() raises")
