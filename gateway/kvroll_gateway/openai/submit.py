"""From an HTTP request to a Submit with every default resolved."""

import secrets
import time
import uuid

from kvroll.v1 import common_pb2 as pb
from kvroll.v1 import inference_pb2 as inf
from kvroll_gateway.openai.requests import ChatRequest, CompletionRequest, GenerationRequest


def make_submit(request: ChatRequest | CompletionRequest, default_max_tokens: int) -> inf.Submit:
    """The Submit, without its epoch; a seed that was not given is drawn here, so that a replay draws the same tokens."""
    submit = inf.Submit(
        session_id=uuid.uuid4().hex,
        model=request.model,
        sampling=make_sampling(request, default_max_tokens),
        created_unix_seconds=time.time(),
    )
    if isinstance(request, ChatRequest):
        submit.messages.extend(inf.ChatMessage(role=one.template_role, content=one.text) for one in request.messages)
    elif isinstance(prompt := request.one_prompt, str):
        submit.text = prompt
    else:
        submit.token_ids.extend(prompt)
    return submit


def make_sampling(request: GenerationRequest, default_max_tokens: int) -> pb.Sampling:
    asked = request.asked_max_tokens
    return pb.Sampling(
        temperature=request.temperature,
        top_p=request.top_p,
        top_k=max(request.top_k, 0),
        min_p=request.min_p,
        seed=request.seed % 2**64 if request.seed is not None else secrets.randbits(63),
        max_tokens=asked if asked is not None else default_max_tokens,
        stop=request.stop_strings,
        ignore_eos=request.ignore_eos,
        logprobs=request.asked_logprobs,
        reproducible=request.reproducible,
    )
