"""Checks what a gateway asks for and resolves it into a session's state; every limit is named in the refusal."""

import json
from collections.abc import Iterable
from dataclasses import replace

from kvroll.v1 import common_pb2 as pb
from kvroll.v1 import inference_pb2 as ipb
from kvroll_core.sampling_bounds import Violation, number_violations, sampling_violations, token_id_violations
from kvroll_worker.port import TokenizerPort
from kvroll_worker.request import Sampling, SessionState
from kvroll_worker.wire.codec import sampling_from_wire, state_from_wire

_MAX_SALT = 256


class BadRequestError(Exception):
    """The request can never be served by this model: its client is at fault."""


def state_of_submit(submit: ipb.Submit, tokenizer: TokenizerPort, model: str, room_tokens: int) -> SessionState:
    """The state of a new session, its prompt tokenised and its `max_tokens` resolved; `room_tokens` is the longest that fits.

    Raises:
        BadRequestError: another model, no or more than one prompt, an unknown token id, sampling parameters out of range.
    """
    _same_model(submit.model, model)
    prompts = [submit.HasField("text"), bool(submit.token_ids), bool(submit.messages)]
    if sum(prompts) != 1:
        raise BadRequestError(f"expected exactly one of text, token_ids and messages, found {sum(prompts)}")
    if submit.HasField("text"):
        token_ids = _encoded(submit.text, tokenizer)
    elif submit.messages:
        token_ids = _rendered(submit, tokenizer)
    else:
        token_ids = list(submit.token_ids)
    if not token_ids:
        raise BadRequestError("the prompt has no tokens; send at least one")
    check_ids(token_ids, tokenizer)
    _refuse_first(number_violations("priority", submit.priority))
    return SessionState(
        session_id=_named(submit.session_id),
        model=submit.model,
        prompt_token_ids=token_ids,
        sampling=_checked(_bounded(sampling_from_wire(submit.sampling), len(token_ids), room_tokens), tokenizer),
        created_unix_seconds=submit.created_unix_seconds,
        cache_salt=_salt(submit.cache_salt),
        priority=submit.priority,
    )


def state_of_replay(message: pb.SessionState, tokenizer: TokenizerPort, model: str) -> SessionState:
    """The state of a session that comes with its history, from a gateway or from another worker.

    Raises:
        BadRequestError: as for `state_of_submit`; or the session has all its tokens already.
        StateFormatError: another version wrote it; a worker of that version can take it.
    """
    _same_model(message.model, model)
    state = state_from_wire(message)
    _named(state.session_id)
    _salt(state.cache_salt)
    if not state.prompt_token_ids:
        raise BadRequestError("the state has no prompt tokens")
    check_ids(state.prompt_token_ids, tokenizer)
    check_ids(state.output_token_ids, tokenizer)
    _checked(state.sampling, tokenizer)
    if len(state.output_token_ids) >= state.sampling.max_tokens:
        raise BadRequestError(
            f"the session has all its {state.sampling.max_tokens} tokens already; there is nothing to go on with"
        )
    return state


def _bounded(sampling: Sampling, prompt_tokens: int, room_tokens: int) -> Sampling:
    if sampling.max_tokens:
        return sampling
    if prompt_tokens >= room_tokens:
        raise BadRequestError(
            f"the prompt has {prompt_tokens} tokens, of {room_tokens} that a session may have here; shorten the prompt"
        )
    return replace(sampling, max_tokens=room_tokens - prompt_tokens)


def _encoded(text: str, tokenizer: TokenizerPort) -> list[int]:
    try:
        return tokenizer.encode(text)
    except (
        Exception
    ) as error:  # a tokenizer is the model's own data: whatever it raises is about this text, on every worker
        raise BadRequestError(f"prompt: the model's tokenizer failed on it: {type(error).__name__}: {error}") from error


def _rendered(submit: ipb.Submit, tokenizer: TokenizerPort) -> list[int]:
    try:
        # The rest of a message never names its role or content: those stand beside it.
        messages = [
            {**(json.loads(m.more_json) if m.more_json else {}), "role": m.role, "content": m.content}
            for m in submit.messages
        ]
        return tokenizer.render_chat(messages)
    except Exception as error:  # the template is the model's own program: whatever it raises is about these messages
        raise BadRequestError(f"the model's chat template refused the messages: {error}") from error


def _same_model(asked: str, mine: str) -> None:
    if asked != mine:
        raise BadRequestError(f"expected model {mine!r}, found {asked!r}")


def _named(session_id: str) -> str:
    if not 0 < len(session_id) <= 256:
        raise BadRequestError(f"expected a session id of 1 to 256 characters, found {len(session_id)}")
    return session_id


def _salt(cache_salt: str) -> str:
    if len(cache_salt) > _MAX_SALT:
        raise BadRequestError(f"cache_salt: expected at most {_MAX_SALT} characters, found {len(cache_salt)}")
    return cache_salt


def check_ids(token_ids: list[int], tokenizer: TokenizerPort) -> None:
    """Raises BadRequestError for an id that the model does not have."""
    _refuse_first(token_id_violations("prompt", token_ids, tokenizer.vocab_size))


def _checked(sampling: Sampling, tokenizer: TokenizerPort) -> Sampling:
    _refuse_first(sampling_violations(sampling, tokenizer.vocab_size))
    return sampling


def _refuse_first(found: Iterable[Violation]) -> None:
    for violation in found:
        raise BadRequestError(str(violation))
