"""What an engine refuses at the door, with the arithmetic: what can never run here."""

from collections.abc import Sequence

from kvroll_core.budget import PageWindow, pages_for
from kvroll_worker.engine.emitter import complete
from kvroll_worker.engine.request import DoesNotFitError, SessionState


def check_fits(state: SessionState, max_model_len: int, num_pages: int, window: PageWindow, vocab_size: int) -> None:
    """Raises DoesNotFitError if the session could not run even on an empty engine."""
    if not state.prompt_token_ids or complete(state):
        raise DoesNotFitError(
            f"expected a prompt and tokens left to generate, found {len(state.prompt_token_ids)} prompt tokens and"
            f" {len(state.output_token_ids)} of {state.sampling.max_tokens} outputs"
        )
    check_ids(state.prompt_token_ids, vocab_size)
    check_ids(state.output_token_ids, vocab_size)
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


def check_ids(token_ids: Sequence[int], vocab_size: int) -> None:
    """Raises DoesNotFitError if an id is not in the vocabulary."""
    if token_ids and not (min(token_ids) >= 0 and max(token_ids) < vocab_size):
        raise DoesNotFitError(
            f"expected token ids from 0 to {vocab_size - 1}, found {min(token_ids)} to {max(token_ids)}"
        )
