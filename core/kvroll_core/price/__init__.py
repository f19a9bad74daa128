"""What a rollout will cost and gain, before anything moves: sessions by way on, bytes, tokens, devices, seconds; and what blocks it.

Pure arithmetic over the worker's own rule (`kvroll_core.choice`) and the budget's. The operator shows it in `status.plan`, the command line
computes the same for a file that nobody applied. Whoever may import `kvroll_core` may import this, by this name alone.
"""

from kvroll_core.price.ask import (
    Blocker,
    Change,
    PlacedWorker,
    PriceAsk,
    Rate,
    Rates,
    RollSettings,
    SessionClass,
    Source,
    WorkerFacts,
)
from kvroll_core.price.gather import Wish, gather
from kvroll_core.price.outcome import GroupOutcome, WayPrice
from kvroll_core.price.price import Benefit, KvFit, Price, price
from kvroll_core.price.walk import walk

__all__ = [
    "Benefit",
    "Blocker",
    "Change",
    "GroupOutcome",
    "KvFit",
    "PlacedWorker",
    "Price",
    "PriceAsk",
    "Rate",
    "Rates",
    "RollSettings",
    "SessionClass",
    "Source",
    "WayPrice",
    "Wish",
    "WorkerFacts",
    "gather",
    "price",
    "walk",
]
