"""A look at whole rows of logits while a prompt is computed: what an evaluation needs and no client is given."""

from collections.abc import Callable, Container
from dataclasses import dataclass

from kvroll_worker.engine.request import EngineError
from kvroll_worker.engine.sampler import Row


class ProbeFailedError(EngineError):
    """A probe raised: its session, by whose id this error goes, is to be freed; the step is computed again without it."""

    def __init__(self, session_id: str, error: Exception) -> None:
        super().__init__(f"the probe of {session_id} failed: {type(error).__name__}: {error}")
        self.session_id = session_id


@dataclass(frozen=True)
class PromptProbe:
    """`take(position, logits)` is called for each of `positions` of the prompt; the row [vocab] predicts the token at position + 1.

    Rows come in any number of steps, and again from the start where the session was preempted. They are valid during the call only.
    The last position of a prompt is not among them: its row is what the first output is sampled from.
    """

    positions: Container[int]
    take: Callable[[int, Row], None]
