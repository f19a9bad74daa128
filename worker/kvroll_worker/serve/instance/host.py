"""One worker instance: what it is, the parts that it is made of, and their beat."""

import asyncio
import time
from collections.abc import Callable
from typing import TypeVar

from kvroll.v1 import common_pb2 as pb
from kvroll.v1 import inference_pb2 as ipb
from kvroll_core.budget import page_window
from kvroll_core.compat import Descriptor
from kvroll_worker.move.peers import Peers
from kvroll_worker.move.source.transfer import MoveReport
from kvroll_worker.own.held import Held
from kvroll_worker.own.ledger import Ledger
from kvroll_worker.port import EnginePort
from kvroll_worker.request import EngineStats
from kvroll_worker.serve.instance.asides import Asides
from kvroll_worker.serve.instance.effects import EffectRunner
from kvroll_worker.serve.instance.events import SessionEvents
from kvroll_worker.serve.instance.gateways import Gateways
from kvroll_worker.serve.instance.loop import EngineLoop
from kvroll_worker.serve.instance.measured import Measured
from kvroll_worker.serve.instance.tasks import BackgroundTasks
from kvroll_worker.serve.metrics import Metrics

T = TypeVar("T")
_TICK_SECONDS = 0.2
HEARTBEAT_SECONDS = 1.0


class WorkerHost:
    """Everything here runs on the event loop; only `loop` touches the engine.

    `on_crash` is called when the engine's thread dies of an exception that no session is to blame for: the process must end.
    A test may put a loop without a thread, other peers, tasks and another clock in.
    """

    def __init__(
        self,
        engine: EnginePort,
        ref: pb.WorkerRef,
        model: str,
        ledger: Ledger,
        metrics: Metrics,
        on_crash: Callable[[BaseException], None],
        *,
        make_loop: type[EngineLoop] = EngineLoop,
        peers: Peers | None = None,
        tasks: BackgroundTasks | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.ref = ref
        self.model = model
        self.ledger = ledger
        self.metrics = metrics
        self.now = clock
        self.peers = peers or Peers()
        self.tasks = tasks or BackgroundTasks()
        self.descriptor: Descriptor = engine.descriptor
        self.budget, self.shape, self.asked = engine.budget, engine.shape, engine.asked
        self.window = page_window(self.shape, self.asked.max_batch_tokens, self.asked.precision.kv_cache)
        self.measured = Measured()
        self.tokenizer = engine.tokenizer
        self.loop = make_loop(engine, lambda events: self.effects.run(self.events.taken(events)), on_crash)
        self.asides = Asides(self.loop)
        self.gateways = Gateways(ledger, metrics)
        self.events = SessionEvents(ledger, self.gateways, self.asides, metrics, self.measured, clock)
        self.effects = EffectRunner(self.loop, self.gateways, self.peers, self.tasks, metrics, self.events)
        self.stats = engine.stats()
        metrics.engine.stats = self.stats
        metrics.wall.runs(self.descriptor)
        self.admitting = False
        self.sealed = False
        self.ticked_at = clock()

    async def start(self) -> None:
        """Starts the engine's thread and the ticks of the leases."""
        self.loop.start()
        self.tasks.spawn(self._tick_forever())
        self.tasks.spawn(self._beat_forever())

    async def stop(self) -> None:
        """Ends tasks, channels and the engine's thread."""
        await self.tasks.stop()
        await self.peers.close()
        await self.loop.stop()

    def closed(self) -> str | None:
        """Why this worker takes no new sessions, None while it does."""
        if self.admitting and not self.sealed:
            return None
        return f"worker {self.ref.worker_id} is {'sealed' if self.sealed else 'not admitting'}"

    def set_admission(self, admitting: bool) -> None:
        """Opens or closes admission and tells every gateway."""
        if self.admitting != admitting:
            self.admitting = admitting
            changed = ipb.AdmissionChanged(admitting=admitting)
            self.gateways.send_all(ipb.AttachResponse(admission_changed=changed))

    def room_tokens(self) -> int:
        """Tokens of the longest session that can run here, prompt and outputs together."""
        return self.window.most_tokens(self.stats.pages_total, self.descriptor.max_model_len)

    async def call(self, act: Callable[[EnginePort], T]) -> T:
        """Runs `act` on the engine between two steps."""
        return await self.loop.call(act)

    def heartbeat(self) -> ipb.Heartbeat:
        """How the engine's thread stands now, for gateways to judge."""
        return ipb.Heartbeat(
            interval_seconds=HEARTBEAT_SECONDS,
            busy_seconds=self.loop.busy_for_seconds,
            longest_step_seconds=self.loop.longest_step_seconds,
        )

    def drop(self, held: Held, message: str) -> None:
        """Lets a session go, as the policy wants: its gateway gets a typed error."""
        self.effects.run(self.events.dropped(held, message))

    # -- what moves cost, for the price of the next ones

    def step_seconds(self) -> float:
        """Smoothed seconds of one engine step, 0 before the first."""
        return self.loop.step_seconds

    def move_bytes_per_second(self) -> float:
        """Bytes a second that a move of this worker brought to its target, 0 before the first."""
        return self.measured.move_bytes_per_second

    def prefill_tokens_per_second(self) -> float:
        """Prompt tokens that this worker computes a second, 0 before the first."""
        return self.measured.prefill_tokens_per_second

    def count_move(self, report: MoveReport) -> None:
        """A move that the gateway committed."""
        self.measured.moved(len(report.page_hashes) * report.page_bytes, report.seconds)
        self.metrics.sessions_moved.labels(report.kind.value).inc()
        self.metrics.moved_bytes.labels("out").inc(report.wire_bytes)
        self.metrics.downtime_seconds.observe(report.downtime_seconds)

    def count_failed_move(self) -> None:
        """A move after which the session went on here."""
        self.metrics.moves_failed.inc()

    def count_arrived(self, num_bytes: int, num_bad_pages: int) -> None:
        """A Push round of a session that moves here."""
        self.metrics.moved_bytes.labels("in").inc(num_bytes)
        self.metrics.checksum_failures.inc(num_bad_pages)

    # -- the beat

    async def _tick_forever(self) -> None:
        while True:
            await asyncio.sleep(_TICK_SECONDS)
            self.ticked_at = self.now()
            self.effects.run(self.ledger.tick(self.ticked_at))
            self.loop.post(lambda engine: engine.stats(), self._take_stats)

    async def _beat_forever(self) -> None:
        while True:
            await asyncio.sleep(HEARTBEAT_SECONDS)
            self.gateways.beat(self.heartbeat())

    def _take_stats(self, stats: EngineStats) -> None:
        self.stats = self.metrics.engine.stats = stats
        self.metrics.wall.take(stats, self.loop.busy_seconds, self.loop.busy_cpu_seconds, self.now())
