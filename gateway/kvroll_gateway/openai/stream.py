"""The tokens of a request's sessions as an HTTP answer: SSE chunks, or one JSON object."""

import json
import time
from collections.abc import AsyncIterator, Sequence
from contextlib import aclosing

import structlog
from sse_starlette import EventSourceResponse, ServerSentEvent
from starlette.types import Receive, Scope, Send

from kvroll.v1 import common_pb2 as pb
from kvroll_gateway.openai.errors import OpenAiError
from kvroll_gateway.openai.merge import merged
from kvroll_gateway.openai.requests import ChatRequest, CompletionRequest
from kvroll_gateway.openai.shapes import AnswerChoice, JsonObject, Shape, kvroll_extension, usage
from kvroll_gateway.sessions.messages import read_epoch
from kvroll_gateway.sessions.phases import Failure
from kvroll_gateway.sessions.session import GatewaySession, SessionFailedError
from kvroll_gateway.sessions.token import event_id

_SEP = "\n"  # what OpenAI sends; many clients split at it by hand

log = structlog.get_logger(__name__)


class SessionResponse(EventSourceResponse):
    """An SSE answer that cancels its sessions when the client goes, even before the first byte."""

    def __init__(
        self, sessions: Sequence[GatewaySession], events: AsyncIterator[ServerSentEvent], keep_alive_seconds: float
    ) -> None:
        super().__init__(
            events,
            ping=keep_alive_seconds,
            sep=_SEP,
            ping_message_factory=lambda: ServerSentEvent(comment="keep-alive", sep=_SEP),
        )
        self._sessions = sessions

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        try:
            await super().__call__(scope, receive, send)
        finally:
            for session in self._sessions:
                session.cancel("client disconnected")


class StreamedAnswer:
    """Writes one request's sessions, one a choice, in the shape of one endpoint.

    Args:
        session_token: what SSE ids begin with. Only a stream of one choice has ids: an id stands for one session.
    """

    def __init__(
        self,
        sessions: Sequence[GatewaySession],
        request: ChatRequest | CompletionRequest,
        shape: Shape,
        session_token: str,
    ) -> None:
        self._sessions = sessions
        self._request = request
        self._shape = shape
        self._token = session_token
        self._created = int(time.time())
        self._choices = make_choices(request, len(sessions))
        self._told: dict[int, pb.Epoch] = {}

    async def events(self) -> AsyncIterator[ServerSentEvent]:
        """The chunks, then usage if asked for, then `[DONE]`; what fails ends with one error event instead."""
        try:
            async for event in self._events():
                yield event
        except SessionFailedError as error:
            yield _event(OpenAiError.of(error.failure).body())
        except Exception:  # a defect: the headers are sent, so this is how its client hears of it
            log.exception("answer_failed", session_id=self._sessions[0].session_id)
            yield _event(OpenAiError.of(Failure("internal_error", "the gateway failed; its log says why")).body())

    async def _events(self) -> AsyncIterator[ServerSentEvent]:
        for choice in self._choices:
            opening = self._shape.opening(choice)
            if opening is not None:
                yield _event(self._chunk([opening]))
        async with aclosing(merged(self._sessions)) as frames:
            async for place, frame in frames:
                self._choices[place].num_tokens += 1
                if self._says_something(frame):
                    yield self._frame_event(place, frame)
        if self._request.include_usage:
            yield _event(self._envelope(self._shape.stream_object, []) | {"usage": self._usage()})
        yield ServerSentEvent(data="[DONE]", sep=_SEP)

    async def whole(self) -> JsonObject:
        """The answer as one object.

        Raises:
            SessionFailedError: a session ended without its last token.
        """
        found: list[list[pb.Frame]] = [[] for _ in self._sessions]
        async with aclosing(merged(self._sessions)) as arriving:
            async for place, frame in arriving:
                found[place].append(frame)
        choices, extensions = [], []
        for choice, frames, session in zip(self._choices, found, self._sessions, strict=True):
            choice.whole, choice.num_tokens = True, len(frames)
            choices.append(self._shape.choice(frames, choice))
            extensions.append(kvroll_extension(session.session_id, frames[-1].record))
        answer = {**self._envelope(self._shape.whole_object, choices), "usage": self._usage()}
        if len(choices) == 1:
            return {**answer, "kvroll": extensions[0]}
        for one, extension in zip(choices, extensions, strict=True):
            one["kvroll"] = extension
        return answer

    def _says_something(self, frame: pb.Frame) -> bool:
        """False for a token whose text is held back and that nobody asked to see."""
        told = frame.text or frame.logprobs or frame.finish_reason or frame.HasField("prompt")
        return bool(told or self._request.return_token_ids)

    def _frame_event(self, place: int, frame: pb.Frame) -> ServerSentEvent:
        choice, session = self._choices[place], self._sessions[place]
        chunk = self._chunk([self._shape.choice([frame], choice)])
        told = self._new_owner(place, frame)
        if frame.finish_reason:
            told |= kvroll_extension(session.session_id, frame.record)
        if told:
            chunk["kvroll"] = told
        alone = len(self._sessions) == 1
        return _event(chunk, event_id(self._token, read_epoch(frame.epoch), frame.index) if alone else None)

    def _new_owner(self, place: int, frame: pb.Frame) -> JsonObject:
        """Who sends from this token on, for a client that follows its tokens; nothing while that is who sent the last one."""
        ownership = self._sessions[place].ownership
        is_told = self._told.get(place) == frame.epoch
        # A frame of an earlier owner may be read after the session was handed on: nothing is said of that one.
        is_its = ownership.owner is not None and read_epoch(frame.epoch) == ownership.epoch
        if not self._request.return_token_ids or is_told or not is_its:
            return {}
        self._told[place] = frame.epoch
        return {"session_id": ownership.session_id, "worker": ownership.owner}

    def _chunk(self, choices: list[JsonObject]) -> JsonObject:
        chunk = self._envelope(self._shape.stream_object, choices)
        if self._request.continuous_usage:
            return {**chunk, "usage": self._usage()}
        return {**chunk, "usage": None} if self._request.include_usage else chunk

    def _envelope(self, kind: str, choices: list[JsonObject]) -> JsonObject:
        name = self._shape.id_prefix + self._sessions[0].session_id
        return {"id": name, "object": kind, "created": self._created, "model": self._request.model, "choices": choices}

    def _usage(self) -> JsonObject:
        """A prompt counts once, however many choices it has; what was left out of the answer does not count."""
        prompts = self._sessions[:: self._request.n]
        outputs = sum(choice.num_tokens for choice in self._choices if not choice.prompt_only)
        return usage(sum(session.prompt_tokens for session in prompts), outputs)


def make_choices(request: ChatRequest | CompletionRequest, count: int) -> list[AnswerChoice]:
    """The choices of an answer in their order, before anything is written."""
    choices = [AnswerChoice(index, token_ids=request.return_token_ids) for index in range(count)]
    if isinstance(request, CompletionRequest):
        for choice in choices:
            prompt = request.prompts[choice.index // request.n]
            choice.echo, choice.prompt_only = request.echo, request.prompt_only
            choice.echo_logprobs, choice.prompt_logprobs = request.logprobs, request.prompt_logprobs
            choice.echo_text = prompt if isinstance(prompt, str) else None
    return choices


def _event(body: JsonObject, event_name: str | None = None) -> ServerSentEvent:
    return ServerSentEvent(data=json.dumps(body, ensure_ascii=False, separators=(",", ":")), id=event_name, sep=_SEP)
