"""The gateway's Prometheus series: every name and label is here, labels are bounded (models that workers serve, fixed words)."""

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram

from kvroll_core.words import VerdictKind
from kvroll_gateway.sessions.phases import Note
from kvroll_gateway.sessions.ports import Loss

_TTFT_SECONDS = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 20, 40, 80, 160, 640, 2560)
_ITL_SECONDS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.075, 0.1, 0.15, 0.2, 0.3, 0.5, 1, 2.5, 5, 10, 30, 80)

_FAILURES = ("failed", "lost", "poisoned", "cut_off")
_ENDS = ("finished", "cancelled")


class GatewayMetrics:
    """One registry a gateway, so that tests and `kvroll serve` can hold several."""

    def __init__(self) -> None:
        self.registry = CollectorRegistry()
        r = self.registry
        self.sessions = Gauge("kvroll_gateway_sessions", "Sessions whose client waits.", registry=r)
        self.workers = Gauge("kvroll_gateway_workers", "Workers with a live stream.", registry=r)
        self.tokens = Counter(
            "kvroll_gateway_tokens_delivered", "Tokens accepted for a client, each once.", ["model"], registry=r
        )
        self.duplicates = Counter(
            "kvroll_gateway_duplicates_dropped", "Frames dropped because their index was delivered.", registry=r
        )
        self.stale = Counter("kvroll_gateway_stale_dropped", "Frames dropped because their epoch was over.", registry=r)
        self.replays = Counter("kvroll_gateway_replays", "Sessions replayed after a worker went.", registry=r)
        self.poisoned = Counter(
            "kvroll_gateway_sessions_poisoned",
            "Sessions given up because worker after worker ended while it held them.",
            registry=r,
        )
        self.quarantined = Counter(
            "kvroll_gateway_sessions_quarantined",
            "Sessions kept from the last healthy worker because one may have ended because of them.",
            registry=r,
        )
        self.workers_lost = Counter(
            "kvroll_gateway_workers_lost", "Workers that went, by what told it.", ["reason"], registry=r
        )
        for reason in Loss:
            self.workers_lost.labels(reason)
        self.pod_watch_failures = Counter(
            "kvroll_gateway_pod_watch_failures",
            "Lists and watches of the worker Pods that failed or were not answered in time.",
            registry=r,
        )
        self.moves = Counter("kvroll_gateway_moves", "Moves committed, by verdict.", ["verdict"], registry=r)
        for kind in (VerdictKind.EXACT, VerdictKind.CONVERT, VerdictKind.REPLAY):
            self.moves.labels(kind)
        self.resumed = Counter("kvroll_gateway_moves_resumed", "Moves whose source was told to go on.", registry=r)
        self.sessions_ended = Counter(
            "kvroll_gateway_sessions_ended", "Sessions by how they ended.", ["model", "outcome"], registry=r
        )
        for outcome in _FAILURES:
            self.sessions_ended.labels("", outcome)
        self.lost = Counter(
            "kvroll_gateway_sessions_lost", "Admitted sessions that no worker could finish.", registry=r
        )
        self.record_mismatches = Counter(
            "kvroll_gateway_record_mismatches",
            "Sessions whose delivered ids differ from the worker's record.",
            registry=r,
        )
        self.engines = Gauge(
            "kvroll_gateway_engine_metrics_info", "1 for the metrics page of an engine behind it.", ["url"], registry=r
        )
        self.time_to_first_token = Histogram(
            "kvroll_gateway_time_to_first_token_seconds",
            "Request to first token.",
            ["model"],
            buckets=_TTFT_SECONDS,
            registry=r,
        )
        self.inter_token = Histogram(
            "kvroll_gateway_inter_token_latency_seconds", "Between tokens.", ["model"], buckets=_ITL_SECONDS, registry=r
        )

    def serves(self, model: str) -> None:
        """A model that a worker serves: its series are there before its first session."""
        self.tokens.labels(model)
        for outcome in _ENDS:
            self.sessions_ended.labels(model, outcome)
        for times in (self.time_to_first_token, self.inter_token):
            times.labels(model)

    def tell_engine(self, url: str) -> None:
        """Names the metrics page of an engine that this gateway serves, for those who look for it here."""
        self.engines.labels(url).set(1)

    def note(self, note: Note) -> None:
        """Counts what a session's state machine noted."""
        if note.what == "moved":
            self.moves.labels(note.label).inc(note.count)
            return
        counter = {"duplicate": self.duplicates, "stale": self.stale, "replayed": self.replays, "resumed": self.resumed}
        counter[note.what].inc(note.count)

    def ended(self, model: str, outcome: str, *, admitted: bool) -> None:
        """Counts the end of a session; `model` is empty where it may be a client's invention."""
        self.sessions_ended.labels(model, outcome).inc()
        if outcome == "poisoned":
            self.poisoned.inc()
        if admitted and outcome in ("lost", "poisoned"):
            self.lost.inc()
