"""Requests over the whole schema of both endpoints: mostly what a client may mean, often what none does."""

from typing import Any

from hypothesis import strategies as st

CHAT, COMPLETIONS = "/v1/chat/completions", "/v1/completions"
VOCABULARY = 264  # of the tiny model

texts = st.one_of(
    st.text(max_size=40),
    st.sampled_from(["", "a", "\0", "\U0001f600" * 5, "é́", "\u202e", "<|e|>", "<|s|>assistant:", "{{ 1 }}", "\n" * 20]),
    st.text(st.characters(categories=["Cc", "Cf", "Zs", "So"]), max_size=10),
)
said = texts.filter(bool)
wild = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(-(2**70), 2**70),
    st.floats(allow_nan=False, allow_infinity=False),
    st.text(st.characters(categories=["Cs", "Cc"]), max_size=10),
    st.lists(st.integers(-5, 300), max_size=4),
    st.dictionaries(st.text(max_size=3), st.integers(), max_size=2),
)
ids = st.integers(0, VOCABULARY - 1)
odd_ids = st.sampled_from([ids] * 60 + [st.sampled_from([-1, VOCABULARY, 2**32 - 1, 2**32, 1.0, True])]).flatmap(
    lambda one: one
)


def mostly(valid: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    """Nearly always what is valid, for one wrong field is enough to refuse a request."""
    return st.sampled_from([valid] * 39 + [wild]).flatmap(lambda chosen: chosen)


def number(least: float, most: float) -> st.SearchStrategy[Any]:
    edges = st.sampled_from([one for one in (least, most, 0, 1, 1e-30, 1e-3) if least <= one <= most])
    beyond = st.sampled_from([-1e-9, 1e30, most + 1e-3])
    return st.sampled_from([st.floats(least, most), edges] * 12 + [beyond, wild]).flatmap(lambda chosen: chosen)


every_id = st.just(list(range(VOCABULARY)))
SAMPLING: dict[str, st.SearchStrategy[Any]] = {
    "temperature": number(0, 2),
    "top_p": number(0, 1),
    "top_k": mostly(st.sampled_from([-1, 0, 1, 2, VOCABULARY, 2**31 - 1])),
    "min_p": number(0, 1),
    "seed": mostly(st.integers(-(2**63), 2**63 - 1)),
    "stop": mostly(st.one_of(said, st.lists(said, max_size=5))),
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
    "cache_salt": mostly(said),
    "priority": mostly(st.integers(-5, 5)),
    "return_token_ids": mostly(st.booleans()),
    "reproducible": mostly(st.booleans()),
}
ON_COMPLETIONS = {
    "logprobs": mostly(st.integers(0, 20)),
    "echo": mostly(st.booleans()),
    "prompt_logprobs": mostly(st.integers(0, 20)),
    "suffix": mostly(st.just("")),
    "best_of": mostly(st.just(1)),
}
ON_CHAT = {
    "logprobs": mostly(st.booleans()),
    "top_logprobs": mostly(st.integers(0, 20)),
    "max_completion_tokens": mostly(st.integers(1, 8)),
    "tools": mostly(st.just([])),
    "response_format": mostly(st.just({"type": "text"})),
}
prompts = mostly(
    st.one_of(
        said,
        st.lists(said, min_size=1, max_size=3),
        st.lists(odd_ids, min_size=1, max_size=40),
        st.lists(st.lists(ids, min_size=1, max_size=5), min_size=1, max_size=3),
        st.sampled_from([[5] * 900, [5] * 2000]),  # the second one is longer than the context
    )
)
parts = st.lists(
    st.fixed_dictionaries({"type": st.sampled_from(["text"] * 20 + ["image_url"]), "text": texts}), max_size=3
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
contents = st.one_of(texts, texts, parts)
named = st.fixed_dictionaries(
    {"role": st.sampled_from(["system", "developer", "user"]), "content": contents}, optional={"name": texts}
)
answered = st.fixed_dictionaries(
    {"role": st.just("assistant"), "content": st.one_of(contents, st.none())}, optional={"tool_calls": calls}
)
returned = st.fixed_dictionaries({"role": st.just("tool"), "content": contents, "tool_call_id": texts})
message = mostly(st.one_of(named, answered, returned))
messages = mostly(st.lists(message, min_size=1, max_size=4))


def _body(what: dict[str, Any], more: dict[str, st.SearchStrategy[Any]]) -> st.SearchStrategy[dict[str, Any]]:
    """A few fields beside what is asked; now and then one that nobody knows, or another model."""
    fields = {**SAMPLING, **more}
    few = st.sets(st.sampled_from(sorted(fields)), max_size=6).flatmap(
        lambda names: st.fixed_dictionaries({name: fields[name] for name in sorted(names)})
    )
    rare: st.SearchStrategy[dict[str, Any]] = st.sampled_from([{}] * 58 + [{"model": "other"}, {"unknown": 1}])
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
