"""What a rollout will cost and gain, before anything moves: sessions by way on, bytes, tokens, devices, seconds; and what blocks it.

Pure arithmetic over the worker's own rule (`kvroll_core.choice`) and the budget's. The operator shows it in `status.plan`, the command line
computes the same for a file that nobody applied. Whoever may import `kvroll_core` may import this, by this name alone.
"""

from kvroll_core.price.ask import (
    Blocker,
    PlacedWorker,
    PriceAsk,
    PriceChange,
    Rate,
    Rates,
    RateSource,
    RollSettings,
    SessionClass,
    WorkerFacts,
)
from kvroll_core.price.gather import Wish, gather
from kvroll_core.price.outcome import GroupOutcome, WayPrice
from kvroll_core.price.price import Benefit, KvFit, Price, price
from kvroll_core.price.walk import walk

__all__ = [
    "Benefit",
    "Blocker",
    "GroupOutcome",
    "KvFit",
    "PlacedWorker",
    "Price",
    "PriceAsk",
    "PriceChange",
    "Rate",
    "RateSource",
    "Rates",
    "RollSettings",
    "SessionClass",
    "WayPrice",
    "Wish",
    "WorkerFacts",
    "gather",
    "price",
    "walk",
]
