"""The knobs of a precision beside its two dtypes, in the price of a change."""

from dataclasses import replace
from typing import Any

from kvroll_core.precision.precision import Precision
from kvroll_core.price import Price, RollSettings, gather, price
from kvroll_core.words import WayOn
from tests.core.test_price import WISH, sessions, worker


def test_a_change_of_a_knob_is_priced_as_its_verdict_says() -> None:
    def priced(**knobs: Any) -> Price:
        workers = [worker(0, "a", sessions(1, 64, 4000), step_seconds=1e6)]
        ask = gather(
            workers,
            {"a": WISH, "b": replace(WISH, precision=Precision(**knobs))},
            "b",
            order=[0],
            settings=RollSettings(),
        )
        assert ask is not None
        return price(ask)

    for knobs in ({"weights": "int4", "weight_block": 32}, {"head": "int8"}):
        found = priced(**knobs)
        assert [w.way for w in found.ways] == [WayOn.REPLAY], knobs
        assert found.benefit.weights_bytes_after < found.benefit.weights_bytes_before
    plain, found = priced(kv_cache="int8"), priced(kv_cache="int8", skip_layers=(0, 29))
    assert [w.way for w in found.ways] == [w.way for w in plain.ways] == [WayOn.CONVERT]
    tokens = [30 * 3 * 136, 28 * 3 * 136 + 2 * 3 * 256]
    assert found.ways[0].bytes * tokens[0] == plain.ways[0].bytes * tokens[1] > 0
    assert found.benefit.kv_bytes_after == 64 * tokens[1]
