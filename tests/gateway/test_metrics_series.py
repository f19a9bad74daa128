"""The gateway's series are there before their first event: an alert on an increase misses the first one of a series that begins with it."""

from kvroll_gateway.metrics import GatewayMetrics


def test_counters_are_there_before_their_first_event() -> None:
    metrics = GatewayMetrics()
    read = metrics.registry.get_sample_value
    for verdict in ("Exact", "Convert", "Replay"):
        assert read("kvroll_gateway_moves_total", {"verdict": verdict}) == 0
    for outcome in ("failed", "lost", "poisoned", "cut_off"):
        assert read("kvroll_gateway_sessions_ended_total", {"model": "", "outcome": outcome}) == 0
    for name in ("sessions_lost", "sessions_poisoned", "record_mismatches", "replays"):
        assert read(f"kvroll_gateway_{name}_total") == 0
    metrics.serves("m")
    assert read("kvroll_gateway_tokens_delivered_total", {"model": "m"}) == 0
    assert read("kvroll_gateway_time_to_first_token_seconds_count", {"model": "m"}) == 0
    for outcome in ("finished", "cancelled"):
        assert read("kvroll_gateway_sessions_ended_total", {"model": "m", "outcome": outcome}) == 0
