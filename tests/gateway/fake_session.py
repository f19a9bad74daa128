"""A scripted worker's sessions: their tokens are a function of the ids before them, so every copy of a session agrees."""

from dataclasses import dataclass, field

import xxhash

from kvroll.v1 import common_pb2 as pb
from kvroll.v1 import inference_pb2 as inf
from kvroll.v1 import ownership_pb2 as own
from kvroll_core.epoch import Epoch

MODEL = "fake"
ROOM_TOKENS = 64  # what a session that names no limit may have


def next_token(ids: list[int]) -> int:
    return xxhash.xxh3_64_intdigest(b"".join(one.to_bytes(4, "little") for one in ids)) % 997


def expected_ids(prompt: list[int], count: int) -> list[int]:
    ids = list(prompt)
    for _ in range(count):
        ids.append(next_token(ids))
    return ids[len(prompt) :]


def text_of(token_id: int) -> str:
    return f"t{token_id} "


def read_epoch(epoch: pb.Epoch) -> Epoch:
    return Epoch(epoch.reign, epoch.gateway_id, epoch.step)


def write_epoch(epoch: Epoch) -> pb.Epoch:
    return pb.Epoch(reign=epoch.reign, gateway_id=epoch.gateway_id, step=epoch.step)


@dataclass
class Copy:
    """One copy of a session; `frozen` copies generate nothing."""

    state: pb.SessionState
    epoch: Epoch
    kept: list[pb.Frame] = field(default_factory=list)
    frozen: bool = False
    finished: bool = False
    transfer: own.TransferOwnership | None = None


@dataclass
class Script:
    """The switches: what this worker does differently from a good one."""

    token_seconds: float = 0.002
    admitting: bool = True
    reject: "inf.RejectCode.ValueType | None" = None
    duplicate_frames: bool = False
    swallow_index: int | None = None  # never sent until a Resume asks
    swallow_submitted: bool = False
    refuse_activate: bool = False
    ignore_activate: bool = False
    fail_at_index: int | None = None
    fail_code: str = "engine_error"
    stop_at_index: int | None = None
    dies_of: int | None = None  # a prompt token that ends the process
    dies_at_index: int = 0  # the output of such a session before which it does
    beat: inf.Heartbeat | None = None  # what it greets with, if it promises heartbeats


def record_of(state: pb.SessionState) -> pb.SessionRecord:
    """What an honest worker says at the end."""
    ids = b"".join(one.to_bytes(4, "little") for one in state.output_token_ids)
    return pb.SessionRecord(
        prompt_tokens=len(state.prompt_token_ids),
        completion_tokens=len(state.output_token_ids),
        output_digest=xxhash.xxh3_128_hexdigest(ids),
        precision_epochs=state.precision_epochs,
    )


def prompt_of(state: pb.SessionState) -> pb.Prompt:
    """Every prompt token as likely as e^-2, the first without a logprob."""
    ids = list(state.prompt_token_ids)
    prompt = pb.Prompt(text="".join(map(text_of, ids)) if state.sampling.echo else "")
    for at, token in enumerate(ids if state.sampling.HasField("prompt_logprobs") else []):
        told = [pb.TokenLogprob(token_id=token, token=text_of(token), logprob=-2.0)] if at else []
        told += [
            pb.TokenLogprob(token_id=other, token=text_of(other), logprob=-1.0 - other)
            for other in range(state.sampling.prompt_logprobs if at else 0)
        ]
        prompt.tokens.add(token_id=token, token=text_of(token), logprobs=told)
    return prompt


def frame_of(state: pb.SessionState) -> pb.Frame:
    """Generates the next token, appends it to the state, and returns its frame, without an epoch."""
    token, index = next_token([*state.prompt_token_ids, *state.output_token_ids]), len(state.output_token_ids)
    state.output_token_ids.append(token)
    frame = pb.Frame(session_id=state.session_id, index=index, token_id=token, text=text_of(token))
    if state.sampling.HasField("logprobs"):
        frame.logprobs.add(token_id=token, token=text_of(token), logprob=-0.5)
        for other in range(state.sampling.logprobs):
            frame.logprobs.add(token_id=other, token=text_of(other), logprob=-1.0 - other)
    if index == 0 and (state.sampling.echo or state.sampling.HasField("prompt_logprobs")):
        frame.prompt.CopyFrom(prompt_of(state))
    if index + 1 == state.sampling.max_tokens:
        frame.finish_reason = "length"
        frame.record.CopyFrom(record_of(state))
    return frame


def stamped(copy: Copy, frames: list[pb.Frame]) -> list[pb.Frame]:
    """The frames at the copy's epoch."""
    out = []
    for frame in frames:
        one = pb.Frame()
        one.CopyFrom(frame)
        one.epoch.CopyFrom(write_epoch(copy.epoch))
        out.append(one)
    return out


def held_of(copy: Copy) -> inf.HeldSession:
    state = copy.state
    return inf.HeldSession(
        session_id=state.session_id, epoch=write_epoch(copy.epoch), next_index=len(state.output_token_ids)
    )


def transfer_of(copy: Copy) -> own.TransferOwnership:
    """The request of a frozen copy, with all that the gateway has not acknowledged."""
    assert copy.transfer is not None
    request = own.TransferOwnership()
    request.CopyFrom(copy.transfer)
    request.epoch.CopyFrom(write_epoch(copy.epoch))
    request.state.CopyFrom(copy.state)
    request.unacknowledged.extend(stamped(copy, copy.kept))
    return request


def welcome_of(
    worker: pb.WorkerRef, admitting: bool, copies: list[Copy], beat: inf.Heartbeat | None = None
) -> inf.Welcome:
    held = [held_of(copy) for copy in copies]
    descriptor = pb.Descriptor(weights_dtype="bf16", kv_format="bf16")
    return inf.Welcome(
        worker=worker, descriptor=descriptor, model=MODEL, admitting=admitting, sessions=held, max_model_len=4096,
        heartbeat=beat,
    )  # fmt: skip
