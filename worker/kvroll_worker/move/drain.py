"""One drain of this worker: walks the sessions by the policy until none is left, and counts what became of each."""

import asyncio
import contextlib
import time
from collections import Counter
from dataclasses import dataclass, field
from typing import Protocol

import grpc.aio
import structlog

from kvroll.v1 import session_pb2 as spb
from kvroll.v1 import worker_pb2 as wpb
from kvroll_core.choice import KINDS, Costs, MoveChoice, MoveTarget, Policy, SessionFacts, choose
from kvroll_core.precision.sealing import Sealing
from kvroll_core.words import WayOn
from kvroll_worker.move.errors import MoveFailedError
from kvroll_worker.move.messages import Peer
from kvroll_worker.move.port import HostPort
from kvroll_worker.move.source.end import Destination
from kvroll_worker.move.source.transfer import Mover, MoveReport
from kvroll_worker.own.held import Held, HeldPhase
from kvroll_worker.wire.codec import descriptor_from_wire

_log = structlog.get_logger("kvroll.worker.drain")
_WALK_SECONDS = 0.1
_CAPABILITIES_SECONDS = 1.0
_FIRST_BACKOFF_SECONDS = 0.25
_MOST_BACKOFF_SECONDS = 10.0
_COUNTER = {WayOn.EXACT: "exact", WayOn.CONVERT: "converted", WayOn.REPLAY: "replayed"}


class DrainHost(HostPort, Protocol):
    """A host that also counts moves and can drop a session."""

    def count_move(self, report: MoveReport) -> None: ...
    def count_failed_move(self) -> None: ...
    def drop(self, held: Held, message: str) -> None: ...


@dataclass
class _Tries:
    """Failed attempts of one session: when to try again, and until when each target is passed over."""

    failures: int = 0
    not_before: float = 0.0
    avoid: dict[str, float] = field(default_factory=dict)


class DrainRun:
    """Runs until every session is gone or `cancel()`; a session that cannot move now goes on here and is tried again."""

    def __init__(self, host: DrainHost, mover: Mover, request: wpb.DrainRequest) -> None:
        self._host = host
        self._mover = mover
        self.drain_id = request.drain_id
        self.counters = wpb.DrainCounters()
        self._known: set[str] = set()
        self._soon: set[str] = set()
        self._tries: dict[str, _Tries] = {}
        self._moves: dict[str, asyncio.Task[None]] = {}
        self._under_way: Counter[str] = Counter()
        self._targets: dict[str, tuple[MoveTarget, Peer]] = {}
        self._unique: set[tuple[str, bytes]] = set()
        self._asked_at = -_CAPABILITIES_SECONDS
        self._cancelled = False
        self._request = request
        self.refresh(request)

    def refresh(self, request: wpb.DrainRequest) -> None:
        """Takes the newest targets and limits of the operator.

        Raises:
            ValueError: a word of `allow` that is not one of kvroll's ways on.
        """
        allow = tuple(WayOn(word) for word in request.allow)
        self._policy = Policy(allow, request.kv_across_weights, request.evacuation)
        self._request = request
        self._mover.bucket.set_rate(request.bytes_per_second)
        self._asked_at = -_CAPABILITIES_SECONDS

    def cancel(self) -> None:
        """No more moves begin; those in flight end first."""
        self._cancelled = True

    @property
    def running(self) -> bool:
        return not self._cancelled or bool(self._moves)

    def report(self) -> wpb.DrainCounters:
        """The counters as of now."""
        self.counters.remaining = len(self._in_progress())
        return self.counters

    async def run(self) -> None:
        """Walks the sessions again and again: targets, steps and failures change meanwhile."""
        while self.running:
            await self._ask_targets()
            self._walk()
            await asyncio.sleep(_WALK_SECONDS)

    def gone(self, session_id: str, way: str) -> None:
        """A session left the worker's books. Moved ones are counted when their move reports."""
        if session_id not in self._known or way == "moved":
            return
        if way in ("failed", "orphaned", "dropped"):
            self.counters.lost += 1
        elif session_id in self._soon:
            self.counters.finished_soon += 1
        else:  # finished, cancelled by its client, or already owned by another worker
            self.counters.finished += 1
        self._known.discard(session_id)

    # -- inside

    def _in_progress(self) -> list[Held]:
        return [h for h in self._host.ledger.sessions.values() if h.phase is not HeldPhase.FINISHED]

    def _walk(self) -> None:
        now = self._host.now()
        # Those that have longest to go first: others may end by themselves before it is their turn, and cost no move.
        for held in sorted(self._in_progress(), key=lambda h: h.record.max_remaining_tokens, reverse=True):
            if held.session_id not in self._known:
                self._known.add(held.session_id)
                self.counters.held += 1
            if self._cancelled or held.phase is not HeldPhase.RUNNING or held.moving or held.session_id in self._moves:
                continue
            tries = self._tries.setdefault(held.session_id, _Tries())
            if now >= tries.not_before and len(self._moves) < max(1, self._request.parallel):
                self._decide(held, tries, now)

    def _decide(self, held: Held, tries: _Tries, now: float) -> None:
        targets = [t for t, _ in self._targets.values() if now >= tries.avoid.get(t.name, 0.0)]
        # In the operator's order, which knows how full they are but not what is on its way there.
        targets.sort(key=lambda target: (target.same_revision, self._under_way[target.name]))
        record = held.record
        facts = SessionFacts(
            record.num_prompt_tokens + record.num_outputs,
            record.max_remaining_tokens,
            record.admitted.sampling.reproducible,
            record.same_revision_moves,
        )
        costs = Costs(
            self._host.step_seconds(),
            self._host.move_bytes_per_second(),
            prefill_tokens_per_second=self._host.prefill_tokens_per_second(),
        )
        choice = choose(facts, self._host.descriptor, targets, self._policy, costs)
        self._soon.discard(held.session_id)
        if choice.way is WayOn.FINISH_SOON:
            self._soon.add(held.session_id)
        elif choice.way is WayOn.DROP:
            self._host.drop(held, "the drain's policy lets sessions go")
        elif choice.target is not None:
            self._under_way[choice.target.name] += 1
            if choice.reason:
                _log.info("way on", session=held.session_id, way=choice.way, why=choice.reason)
            task = asyncio.create_task(self._move(held, choice, tries))
            self._moves[held.session_id] = task
        elif choice.why_not:
            self.counters.last_error = "; ".join(choice.why_not)[:1000]

    async def _move(self, held: Held, choice: MoveChoice, tries: _Tries) -> None:
        target, way = choice.target, choice.way
        assert target is not None
        assert way is not None
        try:
            sealing = Sealing(target.descriptor.kv_form, target.descriptor.residual_tokens)
            to = Destination(self._targets[target.name][1], target.same_revision, sealing, target.page_bytes)
            report = await self._mover.move(
                held,
                to,
                KINDS[way],
                across_weights=self._policy.kv_across_weights,
                max_downtime_seconds=(self._request.max_downtime_ms or 50) / 1000,
            )
        except MoveFailedError as error:
            self._failed(held, target, tries, str(error))
        except Exception as error:
            _log.exception("a move failed in a way that nobody foresaw", session=held.session_id)
            self._failed(held, target, tries, f"{type(error).__name__}: {error}")
        else:
            self._moved(held, way, target, report)
        finally:
            self._under_way[target.name] -= 1
            del self._moves[held.session_id]

    def _moved(self, held: Held, way: WayOn, target: MoveTarget, report: MoveReport) -> None:
        name = _COUNTER[way]
        setattr(self.counters, name, getattr(self.counters, name) + 1)
        self.counters.wire_bytes += report.wire_bytes
        self.counters.tokens_replayed += report.tokens_replayed
        for page_hash in report.sent_hashes:
            if (target.name, page_hash) not in self._unique:
                self._unique.add((target.name, page_hash))
                self.counters.unique_bytes += target.page_bytes
        self._known.discard(held.session_id)
        self._host.count_move(report)
        _log.info(
            "session moved", session=held.session_id, way=way.value, target=target.name,
            downtime_ms=round(report.downtime_seconds * 1e3, 1), wire_bytes=report.wire_bytes,
        )  # fmt: skip

    def _failed(self, held: Held, target: MoveTarget, tries: _Tries, reason: str) -> None:
        if self._host.ledger.sessions.get(held.session_id) is not held or held.phase is HeldPhase.FINISHED:
            return  # it ended meanwhile: that is no failure
        now = self._host.now()
        backoff = min(_MOST_BACKOFF_SECONDS, _FIRST_BACKOFF_SECONDS * 2**tries.failures)
        tries.failures += 1
        tries.not_before = now + (_FIRST_BACKOFF_SECONDS if len(self._targets) > 1 else backoff)
        tries.avoid[target.name] = now + backoff
        self.counters.last_error = f"session {held.session_id} to {target.name}: {reason}"[:1000]
        self._host.count_failed_move()
        _log.warning(
            "move failed, the session goes on here", session=held.session_id, target=target.name, reason=reason
        )

    async def _ask_targets(self) -> None:
        """What every target is and whether it takes moves now; one that does not answer is passed over."""
        if time.monotonic() - self._asked_at < _CAPABILITIES_SECONDS:
            return
        self._asked_at = time.monotonic()
        answers = await asyncio.gather(*(self._ask(t) for t in self._request.targets))
        self._targets = {
            target.name: (target, ref) for answer in answers if answer is not None for target, ref in [answer]
        }

    async def _ask(self, asked: wpb.DrainTarget) -> tuple[MoveTarget, Peer] | None:
        ref = asked.worker
        if ref.instance_id == self._host.ref.instance_id:
            return None
        with contextlib.suppress(grpc.aio.AioRpcError):
            found: spb.GetCapabilitiesResponse = await self._host.peers.stub(
                Peer(ref.worker_id, ref.instance_id, ref.address)
            ).GetCapabilities(spb.GetCapabilitiesRequest(), timeout=2.0)
            if ref.instance_id in ("", found.worker.instance_id):
                address = ref.address or found.worker.address
                named = Peer(found.worker.worker_id, found.worker.instance_id, address)
                name = f"{named.worker_id} ({named.instance_id})"
                descriptor = descriptor_from_wire(found.descriptor)
                return MoveTarget(name, descriptor, asked.same_revision, found.accepting_moves, found.page_bytes), named
            self.counters.last_error = (
                f"{ref.worker_id}: expected instance {ref.instance_id}, found {found.worker.instance_id}"
            )
        return None
