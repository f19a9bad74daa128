"""The JSON of OpenAI's answers: what differs between the two endpoints stands side by side."""

from collections.abc import Sequence
from typing import Any, Protocol

from kvroll.v1 import common_pb2 as pb

JsonObject = dict[str, Any]


class Shape(Protocol):
    """How one endpoint writes its answers. `frames` are one token each, in order."""

    stream_object: str
    whole_object: str
    id_prefix: str

    def opening(self) -> JsonObject | None:
        """The choice of a first chunk before any token, if the endpoint has one."""

    def choice(self, frames: Sequence[pb.Frame], *, whole: bool, token_ids: bool) -> JsonObject: ...


class ChatShape:
    stream_object = "chat.completion.chunk"
    whole_object = "chat.completion"
    id_prefix = "chatcmpl-"

    def opening(self) -> JsonObject | None:
        return {"index": 0, "delta": {"role": "assistant", "content": ""}, "logprobs": None, "finish_reason": None}

    def choice(self, frames: Sequence[pb.Frame], *, whole: bool, token_ids: bool) -> JsonObject:
        message: JsonObject = {"content": _text(frames)}
        if whole:
            message = {"role": "assistant", **message, "refusal": None}
        logged = [frame for frame in frames if frame.logprobs]
        return {
            "index": 0,
            "message" if whole else "delta": message,
            "logprobs": {"content": [_chat_logprob(frame) for frame in logged]} if logged else None,
            "finish_reason": _finish(frames),
            **_ids(frames, token_ids),
        }


class CompletionShape:
    stream_object = "text_completion"
    whole_object = "text_completion"
    id_prefix = "cmpl-"

    def opening(self) -> JsonObject | None:
        return None

    def choice(self, frames: Sequence[pb.Frame], *, whole: bool, token_ids: bool) -> JsonObject:
        logged = [frame for frame in frames if frame.logprobs]
        return {
            "index": 0,
            "text": _text(frames),
            "logprobs": _completion_logprobs(logged) if logged else None,
            "finish_reason": _finish(frames),
            **_ids(frames, token_ids),
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


def _completion_logprobs(frames: Sequence[pb.Frame]) -> JsonObject:
    offsets, offset = [], 0
    for frame in frames:
        offsets.append(offset)
        offset += len(frame.logprobs[0].token)
    return {
        "tokens": [frame.logprobs[0].token for frame in frames],
        "token_logprobs": [frame.logprobs[0].logprob for frame in frames],
        "top_logprobs": [{one.token: one.logprob for one in frame.logprobs[1:]} for frame in frames],
        "text_offset": offsets,
    }
