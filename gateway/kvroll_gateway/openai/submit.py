"""From an HTTP request to Submits with every default resolved but what only a worker knows."""

import secrets
import time
import uuid

from kvroll.v1 import common_pb2 as pb
from kvroll.v1 import inference_pb2 as inf
from kvroll_gateway.openai.requests import ChatRequest, CompletionRequest, GenerationRequest


def make_submits(request: ChatRequest | CompletionRequest, default_max_tokens: int) -> list[inf.Submit]:
    """One Submit a choice, without its epoch: `n` for the first prompt, then `n` for the next.

    A seed that was not given is drawn here, so that a replay draws the same tokens; one that was is raised by one for each further choice
    of a prompt, as vLLM does.
    """
    if isinstance(request, ChatRequest):
        chat = inf.Submit()
        chat.messages.extend(
            inf.ChatMessage(role=one.template_role, content=one.text, more_json=one.more_json)
            for one in request.messages
        )
        prompts = [chat]
    else:
        prompts = [
            inf.Submit(text=prompt) if isinstance(prompt, str) else inf.Submit(token_ids=prompt)
            for prompt in request.prompts
        ]
    return [
        _submit(prompt, request, make_sampling(request, default_max_tokens, nth))
        for prompt in prompts
        for nth in range(request.n)
    ]


def _submit(prompt: inf.Submit, request: GenerationRequest, sampling: pb.Sampling) -> inf.Submit:
    submit = inf.Submit(
        session_id=uuid.uuid4().hex,
        model=request.model,
        sampling=sampling,
        created_unix_seconds=time.time(),
        cache_salt=request.cache_salt or "",
        priority=request.priority,
    )
    submit.MergeFrom(prompt)
    return submit


def make_sampling(request: GenerationRequest, default_max_tokens: int, nth: int = 0) -> pb.Sampling:
    """The sampling of the `nth` choice of a prompt."""
    asked = request.asked_max_tokens
    completion = request if isinstance(request, CompletionRequest) else None
    return pb.Sampling(
        temperature=request.temperature,
        top_p=request.top_p,
        top_k=max(request.top_k, 0),
        min_p=request.min_p,
        seed=(request.seed + nth) % 2**64 if request.seed is not None else secrets.randbits(63),
        max_tokens=asked if asked is not None else default_max_tokens,
        stop=request.stop,
        ignore_eos=request.ignore_eos,
        logprobs=request.asked_logprobs,
        reproducible=request.reproducible,
        stop_token_ids=request.stop_token_ids,
        include_stop_str_in_output=request.include_stop_str_in_output,
        min_tokens=request.min_tokens,
        repetition_penalty=request.repetition_penalty,
        presence_penalty=request.presence_penalty,
        frequency_penalty=request.frequency_penalty,
        logit_bias=[pb.LogitBias(token_id=one, bias=bias) for one, bias in sorted(request.logit_bias.items())],
        echo=completion is not None and completion.echo,
        prompt_logprobs=completion.asked_prompt_logprobs if completion else None,
    )
