"""Between the wire's messages and the domain's values; all that is decided here is what must not be read."""

from collections.abc import Iterator, Sequence
from dataclasses import fields

from google.protobuf.message import Message
from google.protobuf.unknown_fields import UnknownFieldSet

from kvroll.v1 import common_pb2 as pb
from kvroll_core.compat import Descriptor, Verdict
from kvroll_core.epoch import Epoch
from kvroll_core.words import VerdictKind
from kvroll_worker.request import PrecisionEpoch, Prompt, Sampling, SessionState, TokenEvent, TokenLogprob

STATE_VERSION = 1
"""Of `SessionState` on the wire and on disk; raised when a known field changes its meaning (common.proto)."""
FIRST_OPTIONAL_FIELD = 1000
"""Unknown fields from this number on may be ignored, those below it not."""
KIND_TO_WIRE = {
    VerdictKind.EXACT: pb.VERDICT_KIND_EXACT,
    VerdictKind.CONVERT: pb.VERDICT_KIND_CONVERT,
    VerdictKind.REPLAY: pb.VERDICT_KIND_REPLAY,
    VerdictKind.REFUSE: pb.VERDICT_KIND_REFUSE,
}
KIND_FROM_WIRE = {wire: kind for kind, wire in KIND_TO_WIRE.items()}


class StateFormatError(ValueError):
    """The state of a session was written by a newer version: reading a part of it would make another session of it."""


def epoch_to_wire(epoch: Epoch) -> pb.Epoch:
    return pb.Epoch(reign=epoch.reign, gateway_id=epoch.gateway_id, step=epoch.step)


def epoch_from_wire(message: pb.Epoch) -> Epoch:
    return Epoch(message.reign, message.gateway_id, message.step)


def descriptor_to_wire(descriptor: Descriptor) -> pb.Descriptor:
    return pb.Descriptor(**{f.name: getattr(descriptor, f.name) for f in fields(Descriptor)})


def descriptor_from_wire(message: pb.Descriptor) -> Descriptor:
    return Descriptor(**{f.name: getattr(message, f.name) for f in fields(Descriptor)})


def verdict_to_wire(verdict: Verdict) -> pb.Verdict:
    return pb.Verdict(kind=KIND_TO_WIRE[verdict.kind], reasons=verdict.reasons, guarantee=verdict.guarantee)


def sampling_to_wire(sampling: Sampling) -> pb.Sampling:
    message = pb.Sampling(
        temperature=sampling.temperature,
        top_p=sampling.top_p,
        top_k=sampling.top_k,
        min_p=sampling.min_p,
        seed=sampling.seed,
        max_tokens=sampling.max_tokens,
        stop=sampling.stop,
        stop_token_ids=sampling.stop_token_ids,
        ignore_eos=sampling.ignore_eos,
        reproducible=sampling.reproducible,
        repetition_penalty=sampling.repetition_penalty,
        presence_penalty=sampling.presence_penalty,
        frequency_penalty=sampling.frequency_penalty,
        logit_bias=[pb.LogitBias(token_id=token_id, bias=bias) for token_id, bias in sampling.logit_bias],
        min_tokens=sampling.min_tokens,
        include_stop_str_in_output=sampling.include_stop_str_in_output,
        echo=sampling.echo,
    )
    if sampling.logprobs is not None:
        message.logprobs = sampling.logprobs
    if sampling.prompt_logprobs is not None:
        message.prompt_logprobs = sampling.prompt_logprobs
    return message


def sampling_from_wire(message: pb.Sampling) -> Sampling:
    return Sampling(
        temperature=message.temperature,
        top_p=message.top_p,
        top_k=message.top_k,
        min_p=message.min_p,
        seed=message.seed,
        max_tokens=message.max_tokens,
        stop=tuple(message.stop),
        stop_token_ids=tuple(message.stop_token_ids),
        ignore_eos=message.ignore_eos,
        logprobs=message.logprobs if message.HasField("logprobs") else None,
        reproducible=message.reproducible,
        repetition_penalty=message.repetition_penalty or 1.0,  # absent from what an older gateway sends
        presence_penalty=message.presence_penalty,
        frequency_penalty=message.frequency_penalty,
        logit_bias=tuple((one.token_id, one.bias) for one in message.logit_bias),
        min_tokens=message.min_tokens,
        include_stop_str_in_output=message.include_stop_str_in_output,
        echo=message.echo,
        prompt_logprobs=message.prompt_logprobs if message.HasField("prompt_logprobs") else None,
    )


def precision_to_wire(precision_epochs: list[PrecisionEpoch]) -> list[pb.PrecisionEpoch]:
    return [
        pb.PrecisionEpoch(from_token=p.from_token, weights=p.weights, kv_cache=p.kv_cache, mode=p.mode)
        for p in precision_epochs
    ]


def state_to_wire(state: SessionState) -> pb.SessionState:
    return pb.SessionState(
        session_id=state.session_id,
        model=state.model,
        prompt_token_ids=state.prompt_token_ids,
        output_token_ids=state.output_token_ids,
        sampling=sampling_to_wire(state.sampling),
        emitted_chars=state.emitted_chars,
        precision_epochs=precision_to_wire(state.precision_epochs),
        created_unix_seconds=state.created_unix_seconds,
        same_revision_moves=state.same_revision_moves,
        cache_salt=state.cache_salt,
        priority=state.priority,
        kv_converted=state.kv_converted,
        format_version=STATE_VERSION,
    )


def state_from_wire(message: pb.SessionState) -> SessionState:
    """The state of a session.

    Raises:
        StateFormatError: it is of a newer format version, or has fields that this version does not know and must not ignore.
    """
    if message.format_version > STATE_VERSION:
        raise StateFormatError(
            f"expected the state of {message.session_id} in format version {STATE_VERSION} or older, found"
            f" {message.format_version}; give it to a worker of that version"
        )
    if unknown := sorted(set(_unknown_fields(message, "SessionState"))):
        raise StateFormatError(
            f"expected the state of {message.session_id} in known fields, found also {', '.join(unknown)}; give it to a worker"
            " of the version that wrote it"
        )
    return SessionState(
        session_id=message.session_id,
        model=message.model,
        prompt_token_ids=list(message.prompt_token_ids),
        output_token_ids=list(message.output_token_ids),
        sampling=sampling_from_wire(message.sampling),
        emitted_chars=message.emitted_chars,
        precision_epochs=[
            PrecisionEpoch(p.from_token, p.weights, p.kv_cache, p.mode) for p in message.precision_epochs
        ],
        created_unix_seconds=message.created_unix_seconds,
        same_revision_moves=message.same_revision_moves,
        cache_salt=message.cache_salt,
        priority=message.priority,
        kv_converted=message.kv_converted,
    )


def _unknown_fields(message: Message, path: str) -> Iterator[str]:
    """Every field that was read but is not known and may not be ignored, as `Message.number`, in the messages inside too."""
    unknown = UnknownFieldSet(message)
    numbers = (unknown[at].field_number for at in range(len(unknown)))
    yield from (f"{path}.{number}" for number in numbers if number < FIRST_OPTIONAL_FIELD)
    for field, value in message.ListFields():
        if field.type == field.TYPE_MESSAGE:
            for inner in value if isinstance(value, Sequence) else (value,):
                yield from _unknown_fields(inner, inner.DESCRIPTOR.name)


def frame_to_wire(event: TokenEvent) -> pb.Frame:
    """A frame without epoch and record: both are set when it is sent."""
    return pb.Frame(
        session_id=event.session_id,
        index=event.index,
        token_id=event.token_id,
        text=event.text,
        logprobs=_logprobs_to_wire(event.logprobs),
        finish_reason=event.finish_reason or "",
        prompt=_prompt_to_wire(event.prompt) if event.prompt is not None else None,
    )


def _prompt_to_wire(prompt: Prompt) -> pb.Prompt:
    tokens = [
        pb.PromptToken(token_id=one.token_id, token=one.token, logprobs=_logprobs_to_wire(one.logprobs))
        for one in prompt.tokens
    ]
    return pb.Prompt(text=prompt.text, tokens=tokens)


def _logprobs_to_wire(logprobs: tuple[TokenLogprob, ...]) -> list[pb.TokenLogprob]:
    return [pb.TokenLogprob(token_id=lp.token_id, token=lp.token, logprob=lp.logprob) for lp in logprobs]
