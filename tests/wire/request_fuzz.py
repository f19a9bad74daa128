"""Requests over the whole schema of both endpoints: mostly what a client may mean, often what none does."""

from typing import Any

from hypothesis import strategies as st

CHAT, COMPLETIONS = "/v1/chat/completions", "/v1/completions"
VOCABULARY = 264  # of the tiny model

texts = st.one_of(
    st.text(max_size=40),
    st.sampled_from(
        ["", "a", "\0", "\U0001f600" * 5, "é́", "\u202e", "<|e|>", "<|s|>assistant:", "{{ 1 }}", "\n" * 20, "\ud83d"]
    ),
    st.text(st.characters(categories=["Cs", "Cc", "Cf", "Zs", "So"]), max_size=10),
)
wild = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(-(2**70), 2**70),
    st.floats(allow_nan=False, allow_infinity=False),
    texts,
    st.lists(st.integers(-5, 300), max_size=4),
    st.dictionaries(st.text(max_size=3), st.integers(), max_size=2),
)
ids = st.integers(0, VOCABULARY - 1)
odd_ids = st.one_of(ids, st.sampled_from([-1, VOCABULARY, 2**32 - 1, 2**32, 1.0, True]))


def mostly(valid: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    """Nine times in ten what is valid."""
    return st.integers(0, 9).flatmap(lambda one: wild if one == 0 else valid)


def number(least: float, most: float) -> st.SearchStrategy[Any]:
    edges = st.sampled_from([least, most, 0, 1, 1e-30, 1e30, -1e-9])
    return mostly(st.one_of(st.floats(least, most), edges))


every_id = st.just(list(range(VOCABULARY)))
SAMPLING: dict[str, st.SearchStrategy[Any]] = {
    "temperature": number(0, 2),
    "top_p": number(0, 1),
    "top_k": mostly(st.sampled_from([-1, 0, 1, 2, VOCABULARY, 2**31 - 1])),
    "min_p": number(0, 1),
    "seed": mostly(st.integers(-(2**63), 2**63 - 1)),
    "stop": mostly(st.one_of(texts, st.lists(texts, max_size=5))),
    "stop_token_ids": mostly(st.one_of(st.lists(odd_ids, max_size=8), every_id)),
    "include_stop_str_in_output": mostly(st.booleans()),
    "ignore_eos": mostly(st.booleans()),
    "min_tokens": mostly(st.integers(0, 6)),
    "repetition_penalty": number(0.01, 100),
    "presence_penalty": number(-2, 2),
    "frequency_penalty": number(-2, 2),
    "logit_bias": mostly(
        st.one_of(
            st.dictionaries(ids.map(str), st.sampled_from([-100, 100, 0, 0.5]), max_size=6),
            st.just({str(one): -100 for one in range(VOCABULARY)}),
        )
    ),
    "max_tokens": mostly(st.one_of(st.integers(1, 6), st.integers(0, 6), st.sampled_from([0, 1, 7, 300, 2**31 - 1]))),
    "n": mostly(st.sampled_from([1] * 20 + [2, 2, 3, 128])),
    "stream": mostly(st.booleans()),
    "stream_options": mostly(
        st.fixed_dictionaries({}, optional={"include_usage": st.booleans(), "continuous_usage_stats": st.booleans()})
    ),
    "user": texts,
    "cache_salt": mostly(texts),
    "priority": mostly(st.integers(-5, 5)),
    "return_token_ids": mostly(st.booleans()),
    "reproducible": mostly(st.booleans()),
}
ON_COMPLETIONS = {
    "logprobs": mostly(st.integers(0, 20)),
    "echo": mostly(st.booleans()),
    "prompt_logprobs": mostly(st.integers(0, 20)),
    "suffix": st.one_of(st.just(""), texts),
    "best_of": st.integers(0, 3),
}
ON_CHAT = {
    "logprobs": mostly(st.booleans()),
    "top_logprobs": mostly(st.integers(0, 20)),
    "max_completion_tokens": mostly(st.integers(1, 8)),
    "tools": st.sampled_from([[], [{"type": "function"}]]),
    "response_format": st.sampled_from([{"type": "text"}, {"type": "json_object"}]),
}
prompts = mostly(
    st.one_of(
        texts,
        st.lists(texts, min_size=1, max_size=3),
        st.lists(odd_ids, min_size=1, max_size=40),
        st.lists(st.lists(ids, min_size=1, max_size=5), min_size=1, max_size=3),
        st.just([5] * 2000),  # longer than the context
    )
)
parts = st.lists(
    st.fixed_dictionaries({"type": st.sampled_from(["text", "text", "image_url"]), "text": texts}), max_size=3
)
calls = st.lists(
    st.fixed_dictionaries(
        {
            "id": texts,
            "type": st.just("function"),
            "function": st.fixed_dictionaries({"name": texts, "arguments": texts}),
        }
    ),
    max_size=2,
)
roles = st.sampled_from(["system", "developer", "user", "assistant", "tool"])
contents = st.one_of(texts, texts, parts, st.none())
message = st.fixed_dictionaries(
    {"role": roles, "content": contents}, optional={"name": texts, "tool_call_id": texts, "tool_calls": calls}
)
messages = mostly(st.lists(message, min_size=1, max_size=4))


def _body(what: dict[str, Any], more: dict[str, st.SearchStrategy[Any]]) -> st.SearchStrategy[dict[str, Any]]:
    """A few fields beside what is asked; now and then one that nobody knows, or another model."""
    fields = {**SAMPLING, **more}
    few = st.sets(st.sampled_from(sorted(fields)), max_size=6).flatmap(
        lambda names: st.fixed_dictionaries({name: fields[name] for name in sorted(names)})
    )
    rare = st.integers(0, 29).flatmap(
        lambda one: st.just({"model": "other"} if one == 0 else {"unknown": 1} if one == 1 else {})
    )
    return st.builds(
        lambda asked, fields, odd: {"model": "tiny", "max_tokens": 4, **asked, **fields, **odd},
        st.fixed_dictionaries(what),
        few,
        rare,
    )


requests = st.one_of(
    st.tuples(st.just(COMPLETIONS), _body({"prompt": prompts}, ON_COMPLETIONS)),
    st.tuples(st.just(CHAT), _body({"messages": messages}, ON_CHAT)),
)
"""(path, body)."""
