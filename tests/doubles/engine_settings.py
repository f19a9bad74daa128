"""The settings of an engine as tests write them: the parts of its precision flat beside its limits."""

from dataclasses import fields
from pathlib import Path
from typing import Any

from kvroll_core.precision.precision import Precision
from kvroll_worker.engine.config import EngineConfig

_PARTS = frozenset(part.name for part in fields(Precision))


def engine_config(model: Path, **settings: Any) -> EngineConfig:
    """The config of an engine on that model."""
    precision = Precision(**{name: value for name, value in settings.items() if name in _PARTS})
    return EngineConfig(model, precision, **{name: value for name, value in settings.items() if name not in _PARTS})
