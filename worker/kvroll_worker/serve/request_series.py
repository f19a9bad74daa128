"""The series of requests that dashboards know from vLLM, by its names and labels (`vllm/v1/metrics/loggers.py`).

A histogram of times is observed for sessions that began here: of one that moved in, the time before it came is its first worker's. All of
them are there from the start, at zero.
"""

from prometheus_client import CollectorRegistry, Counter, Histogram

from kvroll_worker.own.record import SessionRecord

SECONDS = (0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0, 2.0, 5.0, 10.0, 30.0, 60.0)
_LONG_SECONDS = (*SECONDS, 120.0, 300.0, 600.0, 1800.0)
_TOKENS = (1, 2, 5, 10, 20, 50, 100, 200, 500, 1000, 2000, 5000, 10_000, 20_000, 50_000, 100_000, 200_000)
FINISHED_REASONS = ("stop", "length", "abort", "error")
"""vLLM's words: what ended a request."""
_REASON_OF_WAY = {"cancelled": "abort", "orphaned": "abort", "failed": "error"}


class RequestSeries:
    """Histograms and counts of requests, each with the label `model_name`."""

    def __init__(self, model_name: str, registry: CollectorRegistry) -> None:
        self._model_name, self._registry = model_name, registry
        self.first_token_seconds = self._times("time_to_first_token_seconds", "Submit to first token.", SECONDS)
        self.inter_token_seconds = self._times(
            "inter_token_latency_seconds", "Between two tokens of a session.", SECONDS
        )
        self._e2e = self._times(
            "e2e_request_latency_seconds", "Submit to last token, of sessions that began and ended here.", _LONG_SECONDS
        )
        self._queue = self._times("request_queue_time_seconds", "Submit to the first step.", _LONG_SECONDS)
        self._prefill = self._times("request_prefill_time_seconds", "First step to first token.", _LONG_SECONDS)
        self._decode = self._times("request_decode_time_seconds", "First to last token.", _LONG_SECONDS)
        self._inference = self._times("request_inference_time_seconds", "First step to last token.", _LONG_SECONDS)
        self._per_token = self._times(
            "request_time_per_output_token_seconds", "Decode time over the tokens behind the first.", SECONDS
        )
        self._prompt = self._sizes("request_prompt_tokens", "Prompt tokens of a finished session.")
        self._generated = self._sizes("request_generation_tokens", "Tokens of a finished session.")
        self._asked = self._sizes("request_max_num_generation_tokens", "Tokens that a finished session asked for.")
        self._max_tokens = self._sizes("request_params_max_tokens", "max_tokens of a finished session.")
        self._success = Counter(
            "vllm:request_success",
            "Sessions that ended here, by what ended them.",
            ["model_name", "finished_reason"],
            registry=registry,
        )
        for reason in FINISHED_REASONS:
            self._success.labels(model_name, reason)

    def began(self, record: SessionRecord, now: float) -> None:
        """The first token of a session that began here, at monotonic seconds `now`."""
        if record.submitted_at is None:
            return
        self.first_token_seconds.observe(now - record.submitted_at)
        if record.scheduled_at is not None:
            self._queue.observe(max(0.0, record.scheduled_at - record.submitted_at))
            self._prefill.observe(max(0.0, now - record.scheduled_at))

    def finished(self, record: SessionRecord, reason: str, now: float) -> None:
        """The last token of a session; `reason` is stop or length."""
        self._success.labels(self._model_name, reason).inc()
        self._prompt.observe(record.num_prompt_tokens)
        self._generated.observe(record.num_outputs)
        for asked in (self._asked, self._max_tokens):
            asked.observe(record.admitted.sampling.max_tokens)
        if record.submitted_at is None or record.first_token_at is None:
            return
        decode = now - record.first_token_at
        self._e2e.observe(now - record.submitted_at)
        self._decode.observe(decode)
        if record.num_outputs > 1:
            self._per_token.observe(decode / (record.num_outputs - 1))
        if record.scheduled_at is not None:
            self._inference.observe(max(0.0, now - record.scheduled_at))

    def left(self, way: str) -> None:
        """A session that left the books without its last token, if that is an end of its request."""
        if way in _REASON_OF_WAY:
            self._success.labels(self._model_name, _REASON_OF_WAY[way]).inc()

    def _times(self, name: str, text: str, buckets: tuple[float, ...]) -> Histogram:
        found = Histogram(f"vllm:{name}", text, ["model_name"], buckets=buckets, registry=self._registry)
        return found.labels(self._model_name)

    def _sizes(self, name: str, text: str) -> Histogram:
        return self._times(name, text, _TOKENS)
