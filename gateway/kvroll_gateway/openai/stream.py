"""A session's tokens as an HTTP answer: SSE chunks, or one JSON object."""

import json
import time
from collections.abc import AsyncIterator

import structlog
from sse_starlette import EventSourceResponse, ServerSentEvent
from starlette.types import Receive, Scope, Send

from kvroll.v1 import common_pb2 as pb
from kvroll_gateway.openai.errors import ApiError
from kvroll_gateway.openai.requests import GenerationRequest
from kvroll_gateway.openai.shapes import JsonObject, Shape, kvroll_extension, usage
from kvroll_gateway.sessions.messages import read_epoch
from kvroll_gateway.sessions.session import Session, SessionFailedError
from kvroll_gateway.sessions.token import event_id

_SEP = "\n"  # what OpenAI sends; many clients split at it by hand

log = structlog.get_logger(__name__)


class SessionResponse(EventSourceResponse):
    """An SSE answer that cancels its session when the client goes, even before the first byte."""

    def __init__(self, session: Session, events: AsyncIterator[ServerSentEvent], keep_alive_seconds: float) -> None:
        super().__init__(
            events,
            ping=keep_alive_seconds,
            sep=_SEP,
            ping_message_factory=lambda: ServerSentEvent(comment="keep-alive", sep=_SEP),
        )
        self._session = session

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        try:
            await super().__call__(scope, receive, send)
        finally:
            self._session.cancel("client disconnected")


class Answer:
    """Writes one session in the shape of one endpoint."""

    def __init__(self, session: Session, request: GenerationRequest, shape: Shape, session_token: str) -> None:
        self._session = session
        self._request = request
        self._shape = shape
        self._token = session_token
        self._created = int(time.time())

    async def events(self) -> AsyncIterator[ServerSentEvent]:
        """The chunks, then usage if asked for, then `[DONE]`; a session that fails ends with an error event instead."""
        opening = self._shape.opening()
        if opening is not None:
            yield _event(self._chunk([opening]))
        try:
            async for frame in self._session.frames():
                if self._says_something(frame):
                    yield self._frame_event(frame)
        except SessionFailedError as error:
            yield _event(ApiError.of(error.failure).body())
            return
        if self._request.include_usage:
            yield _event(self._chunk([], usage=self._usage()))
        yield ServerSentEvent(data="[DONE]", sep=_SEP)

    async def whole(self) -> JsonObject:
        """The answer as one object.

        Raises:
            SessionFailedError: the session ended without its last token.
        """
        frames = [frame async for frame in self._session.frames()]
        choice = self._shape.choice(frames, whole=True, token_ids=self._request.return_token_ids)
        answer = self._envelope(self._shape.whole_object, [choice])
        return {
            **answer,
            "usage": self._usage(),
            "kvroll": kvroll_extension(self._session.session_id, frames[-1].record),
        }

    def _says_something(self, frame: pb.Frame) -> bool:
        """False for a token whose text is held back and that nobody asked to see."""
        return bool(frame.text or frame.logprobs or frame.finish_reason or self._request.return_token_ids)

    def _frame_event(self, frame: pb.Frame) -> ServerSentEvent:
        chunk = self._chunk([self._shape.choice([frame], whole=False, token_ids=self._request.return_token_ids)])
        if frame.finish_reason:
            chunk["kvroll"] = kvroll_extension(self._session.session_id, frame.record)
        return _event(chunk, event_id(self._token, read_epoch(frame.epoch), frame.index))

    def _chunk(self, choices: list[JsonObject], usage: JsonObject | None = None) -> JsonObject:
        chunk = self._envelope(self._shape.stream_object, choices)
        return {**chunk, "usage": usage} if self._request.include_usage else chunk

    def _envelope(self, kind: str, choices: list[JsonObject]) -> JsonObject:
        name = self._shape.id_prefix + self._session.session_id
        return {"id": name, "object": kind, "created": self._created, "model": self._request.model, "choices": choices}

    def _usage(self) -> JsonObject:
        return usage(self._session.prompt_tokens, self._session.ownership.log.next_index)


def _event(body: JsonObject, event_name: str | None = None) -> ServerSentEvent:
    return ServerSentEvent(data=json.dumps(body, ensure_ascii=False, separators=(",", ":")), id=event_name, sep=_SEP)
