"""A look at whole rows of logits while a prompt is computed: what an evaluation needs and no client is given."""

from collections.abc import Callable, Container
from dataclasses import dataclass

from kvroll_worker.engine.step.sampler import Row


@dataclass(frozen=True)
class PromptProbe:
    """`take(position, logits)` is called for each of `positions` of the prompt; the row [vocab] predicts the token at position + 1.

    Rows come in any number of steps, and again from the start where the session was preempted. They are valid during the call only.
    What `take` raises ends its session. The last position of a prompt is not among them: its row is what the first output is sampled from.
    """

    positions: Container[int]
    take: Callable[[int, Row], None]
