"""The JSON of OpenAI's answers: what differs between the two endpoints stands side by side."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from kvroll.v1 import common_pb2 as pb

JsonObject = dict[str, Any]


@dataclass
class AnswerChoice:
    """One choice of an answer, and how it is written."""

    index: int
    whole: bool = False
    token_ids: bool = False
    echo: bool = False  # the prompt comes before the output
    echo_text: str | None = None  # the prompt as the client wrote it; None: as the worker reads it
    echo_logprobs: int | None = None  # likeliest tokens beside each echoed one; None: no logprobs
    prompt_logprobs: int | None = None  # the same in vLLM's shape, echoed or not
    prompt_only: bool = False  # the one token that the worker made is left out
    num_tokens: int = 0  # outputs written so far
    offset: int = 0  # characters of the token texts written so far


class Shape(Protocol):
    """How one endpoint writes its answers. `frames` are one token each, in order."""

    stream_object: str
    whole_object: str
    id_prefix: str

    def opening(self, choice: AnswerChoice) -> JsonObject | None:
        """The choice of a first chunk before any token, if the endpoint has one."""

    def choice(self, frames: Sequence[pb.Frame], choice: AnswerChoice) -> JsonObject: ...


class ChatShape:
    stream_object = "chat.completion.chunk"
    whole_object = "chat.completion"
    id_prefix = "chatcmpl-"

    def opening(self, choice: AnswerChoice) -> JsonObject | None:
        delta = {"role": "assistant", "content": ""}
        return {"index": choice.index, "delta": delta, "logprobs": None, "finish_reason": None}

    def choice(self, frames: Sequence[pb.Frame], choice: AnswerChoice) -> JsonObject:
        message: JsonObject = {"content": _text(frames)}
        if choice.whole:
            message = {"role": "assistant", **message, "refusal": None}
        logged = [frame for frame in frames if frame.logprobs]
        return {
            "index": choice.index,
            "message" if choice.whole else "delta": message,
            "logprobs": {"content": [_chat_logprob(frame) for frame in logged]} if logged else None,
            "finish_reason": _finish(frames),
            **_ids(frames, choice.token_ids),
        }


class CompletionShape:
    stream_object = "text_completion"
    whole_object = "text_completion"
    id_prefix = "cmpl-"

    def opening(self, choice: AnswerChoice) -> JsonObject | None:
        return None

    def choice(self, frames: Sequence[pb.Frame], choice: AnswerChoice) -> JsonObject:
        outputs = () if choice.prompt_only else frames
        prompt = next((frame.prompt for frame in frames if frame.HasField("prompt")), None)
        text = _text(outputs)
        logged = []
        if prompt is not None and choice.echo:
            text = (choice.echo_text if choice.echo_text is not None else prompt.text) + text
            if choice.echo_logprobs is not None:
                logged = [_Logged(one.token, one.logprobs[: 1 + choice.echo_logprobs]) for one in prompt.tokens]
        logged += [_Logged(frame.logprobs[0].token, frame.logprobs) for frame in outputs if frame.logprobs]
        return {
            "index": choice.index,
            "text": text,
            "logprobs": _completion_logprobs(logged, choice) if logged else None,
            "finish_reason": "length" if choice.prompt_only else _finish(frames),
            **_prompt_logprobs(prompt, choice.prompt_logprobs),
            **_ids(outputs, choice.token_ids),
        }


def usage(prompt_tokens: int, completion_tokens: int) -> JsonObject:
    return {
        "prompt_tokens": prompt_tokens,
        "completion_tokens": completion_tokens,
        "total_tokens": prompt_tokens + completion_tokens,
    }


def kvroll_extension(session_id: str, record: pb.SessionRecord) -> JsonObject:
    """What the last worker recorded, so that a client can check what it received and see which precisions made it."""
    epochs = [
        {"from_token": one.from_token, "weights": one.weights, "kv_cache": one.kv_cache, "mode": one.mode}
        for one in record.precision_epochs
    ]
    digest = {"completion_tokens": record.completion_tokens, "output_digest": record.output_digest}
    return {"session_id": session_id, "precision_epochs": epochs, "record": digest}


def _text(frames: Sequence[pb.Frame]) -> str:
    return "".join(frame.text for frame in frames)


def _finish(frames: Sequence[pb.Frame]) -> str | None:
    return (frames[-1].finish_reason or None) if frames else None


def _ids(frames: Sequence[pb.Frame], wanted: bool) -> JsonObject:
    return {"token_ids": [frame.token_id for frame in frames]} if wanted else {}


def _chat_logprob(frame: pb.Frame) -> JsonObject:
    sampled, *others = [_token(one) for one in frame.logprobs]
    return {**sampled, "top_logprobs": others}


def _token(one: pb.TokenLogprob) -> JsonObject:
    return {"token": one.token, "logprob": one.logprob, "bytes": list(one.token.encode())}


@dataclass(frozen=True)
class _Logged:
    """A token and the logprobs in its place: itself first; none for the first token of a prompt."""

    token: str
    logprobs: Sequence[pb.TokenLogprob]


def _completion_logprobs(logged: Iterable[_Logged], choice: AnswerChoice) -> JsonObject:
    """`text_offset` counts the texts of the tokens, prompt included if it is echoed, over all chunks of a stream."""
    found: JsonObject = {"tokens": [], "token_logprobs": [], "top_logprobs": [], "text_offset": []}
    for one in logged:
        found["tokens"].append(one.token)
        found["token_logprobs"].append(one.logprobs[0].logprob if one.logprobs else None)
        found["top_logprobs"].append(_best_by_text(one.logprobs) if one.logprobs else None)
        found["text_offset"].append(choice.offset)
        choice.offset += len(one.token)
    return found


def _prompt_logprobs(prompt: pb.Prompt | None, count: int | None) -> JsonObject:
    """vLLM's field: by token id, the token itself and the `count` likeliest ones, with the rank of each of these; null for the first
    token, and for the rank of a token that is not among the likeliest.
    """
    if prompt is None or count is None:
        return {}
    return {"prompt_logprobs": [_by_id(one.logprobs[: 1 + count]) if one.logprobs else None for one in prompt.tokens]}


def _by_id(logprobs: Sequence[pb.TokenLogprob]) -> JsonObject:
    own, *likeliest = logprobs
    ranks = {one.token_id: rank for rank, one in enumerate(likeliest, start=1)}
    return {
        str(one.token_id): {"logprob": one.logprob, "rank": ranks.get(one.token_id), "decoded_token": one.token}
        for one in (own, *likeliest)
    }


def _best_by_text(logprobs: Iterable[pb.TokenLogprob]) -> dict[str, float]:
    """The token itself and the likeliest ones; of tokens with the same text (bytes that are no character) the likelier."""
    best: dict[str, float] = {}
    for one in logprobs:
        best[one.token] = max(one.logprob, best.get(one.token, one.logprob))
    return best
