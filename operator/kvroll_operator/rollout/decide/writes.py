"""The writes that a decision may be. Data only; `cluster/execute.py` performs each, idempotently."""

from dataclasses import dataclass

from kvroll_core.plan import RolloutRecord
from kvroll_operator.rollout.facts.observed import Revision


@dataclass(frozen=True)
class CreateRevision:
    """Make the ControllerRevision of a content that none has."""

    short: str
    content: str
    number: int
    has_default_image: bool = False


@dataclass(frozen=True)
class WriteRecord:
    """Replace the record on a ControllerRevision, if it is still at the observed resourceVersion."""

    revision: Revision
    record: RolloutRecord


Write = CreateRevision | WriteRecord
