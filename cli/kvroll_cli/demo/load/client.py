"""One streaming chat session over the gateway's public API."""

import json
import time
from typing import Any

import httpx
from httpx_sse import ServerSentEvent, aconnect_sse

from kvroll_cli.demo.load.transcript import TokenArrival, Transcript


async def stream_chat(http: httpx.AsyncClient, transcript: Transcript, request: dict[str, Any]) -> Transcript:
    """Runs one `/v1/chat/completions` stream to its end and fills the transcript; an error is recorded, never raised.

    `request` is the OpenAI request without `stream`; token ids are asked for, so that the client can count for itself.
    """
    body = {**request, "stream": True, "return_token_ids": True}
    transcript.started_seconds = time.monotonic()
    try:
        async with aconnect_sse(http, "POST", "/v1/chat/completions", json=body) as source:
            if source.response.status_code != 200:
                await source.response.aread()
                transcript.error = f"HTTP {source.response.status_code}: {source.response.text[:500]}"
                return transcript
            async for event in source.aiter_sse():
                if not event.data:  # an id or a comment alone
                    continue
                if event.data == "[DONE]":
                    break
                _take(transcript, event, time.monotonic())
    except httpx.HTTPError as error:
        transcript.error = f"{type(error).__name__}: {error}"
    finally:
        transcript.ended_seconds = time.monotonic()
    return transcript


def _take(transcript: Transcript, event: ServerSentEvent, seconds: float) -> None:
    chunk = json.loads(event.data)
    if "error" in chunk:
        transcript.error = json.dumps(chunk["error"])
        return
    for choice in chunk.get("choices", ()):
        ids = choice.get("token_ids") or choice.get("delta", {}).get("token_ids") or ()
        if ids:
            _, epoch, index = event.id.rsplit(".", 2)
            first = int(index) - len(ids) + 1
            transcript.arrivals += [TokenArrival(first + i, epoch, token, seconds) for i, token in enumerate(ids)]
        transcript.text += choice.get("delta", {}).get("content") or ""
        if choice.get("finish_reason"):
            transcript.finish_reason = choice["finish_reason"]
    extension = chunk.get("kvroll")
    if extension:
        transcript.session_id = extension.get("session_id")
        if worker := extension.get("worker"):
            transcript.workers.append(worker)
    if extension and "record" in extension:
        transcript.precision_epochs = extension.get("precision_epochs", [])
        record = extension["record"]
        transcript.record_tokens = record.get("completion_tokens")
        transcript.record_digest = record.get("output_digest")
