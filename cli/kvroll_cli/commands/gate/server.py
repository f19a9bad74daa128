"""An arm of the gate that is an OpenAI server: prompts are scored by `/v1/completions` with `echo` and `logprobs`."""

import math
from collections.abc import Sequence
from typing import Any

import httpx

from kvroll_cli.errors import CliError
from kvroll_core.gate import Answer, Ask, Score, ScoredToken

_TIMEOUT_SECONDS = 600.0
"""A long haystack on a CPU."""


class ServerError(CliError):
    """A server does not answer, or not with what the gate needs; the message says which and what to do."""


class ScoringServer:
    """One base URL, such as http://127.0.0.1:8000, with or without `/v1`; `model` None is the one that it lists.

    Raises:
        ServerError: it cannot be reached, or serves several models.
    """

    def __init__(self, url: str, model: str | None = None, api_key: str | None = None) -> None:
        self._url = url.rstrip("/").removesuffix("/v1")
        headers = {"Authorization": f"Bearer {api_key}"} if api_key else {}
        self._client = httpx.Client(timeout=_TIMEOUT_SECONDS, headers=headers)
        self.model = model or self._only_model()

    @property
    def name(self) -> str:
        """What the evidence calls it."""
        return f"{self.model} at {self._url}"

    def close(self) -> None:
        """Gives its connections back."""
        self._client.close()

    def answer(self, ask: Ask) -> Answer:
        """The scores of one ask.

        Raises:
            ServerError: no answer, or one without logprobs of the echoed prompt.
        """
        return Answer(tuple(self._score(ask, continuation) for continuation in ask.continuations))

    def _score(self, ask: Ask, continuation: str) -> Score:
        text = f"{ask.prompt or ''}{continuation}"
        body = {
            "model": self.model,
            "prompt": text,
            "max_tokens": 0,
            "echo": True,
            "logprobs": ask.top_k,
            "temperature": 0,
        }
        answer = self._call("POST", "/v1/completions", body)
        try:
            tokens = _tokens(answer["choices"][0]["logprobs"])
        except (KeyError, IndexError, TypeError, ValueError, AttributeError) as error:
            raise ServerError(
                f"expected completions with the logprobs of an echoed prompt from {self._url}, found none "
                f"({type(error).__name__}: {error}); the gate needs `echo` with `logprobs`, as `kvroll serve` and vLLM have them"
            ) from error
        scored = tokens[1:] if ask.prompt is None else _tail(tokens, ask, continuation, self._url)
        if not scored:
            raise ServerError(
                f"{ask.id}: expected a token to score behind a first one, found none; make the text longer"
            )
        greedy = all(one.likeliest and one.logprob >= one.likeliest[0][1] for one in scored)
        return Score(tuple(ScoredToken(one.token, one.logprob, one.likeliest[: ask.top_k]) for one in scored), greedy)

    def _only_model(self) -> str:
        found = self._call("GET", "/v1/models")
        try:
            names = [str(one["id"]) for one in found["data"]]
        except (KeyError, TypeError) as error:
            raise ServerError(
                f"expected a list of models from {self._url}/v1/models, found {str(found)[:200]}"
            ) from error
        if len(names) != 1:
            raise ServerError(
                f"expected one model at {self._url}, found {', '.join(names) or 'none'}; name it with --model"
            )
        return names[0]

    def _call(self, method: str, path: str, body: dict[str, Any] | None = None) -> dict[str, Any]:
        try:
            answer = self._client.request(method, f"{self._url}{path}", json=body)
            answer.raise_for_status()
            found = answer.json()
        except httpx.HTTPStatusError as error:
            told = " ".join(error.response.text.split())[:300]
            raise ServerError(
                f"expected an answer from {self._url}{path}, found {error.response.status_code}: {told}; "
                "the gate needs completions with `echo`, `logprobs` and `max_tokens: 0`, as `kvroll serve` and vLLM have them"
            ) from error
        except (httpx.HTTPError, httpx.InvalidURL, ValueError) as error:
            raise ServerError(f"expected an OpenAI server at {self._url}, found: {error}") from error
        if not isinstance(found, dict):
            raise ServerError(f"expected an object from {self._url}{path}, found {type(found).__name__}")
        return found


def _tokens(logprobs: dict[str, Any]) -> list[ScoredToken]:
    """Every token of the echoed prompt. The first has nothing before it; a null further on is a number that is none."""
    columns = (logprobs["tokens"], logprobs["token_logprobs"], logprobs["top_logprobs"])
    return [
        ScoredToken(str(token), math.nan if own is None else float(own), _likeliest(best or {}))
        for token, own, best in zip(*columns, strict=True)
    ]


def _likeliest(best: dict[str, float]) -> tuple[tuple[str, float], ...]:
    return tuple(sorted(((token, float(at)) for token, at in best.items()), key=lambda pair: -pair[1]))


def _tail(tokens: Sequence[ScoredToken], ask: Ask, continuation: str, url: str) -> list[ScoredToken]:
    """The last tokens that hold anything of the continuation: one that spans the border is among them.

    Counted from the end, because servers put a token of their own before the text.
    """
    told, at = "", len(tokens)
    while len(told) < len(continuation) and at > 1:
        at -= 1
        told = f"{tokens[at].token}{told}"
    if not told.endswith(continuation):
        raise ServerError(
            f"{ask.id}: expected tokens of {url} that end with {continuation!r}, found {told!r}; a continuation must consist of tokens "
            "that are whole characters"
        )
    return list(tokens[at:])
