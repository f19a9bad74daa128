"""The operator's own Prometheus metrics."""

from typing import get_args

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram

from kvroll_core.gate import GateVerdict
from kvroll_core.wall import Wall
from kvroll_operator.api.status import PoolStatus, RolloutSessions
from kvroll_operator.cluster.client import ApiProblem
from kvroll_operator.rollout.show.gate import RUNNING
from kvroll_operator.rollout.show.phases import RolloutPhase
from kvroll_operator.rollout.transition import Effect

_PHASES = tuple(phase for phase in RolloutPhase if phase)
_VERDICTS = (*GateVerdict, RUNNING)
WAYS = tuple(
    n for n in RolloutSessions.model_fields if n not in ("moved", "wire_bytes", "unique_bytes", "tokens_replayed")
)
"""Of sessions of a rollout: what was held, what became of it, and what is left; sums and bytes are no way."""


class Metrics:
    """One registry a process."""

    def __init__(self) -> None:
        self.registry = CollectorRegistry()
        self.reconcile_seconds = Histogram(
            "kvroll_operator_reconcile_seconds", "Duration of one pass.", registry=self.registry
        )
        self.reconcile_errors = Counter(
            "kvroll_operator_reconcile_errors", "Passes that ended in an error.", registry=self.registry
        )
        self.resync_errors = Counter(
            "kvroll_operator_resync_errors", "Lists of the pools that failed.", registry=self.registry
        )
        self._requests = Counter(
            "kvroll_operator_api_requests", "Requests to the API server.", ["method", "problem"], registry=self.registry
        )
        self.loop_lag_seconds = Gauge(
            "kvroll_operator_event_loop_lag_seconds", "How late the event loop was.", registry=self.registry
        )
        self._effects = Counter("kvroll_operator_effects", "Effects by kind.", ["kind"], registry=self.registry)
        self._failed = Counter("kvroll_operator_effects_failed", "Effects that failed.", registry=self.registry)
        self._workers = Gauge("kvroll_pool_workers", "Workers of a pool.", ["pool", "state"], registry=self.registry)
        self._active = Gauge(
            "kvroll_pool_sessions_active", "Sessions that reachable workers hold.", ["pool"], registry=self.registry
        )
        self._lost = Gauge(
            "kvroll_pool_sessions_lost",
            "Sessions lost in drains, of whatever reason, since the pool was made.",
            ["pool"],
            registry=self.registry,
        )
        self._rollout = Gauge(
            "kvroll_rollout_phase", "1 for the phase of the rollout.", ["pool", "phase"], registry=self.registry
        )
        self._sessions = Gauge(
            "kvroll_rollout_sessions",
            "Sessions of the rollout in force, by way on.",
            ["pool", "way"],
            registry=self.registry,
        )
        self._wire = Gauge(
            "kvroll_rollout_wire_bytes",
            "Bytes sent by moves in the rollout in force.",
            ["pool"],
            registry=self.registry,
        )
        self._wall = Gauge(
            "kvroll_pool_wall", "1 for what the pool is short of.", ["pool", "wall"], registry=self.registry
        )
        self._gate = Gauge(
            "kvroll_gate_verdict", "1 for what the gate says.", ["pool", "verdict"], registry=self.registry
        )
        self._gate_samples = Gauge(
            "kvroll_gate_samples", "Prompts or measurements of the newest verdict.", ["pool"], registry=self.registry
        )
        self._gate_value = Gauge(
            "kvroll_gate_value", "What the gate measured, by metric.", ["pool", "metric"], registry=self.registry
        )
        self._gate_runs = Counter(
            "kvroll_gate_runs", "Runs that are over, by verdict.", ["pool", "verdict"], registry=self.registry
        )

        self._gate_metrics: dict[str, set[str]] = {}
        for kind in get_args(Effect):
            self._effects.labels(kind.__name__)
        for method in ("GET", "POST", "PATCH", "PUT", "DELETE"):
            for problem in ("None", *ApiProblem):
                self._requests.labels(method, problem)

    def requested(self, method: str, problem: str) -> None:
        """Counts a request to the API server; `problem` is empty for one that succeeded."""
        self._requests.labels(method, problem or "None").inc()

    def gate_over(self, pool: str, verdict: str) -> None:
        """Counts a run that is over."""
        self._gate_runs.labels(pool, verdict).inc()

    def effects(self, effects: tuple[Effect, ...], failed: int) -> None:
        """Counts what a pass did."""
        for effect in effects:
            self._effects.labels(type(effect).__name__).inc()
        self._failed.inc(failed)

    def show(self, pool: str, status: PoolStatus) -> None:
        """Mirrors a status."""
        counts = {
            "ready": status.ready_replicas,
            "admitted": status.admitted_replicas,
            "updated": status.updated_replicas,
        }
        for state, count in counts.items():
            self._workers.labels(pool, state).set(count)
        self._active.labels(pool).set(status.sessions.active)
        self._lost.labels(pool).set(status.sessions.lost)
        for phase in _PHASES:
            self._rollout.labels(pool, phase).set(1 if status.rollout.phase == phase else 0)
        for wall in Wall:
            self._wall.labels(pool, wall).set(1 if status.wall.verdict == wall else 0)
        sessions = status.rollout.sessions
        for way in WAYS:
            self._sessions.labels(pool, way).set(getattr(sessions, way))
        self._wire.labels(pool).set(sessions.wire_bytes)
        for verdict in _VERDICTS:
            self._gate.labels(pool, verdict).set(1 if status.gate.verdict == verdict else 0)
        for verdict in GateVerdict:
            self._gate_runs.labels(pool, verdict)
        self._gate_samples.labels(pool).set(status.gate.samples)
        told = {metric.name: metric.value for metric in status.gate.metrics if metric.value is not None}
        # One that the gate no longer measures must not stand there with its last value.
        for gone in self._gate_metrics.get(pool, set()) - told.keys():
            self._gate_value.remove(pool, gone)
        self._gate_metrics[pool] = set(told)
        for name, value in told.items():
            self._gate_value.labels(pool, name).set(value)

    def forget(self, pool: str) -> None:
        """Drops the series of a pool that is gone."""
        gauges = (self._workers, self._active, self._lost, self._rollout, self._sessions, self._wire, self._wall)
        self._gate_metrics.pop(pool, None)
        for gauge in (*gauges, self._gate, self._gate_samples, self._gate_value, self._gate_runs):
            gauge.remove_by_labels({"pool": pool})
