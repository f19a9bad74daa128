"""Reads a trace of requests: JSON lines, with prompts as token ids, text, chat messages, or hashed blocks."""

import json
from collections.abc import Hashable, Sequence
from pathlib import Path
from typing import Any

from kvroll_cli.commands.advise.lengths import requests_of_lengths
from kvroll_cli.errors import CliError
from kvroll_core.advise import TracedRequest, TraceError

_BYTES_PER_TOKEN = 4  # of English text, about; only where a trace has text and no token counts
_TEXT_PAGE_BYTES = 32 * _BYTES_PER_TOKEN
_HASHED_BLOCK_TOKENS = 512  # of Mooncake's public traces


def read_trace(path: Path, *, seconds_per_token: float | None) -> list[TracedRequest]:
    """The requests of a JSONL file, of BurstGPT's CSV, or of what vLLM's benchmark writes.

    Each line has `arrival` (seconds) or `timestamp` (milliseconds, as Mooncake's traces), a prompt (`prompt_ids`,
    `prompt`, `messages` or `hash_ids`), `output_tokens` (or `output_length`), and `duration` in seconds; without it,
    output tokens x `seconds_per_token`.

    Raises:
        CliError: the file is not there, or a line is not that; the line is named.
    """
    try:
        text = path.read_text()
    except OSError as error:
        raise CliError(f"expected a trace of JSON lines, found {str(error.strerror).lower()}: {path}") from error
    except UnicodeDecodeError as error:
        raise CliError(f"expected a trace of JSON lines, found {error}: {path}") from error
    try:
        if (lengths := requests_of_lengths(text, seconds_per_token)) is not None:
            return lengths
    except TraceError as error:
        raise CliError(f"{path}: {error}") from error
    found = []
    for number, line in enumerate(text.splitlines(), 1):
        if line.strip():
            try:
                found.append(_request(json.loads(line), seconds_per_token))
            except (ValueError, KeyError, TypeError, AttributeError) as error:
                raise CliError(f"{path}:{number}: {_problem(error)}") from error
    return found


def _request(line: dict[str, Any], seconds_per_token: float | None) -> TracedRequest:
    output = int(line["output_tokens"] if "output_tokens" in line else line["output_length"])
    duration = line.get("duration")
    if duration is None and seconds_per_token is not None:
        duration = output * seconds_per_token
    prompt, tokens, page_units, page_tokens = _prompt(line)
    return TracedRequest(
        arrival_seconds=float(line["arrival"]) if "arrival" in line else float(line["timestamp"]) / 1000,
        duration_seconds=None if duration is None else float(duration),
        prompt_tokens=int(line.get("prompt_tokens") or line.get("input_length") or tokens),
        output_tokens=output,
        prompt=prompt,
        page_units=page_units,
        page_tokens=page_tokens,
    )


def _prompt(line: dict[str, Any]) -> tuple[Sequence[Hashable], int, int, int]:
    """Units, tokens, units a page, tokens a page."""
    if "prompt_ids" in line:
        return line["prompt_ids"], len(line["prompt_ids"]), 32, 32
    if "hash_ids" in line:
        blocks = line["hash_ids"]
        return blocks, len(blocks) * _HASHED_BLOCK_TOKENS, 1, _HASHED_BLOCK_TOKENS
    text = _chat(line["messages"]) if "messages" in line else line["prompt"].encode()
    return text, -(-len(text) // _BYTES_PER_TOKEN), _TEXT_PAGE_BYTES, 32


def _chat(messages: Sequence[dict[str, str]]) -> bytes:
    return "".join(f"{m['role']}\n{m['content']}\n" for m in messages).encode()


def _problem(error: Exception) -> str:
    if isinstance(error, KeyError):
        return f"expected {error.args[0]!r} (arrival, a prompt, output_tokens), found none"
    return f"expected a JSON object of a request, found {error}"
