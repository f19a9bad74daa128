"""What an engine refuses at the door, with the arithmetic: what is out of its bounds, and what can never run here."""

from collections.abc import Iterable, Iterator, Sequence

from kvroll_core.budget import PageWindow, pages_for
from kvroll_core.sampling_bounds import Violation, number_violations, sampling_violations, token_id_violations
from kvroll_worker.engine.text.emitter import complete
from kvroll_worker.request import DoesNotFitError, InvalidRequestError, SessionState


def check_fits(state: SessionState, max_model_len: int, num_pages: int, window: PageWindow, vocab_size: int) -> None:
    """Refuses a session that could not run even on an empty engine.

    Raises:
        InvalidRequestError: a value is out of its bound.
        DoesNotFitError: it is too long, or has nothing left to generate.
    """
    _refuse_first(violations(state, vocab_size))
    if complete(state):
        raise DoesNotFitError(
            f"expected tokens left to generate, found {len(state.output_token_ids)} of {state.sampling.max_tokens} outputs"
        )
    total = len(state.prompt_token_ids) + state.sampling.max_tokens
    sum_text = f"{len(state.prompt_token_ids)} prompt + {state.sampling.max_tokens} max_tokens = {total} tokens"
    if total > max_model_len:
        raise DoesNotFitError(
            f"{sum_text}, more than max_model_len {max_model_len}; shorten the prompt or ask for less"
        )
    need = window.session_pages(total)
    if need > num_pages:
        at_once = (
            f" of {pages_for(total)} at once (windows of {window.tokens} tokens)" if need < pages_for(total) else ""
        )
        raise DoesNotFitError(f"{sum_text} need {need} pages{at_once}, there are {num_pages}; give more KV memory")


def violations(state: SessionState, vocab_size: int) -> Iterator[Violation]:
    """Every value of a session that is out of its bound."""
    if not state.prompt_token_ids:
        yield Violation("prompt", "a prompt of at least 1 token", "none")
    yield from token_id_violations("prompt", state.prompt_token_ids, vocab_size)
    yield from token_id_violations("outputs", state.output_token_ids, vocab_size)
    yield from number_violations("priority", state.priority)
    yield from sampling_violations(state.sampling, vocab_size)


def check_ids(token_ids: Sequence[int], vocab_size: int) -> None:
    """Raises InvalidRequestError if an id is not in the vocabulary."""
    _refuse_first(token_id_violations("outputs", token_ids, vocab_size))


def _refuse_first(found: Iterable[Violation]) -> None:
    for violation in found:
        raise InvalidRequestError(str(violation))
