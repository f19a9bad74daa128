"""The gate: whether a candidate keeps a baseline's quality, by the user's own bars, with stated error rates.

Lives here: datasets, metrics, the sequential test, the trial and its evidence. No I/O (but the bundled dataset), no clock, no model: a
driver asks the models what `Trial.ask` asks and gives the answers to `Trial.take`. Whoever may import `kvroll_core` may import this.
"""

from kvroll_core.gate.answer import Answer, Arm, Ask, Batch, Score, ScoredToken, Token
from kvroll_core.gate.bar import Bar, GateError, GateVerdict, Metric
from kvroll_core.gate.dataset import Dataset, DatasetError, Task, Text, bundled, parse
from kvroll_core.gate.evidence import Evidence, GateFigure, NeedleCount
from kvroll_core.gate.policy import TrialPolicy
from kvroll_core.gate.trial import ALL_ARMS, Trial

__all__ = [
    "ALL_ARMS",
    "Answer",
    "Arm",
    "Ask",
    "Bar",
    "Batch",
    "Dataset",
    "DatasetError",
    "Evidence",
    "GateError",
    "GateFigure",
    "GateVerdict",
    "Metric",
    "NeedleCount",
    "Score",
    "ScoredToken",
    "Task",
    "Text",
    "Token",
    "Trial",
    "TrialPolicy",
    "bundled",
    "parse",
]
