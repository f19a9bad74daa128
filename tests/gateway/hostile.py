"""Bodies that strangers send, each with the answer it must get: made by rules, so that each kind has its relatives."""

import gzip
import json
from dataclasses import dataclass, field
from typing import Any

from tests.gateway.fake_session import MODEL

CHAT, COMPLETIONS = "/v1/chat/completions", "/v1/completions"
DEEP = 100_000
BIG = 33 << 20  # above the limit


@dataclass(frozen=True)
class Hostile:
    """One request: what is sent, what must come back."""

    name: str
    path: str
    body: bytes
    status: int
    param: str | None = None
    headers: dict[str, str] = field(default_factory=dict)
    chunked: bool = False


def valid(path: str, **change: Any) -> dict[str, Any]:
    what: dict[str, Any] = (
        {"prompt": "hi"} if path == COMPLETIONS else {"messages": [{"role": "user", "content": "hi"}]}
    )
    return {"model": MODEL, "max_tokens": 2, **what, **change}


def text_with(path: str, name: str, raw: str) -> bytes:
    """A valid body with one more field, whose value is written as it stands."""
    body = {key: value for key, value in valid(path).items() if key != name}
    return f"{json.dumps(body)[:-1]}, {json.dumps(name)}: {raw}}}".encode()


NOT_JSON = {
    "empty": b"",
    "blanks": b" \r\n\t ",
    "a word": b"hello",
    "a form": b"model=x&prompt=y",
    "truncated": json.dumps(valid(COMPLETIONS)).encode()[:-1],
    "truncated in a string": b'{"model": "fa',
    "truncated in an escape": b'{"model": "fa\\u12',
    "two values": b"{} {}",
    "garbage behind": json.dumps(valid(COMPLETIONS)).encode() + b"x",
    "a trailing comma": b'{"model": "fake",}',
    "a comment": b'{"model": "fake" /* x */}',
    "single quotes": b"{'model': 'fake'}",
    "no quotes": b"{model: 1}",
    "a leading zero": b'{"model": 01}',
    "a plus": b'{"n": +1}',
    "hexadecimal": b'{"n": 0x10}',
    "NaN": b'{"temperature": NaN}',
    "Infinity": b'{"temperature": Infinity}',
    "minus Infinity": b'{"temperature": -Infinity}',
    "bad UTF-8": b'{"prompt": "\xff\xfe"}',
    "an overlong encoding": b'{"prompt": "\xc0\xaf"}',
    "a cut character": b'{"prompt": "\xe2\x82"}',
    "a surrogate in UTF-8": b'{"prompt": "\xed\xa0\xbd"}',
    "bad UTF-8 in a key": b'{"\xff": 1}',
    "a byte order mark": b"\xef\xbb\xbf" + json.dumps(valid(COMPLETIONS)).encode(),
    "UTF-16": json.dumps(valid(COMPLETIONS)).encode("utf-16"),
    "UTF-16 without a mark": json.dumps(valid(COMPLETIONS)).encode("utf-16-le"),
    "UTF-32": json.dumps(valid(COMPLETIONS)).encode("utf-32"),
    "a null byte": b'{"model": "a\x00b"}',
    "null bytes": b"\x00" * 1000,
    "a newline in a string": b'{"model": "a\nb"}',
    "an unknown escape": b'{"model": "\\x41"}',
    "zeros": b"0" * 6000,
    "nested lists": b"[" * DEEP + b"]" * DEEP,
    "nested lists, open": b"[" * DEEP,
    "nested objects": b'{"a":' * DEEP + b"1" + b"}" * DEEP,
    "nested by turns": b'[{"a":' * (DEEP // 2),
    "gzip": gzip.compress(json.dumps(valid(COMPLETIONS)).encode()),
}
NOT_AN_OBJECT = ["null", "true", "1", "1.5", '"text"', "[]", '[{"model": "fake"}]', "-0"]
LONE = ['"\\ud83d"', '"\\udc00"', '"a\\ud83db"', '"\\ud83d\\ud83d"', '"\\udc00\\ud83d"', '"\\uD800\\u0041"']
HUGE = ["9" * 6000, "-" + "9" * 6000, "1" + "0" * 4400]


def not_json() -> list[Hostile]:
    found = [Hostile(name, COMPLETIONS, body, 400) for name, body in NOT_JSON.items()]
    found += [
        Hostile(f"not an object: {raw}", path, raw.encode(), 400)
        for raw in NOT_AN_OBJECT
        for path in (CHAT, COMPLETIONS)
    ]
    for raw in LONE:
        found.append(
            Hostile(f"lone surrogate {raw} in a prompt", COMPLETIONS, text_with(COMPLETIONS, "prompt", raw), 400)
        )
        found.append(
            Hostile(f"lone surrogate {raw} in a list", COMPLETIONS, text_with(COMPLETIONS, "prompt", f"[{raw}]"), 400)
        )
        found.append(Hostile(f"lone surrogate {raw} as stop", CHAT, text_with(CHAT, "stop", raw), 400))
        message = f'[{{"role": "user", "content": {raw}}}]'
        found.append(Hostile(f"lone surrogate {raw} in a message", CHAT, text_with(CHAT, "messages", message), 400))
        found.append(Hostile(f"lone surrogate {raw} as a key", CHAT, f"{{{raw}: 1}}".encode(), 400))
        found.append(Hostile(f"lone surrogate {raw} as user", CHAT, text_with(CHAT, "user", raw), 400))
    for name in ("max_tokens", "seed", "n", "temperature", "top_k", "prompt"):
        found += [
            Hostile(f"{len(raw)} digits in {name}", COMPLETIONS, text_with(COMPLETIONS, name, raw), 400) for raw in HUGE
        ]
    for name in ("model", "prompt", "max_tokens"):
        raw = json.dumps(valid(COMPLETIONS)[name])
        body = json.dumps(valid(COMPLETIONS))[:-1] + f', "{name}": {raw}}}'
        found.append(Hostile(f"{name} twice", COMPLETIONS, body.encode(), 400))
    twice = b'{"model": "fake", "messages": [{"role": "user", "content": "a", "content": "b"}]}'
    return [*found, Hostile("content twice", CHAT, twice, 400)]


NUMBERS = {
    "temperature": 3,
    "top_p": 1.5,
    "min_p": 2,
    "presence_penalty": 3,
    "frequency_penalty": -3,
    "repetition_penalty": 0,
}
INTEGERS = {"n": 0, "max_tokens": -1, "top_k": -2, "min_tokens": -1, "seed": 2**63, "priority": 2**31}
FLAGS = ("stream", "ignore_eos", "return_token_ids", "reproducible", "include_stop_str_in_output")


def wrong_values() -> list[Hostile]:
    """One field of a wrong type or out of its range, named in the answer."""
    raw: list[tuple[str, str, str]] = []
    for name, out in NUMBERS.items():
        raw += [(CHAT, name, one) for one in ('"0.5"', "true", "[1]", "{}", "1e999", "-1e999", '""', json.dumps(out))]
    for name, out in INTEGERS.items():
        raw += [(CHAT, name, one) for one in ('"1"', "true", "1.5", "[1]", "1e999", "1e300", json.dumps(out))]
    raw += [(COMPLETIONS, name, one) for name in FLAGS for one in ("1", "0", '"true"', "[]")]
    raw += [(CHAT, "model", one) for one in ("1", "[]", "{}", "true")]
    raw += [(COMPLETIONS, "prompt", one) for one in (
        "1", "true", "{}", "[]", '""', '[""]', "[[]]", "[1, -1]", "[-5]", "[4294967296]", "[1.5]", "[true]", '["a", 1]', '[1, "a"]',
        "[[1], 2]", '[[1], "a"]', "[null]", "[[[1]]]", "[{}]", '["a", null]',
    )]  # fmt: skip
    raw += [
        (COMPLETIONS, "stop", one)
        for one in ("1", "true", "{}", "[1]", '""', '["a", ""]', json.dumps(["a"] * 17), json.dumps("a" * 5000))
    ]
    raw += [(CHAT, "stop_token_ids", one) for one in ("1", '"1"', "[-1]", "[true]", "[1.5]", "[4294967296]", '["1"]')]
    raw += [(CHAT, "logit_bias", one) for one in (
        "[]", '{"a": 1}', '{"-1": 1}', '{"1.0": 1}', '{"01": 1}', '{" 1": 1}', '{"1": "1"}', '{"1": 101}', '{"1": true}', '{"": 1}',
        '{"4294967296": 1}', '{"\\u0661": 1}', '{"1": null}',
    )]  # fmt: skip
    raw += [(CHAT, "stream_options", one) for one in ("true", "[]", '{"x": 1}', '{"include_usage": 1}')]
    raw += [(COMPLETIONS, "logprobs", one) for one in ("true", "21", "-1", '"5"')]
    raw += [(CHAT, "logprobs", one) for one in ("1", '"true"')]
    raw += [
        (CHAT, name, one)
        for name, one in (
            ("best_of", "true"),
            ("tools", '[{"type": "function"}]'),
            ("response_format", '{"type": "json_object"}'),
        )
    ]
    raw += [
        (CHAT, name, "1")
        for name in ("unknown", "mod_el", "Temperature", "__class__", "model ", "a.b", "\0", "x" * 5000)
    ]
    found = [
        Hostile(f"{name[:30]} = {one[:30]}", path, text_with(path, name, one), 400, name) for path, name, one in raw
    ]
    return [one for one in found if one.param is not None]


MESSAGES = {
    "none": "[]",
    "an object": "{}",
    "text": '"hi"',
    "numbers": "[1]",
    "null": "[null]",
    "no role": '[{"content": "x"}]',
    "an unknown role": '[{"role": "root", "content": "x"}]',
    "a numeric role": '[{"role": 1, "content": "x"}]',
    "no content": '[{"role": "user"}]',
    "null content of a user": '[{"role": "user", "content": null}]',
    "a number as content": '[{"role": "user", "content": 5}]',
    "no parts": '[{"role": "user", "content": []}]',
    "a part without a type": '[{"role": "user", "content": [{"text": "x"}]}]',
    "an image": '[{"role": "user", "content": [{"type": "image_url", "image_url": {"url": "x"}}]}]',
    "a null text": '[{"role": "user", "content": [{"type": "text", "text": null}]}]',
    "a numeric name": '[{"role": "user", "content": "x", "name": 7}]',
    "an unknown field": '[{"role": "user", "content": "x", "colour": "red"}]',
    "tool calls of a user": '[{"role": "user", "content": "x", "tool_calls": []}]',
    "a tool call without a function": '[{"role": "assistant", "tool_calls": [{"id": "a", "type": "function"}]}]',
    "arguments that are no text": '[{"role": "assistant", "tool_calls": [{"id": "a", "type": "function", "function": {"name": "f", "arguments": {}}}]}]',  # noqa: E501
    "a tool without an id": '[{"role": "tool", "content": "x"}]',
}  # fmt: skip
UNLIKELY = {
    "100,000 unknown keys": b"{" + b",".join(b'"k%d":1' % one for one in range(100_000)) + b"}",
    "a message of 100,000 keys": b'{"model": "fake", "messages": [{' + b",".join(b'"k%d":1' % one for one in range(100_000)) + b"}]}",
    "200,000 wrong messages": b'{"model": "fake", "messages": [' + b",".join([b"1"] * 200_000) + b"]}",
    "200,000 wrong prompts": b'{"model": "fake", "prompt": [' + b",".join([b"true"] * 200_000) + b"]}",
    "200,000 wrong stop ids": b'{"model": "fake", "prompt": "a", "stop_token_ids": [' + b",".join([b"{}"] * 200_000) + b"]}",
    "100,000 prompts": b'{"model": "fake", "prompt": [' + b",".join([b'"a"'] * 100_000) + b"]}",
}  # fmt: skip
TOO_LARGE = {
    "a prompt too long": b'{"model": "fake", "prompt": "' + b"a" * BIG + b'"}',
    "spaces without end": b" " * BIG,
    "a million lists": b"[" + b"[]," * (1 << 20) + b"[]]",
    "a million numbers": b'{"prompt": [' + b"1," * (1 << 20) + b"1]}",
    "a million objects": b"[" + b"{}," * (1 << 19) + b"{}," * (1 << 19) + b"1]",
}


def others() -> list[Hostile]:
    found = [
        Hostile(f"messages: {name}", CHAT, text_with(CHAT, "messages", raw), 400) for name, raw in MESSAGES.items()
    ]
    found += [Hostile(name, CHAT if b"messages" in body else COMPLETIONS, body, 400) for name, body in UNLIKELY.items()]
    for name, body in TOO_LARGE.items():
        found += [
            Hostile(f"{name}, chunked {chunked}", COMPLETIONS, body, 413, chunked=chunked) for chunked in (False, True)
        ]
    plain = json.dumps(valid(COMPLETIONS)).encode()
    for kind in ("text/plain", "text/xml", "application/xml", "multipart/form-data; boundary=x", "application/octet-stream", "json",
                 "application/json; charset=utf-16", "application/json; charset=latin-1"):  # fmt: skip
        found.append(Hostile(f"content type {kind}", COMPLETIONS, plain, 415, headers={"Content-Type": kind}))
    for encoding in ("gzip", "deflate", "br", "zstd", "x", "gzip, identity"):
        body = gzip.compress(plain)
        found.append(
            Hostile(f"content encoding {encoding}", COMPLETIONS, body, 415, headers={"Content-Encoding": encoding})
        )
    return found


CORPUS = [*not_json(), *wrong_values(), *others()]

LENIENT: dict[str, tuple[str, dict[str, Any], dict[str, str]]] = {
    "1.0 for an integer": (COMPLETIONS, valid(COMPLETIONS, max_tokens=2.0, n=1.0, seed=5.0, top_k=0.0), {}),
    "1 for a number": (CHAT, valid(CHAT, temperature=1, top_p=1, presence_penalty=0), {}),
    "nulls": (CHAT, valid(CHAT, temperature=None, stop=None, tools=None, logit_bias=None, stream_options=None), {}),
    "a name": (CHAT, valid(CHAT, messages=[{"role": "user", "content": "hi", "name": "bob"}]), {}),
    "parts": (CHAT, valid(CHAT, messages=[{"role": "user", "content": [{"type": "text", "text": "a"}] * 3}]), {}),
    "null content": (CHAT, valid(CHAT, messages=[
        {"role": "user", "content": "hi"}, {"role": "assistant", "content": None}, {"role": "user", "content": "again"},
    ]), {}),
    "tool calls": (CHAT, valid(CHAT, messages=[
        {"role": "user", "content": "hi"},
        {"role": "assistant", "content": None, "refusal": None, "tool_calls": [
            {"id": "a", "type": "function", "function": {"name": "f", "arguments": "{}"}}]},
        {"role": "tool", "tool_call_id": "a", "content": "42"},
    ]), {}),
    "token ids": (COMPLETIONS, valid(COMPLETIONS, prompt=[1, 2, 3]), {}),
    "lists of token ids": (COMPLETIONS, valid(COMPLETIONS, prompt=[[1, 2], [3]]), {}),
    "token ids as 1.0": (COMPLETIONS, valid(COMPLETIONS, prompt=[1.0, 2]), {}),
    "a null character": (COMPLETIONS, valid(COMPLETIONS, prompt="a\0b"), {}),
    "a whole surrogate pair": (COMPLETIONS, valid(COMPLETIONS, prompt="\U0001f600"), {}),
    "no content type": (COMPLETIONS, valid(COMPLETIONS), {"Content-Type": ""}),
    "a charset": (COMPLETIONS, valid(COMPLETIONS), {"Content-Type": "Application/JSON; charset=UTF-8"}),
    "what curl says": (COMPLETIONS, valid(COMPLETIONS), {"Content-Type": "application/x-www-form-urlencoded"}),
    "identity": (COMPLETIONS, valid(COMPLETIONS), {"Content-Encoding": "identity"}),
    "a bias": (CHAT, valid(CHAT, logit_bias={"5": -100, "0": 1.5}), {}),
    "hints for who operates it": (CHAT, valid(CHAT, user="a", safety_identifier="b", prompt_cache_key="c"), {}),
    "values that ask for nothing": (CHAT, valid(CHAT, tools=[], tool_choice="none", response_format={"type": "text"}, store=False), {}),
}  # fmt: skip
