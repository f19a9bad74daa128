"""The body of a request: read under a limit of bytes and of time, decoded under a limit of values."""

import asyncio
import re
from typing import Any

import jiter
from starlette.requests import Request

from kvroll_gateway.openai.errors import OpenAiError

MAX_BYTES = 32 << 20
MAX_VALUES = 1 << 20  # a prompt of a million token ids
"""Two bytes of JSON can be an object of sixty, so bytes alone do not bound the memory that a body takes."""

_REFUSED_TYPES = "expected Content-Type: application/json"


async def read_json(http: Request, seconds: float) -> Any:
    """The decoded body; its objects have no key twice, its strings are valid Unicode, its numbers are finite.

    Raises:
        ApiError: 408 for a body that is not there in `seconds`, 413 for one too large, 415 for another type, 400 for no JSON.
        ClientDisconnect: the client went before its body was complete.
    """
    _check_headers(http)
    try:
        async with asyncio.timeout(seconds):
            body = await _read(http)
    except TimeoutError:
        message = f"the body was not complete within {seconds:g} s"
        raise OpenAiError(408, message, code="request_timeout", close=True) from None
    return decode(body)


def decode(body: bytes) -> Any:
    """The JSON value in `body`.

    Raises:
        ApiError: 400, 413: it is none, or one that no client means.
    """
    if not body.strip():
        raise OpenAiError(400, "expected a JSON object, found an empty body", code="invalid_json")
    if body.startswith((b"\xef\xbb\xbf", b"\xff\xfe", b"\xfe\xff")):
        raise OpenAiError(400, "expected JSON in UTF-8 without a byte order mark", code="invalid_json")
    if _num_values(body) > MAX_VALUES:
        raise OpenAiError(
            413,
            f"expected at most {MAX_VALUES} values, commas and brackets counted, in one body",
            code="request_too_large",
        )
    try:
        # Caching repeated strings would keep what strangers send.
        return jiter.from_json(body, allow_inf_nan=False, catch_duplicate_keys=True, cache_mode="none")
    except ValueError as error:
        raise OpenAiError(400, f"expected a JSON body: {_explained(error)}", code="invalid_json") from None


def _check_headers(http: Request) -> None:
    encoding = http.headers.get("content-encoding", "identity").strip().lower()
    if encoding not in ("", "identity"):
        raise OpenAiError(415, f"expected no Content-Encoding, found {encoding!r}", code="unsupported_encoding")
    kind, _, parameters = http.headers.get("content-type", "").lower().partition(";")
    kind = kind.strip()
    # What curl sends for -d when nobody says otherwise is taken: the body decides.
    if kind not in ("", "application/json", "application/x-www-form-urlencoded") and not kind.endswith("+json"):
        raise OpenAiError(415, f"{_REFUSED_TYPES}, found {kind!r}", code="unsupported_media_type")
    charset = re.search(r"charset\s*=\s*\"?([^\s;\"]+)", parameters)
    if charset is not None and charset[1] not in ("utf-8", "utf8", "us-ascii"):
        raise OpenAiError(415, f"expected charset utf-8, found {charset[1]!r}", code="unsupported_media_type")
    if int(http.headers.get("content-length") or 0) > MAX_BYTES:
        raise _too_large()


async def _read(http: Request) -> bytes:
    """Counts what arrives: a chunked body declares no length."""
    body = bytearray()
    async for chunk in http.stream():
        if len(body) + len(chunk) > MAX_BYTES:
            raise _too_large()
        body += chunk
    return bytes(body)


def _too_large() -> OpenAiError:
    return OpenAiError(413, f"expected a body of at most {MAX_BYTES} bytes", code="request_too_large")


def _num_values(body: bytes) -> int:
    """At least the number of values in `body`. Commas and brackets inside strings count too: a text with so many is no prompt either."""
    return 1 + body.count(b",") + body.count(b"[") + body.count(b"{")


def _explained(error: ValueError) -> str:
    text = str(error)
    if "hex escape" in text or "surrogate" in text:
        return f"a \\u escape is no Unicode character, such as half of a surrogate pair ({text})"
    return text
