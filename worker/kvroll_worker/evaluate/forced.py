"""Teacher-forced runs through an engine: every token of a text is scored against the cache that the engine's own format wrote.

A single forward pass that reads K and V before they are stored measures nothing of a KV format (two formats then give the same
perplexity to the last digit: aswnrj.dev, "two-pass perplexity"). Here each position attends to pages, its own token included, and the
engine's law of determinism makes a prefilled row the row that decoding would have computed.
"""

from itertools import count

import numpy as np

from kvroll_worker.engine.engine import Engine
from kvroll_worker.engine.step.probe import PromptProbe
from kvroll_worker.engine.step.sampler import Row
from kvroll_worker.evaluate.metrics import Logprobs, NotComparableError, log_softmax
from kvroll_worker.evaluate.needles import Haystack, RecalledNeedle
from kvroll_worker.request import EngineError, Sampling, SessionFailure, SessionState

_NUMBERS = count()


def logprobs_of(engine: Engine, token_ids: list[int]) -> Logprobs:
    """Log-probabilities [len(token_ids) - 1, vocab] of what comes next after each id but the last.

    The engine must have nothing else to do: this steps it until the text is scored.

    Raises:
        DoesNotFitError: the text and one token are longer than the engine's sessions may be.
        EngineError: the engine has work of its own.
        NotComparableError: the model gave numbers that are no numbers.
    """
    rows: dict[int, Logprobs] = {}

    def keep(position: int, row: Row) -> None:
        rows[position] = log_softmax(row)

    _run(engine, token_ids, PromptProbe(range(len(token_ids) - 1), keep))
    return np.stack([rows[position] for position in range(len(token_ids) - 1)])


def recall(engine: Engine, haystack: Haystack) -> list[RecalledNeedle]:
    """Which answers of the haystack the model gives by itself, greedily and exactly.

    The answers stand in the prompt, so that one run asks for all: an answer counts only if each of its tokens is the likeliest after
    those before it, which is when greedy decoding from its question would have written it. Raises as `logprobs_of` does.
    """
    likeliest: dict[int, int] = {}

    def keep(position: int, row: Row) -> None:
        likeliest[position + 1] = int(row.argmax())

    asked = [range(answer.first, answer.last + 1) for answer in haystack.answers]
    _run(engine, haystack.token_ids, PromptProbe({at - 1 for places in asked for at in places}, keep))
    return [
        RecalledNeedle(answer.depth, all(likeliest[at] == haystack.token_ids[at] for at in places))
        for answer, places in zip(haystack.answers, asked, strict=True)
    ]


def _run(engine: Engine, token_ids: list[int], probe: PromptProbe) -> None:
    if engine.sessions():
        raise EngineError(
            f"expected an engine without sessions, found {len(engine.sessions())}; evaluate on another one"
        )
    session_id = f"evaluate-{next(_NUMBERS)}"
    sampling = Sampling(temperature=0.0, max_tokens=1, ignore_eos=True)
    engine.submit(SessionState(session_id, "", list(token_ids), sampling=sampling), probe=probe)
    try:
        while engine.has_work():
            for event in engine.step():
                if isinstance(event, SessionFailure):
                    raise NotComparableError(f"{event.code}: {event.message}")
    finally:
        engine.cancel(session_id)
