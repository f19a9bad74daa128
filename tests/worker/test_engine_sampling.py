"""All sampling parameters through the engine: what they promise, and that a session split at any token goes on the same."""

import pytest

from kvroll.v1 import common_pb2 as pb
from kvroll_worker.wire.codec import state_from_wire, state_to_wire
from tests.worker.tiny_model import MakeEngine, Trace, collect, prompt_of, state_of

PENALTIES: dict[str, object] = {
    "repetition_penalty": 1.25,
    "presence_penalty": 0.5,
    "frequency_penalty": 0.25,
    "logit_bias": ((5, 1.5), (70, -100.0)),
}
SAMPLINGS: dict[str, dict[str, object]] = {
    "greedy": {**PENALTIES},
    "seeded": {**PENALTIES, "temperature": 0.9, "top_p": 0.95, "seed": 11},
    "top-k": {**PENALTIES, "temperature": 1.5, "top_k": 20, "min_p": 0.01, "seed": 2**63 + 5},
    "min-tokens": {**PENALTIES, "temperature": 1.0, "seed": 3, "min_tokens": 5, "ignore_eos": False},
}


def alone(make_engine: MakeEngine, prompt: list[int], **sampling: object) -> Trace:
    engine = make_engine()
    engine.submit(state_of("a", prompt, **sampling))
    return collect(engine)["a"]


def text_of(trace: Trace) -> str:
    return "".join(text for _, text, _, _ in trace)


@pytest.mark.parametrize("way", ["replay", "restore"])
@pytest.mark.parametrize("name", SAMPLINGS)
@pytest.mark.fast_where(way="restore")
def test_split_at_every_token_goes_on_the_same(make_engine: MakeEngine, name: str, way: str) -> None:
    """The state crosses as wire bytes; stop strings whose beginning is held back straddle the splits."""
    prompt, sampling = prompt_of(40), {"max_tokens": 14, **SAMPLINGS[name]}
    free = alone(make_engine, prompt, **sampling)
    tail = text_of(free).rstrip("\ufffd")[-4:-1]  # bytes that are unfinished at the end are text only there
    for extra in ({"stop": (tail, tail + "!")}, {"stop": (tail,), "include_stop_str_in_output": True}):
        whole = alone(make_engine, prompt, **{**sampling, **extra})
        assert whole[-1][2] == "stop"
        source = make_engine()
        source.submit(state_of("a", prompt, **{**sampling, **extra}))
        emitted: Trace = []
        while len(emitted) < len(whole) - 1:
            emitted += collect(source, steps=1)["a"]
            source.freeze("a")
            state = state_from_wire(pb.SessionState.FromString(state_to_wire(source.snapshot("a")).SerializeToString()))
            target = make_engine()
            if way == "replay":
                target.submit(state)
            else:
                covered = source.num_kv_tokens("a")
                target.reserve("a", -(-covered // 32))
                for index in range(-(-covered // 32)):
                    target.write_page("a", index, source.read_page("a", index, "bf16"), None)
                target.restore(state, covered)
                target.release("a")
            assert emitted + collect(target)["a"] == whole, len(emitted)
            source.thaw("a")


def test_penalties_change_what_is_said_and_no_logprob(make_engine: MakeEngine) -> None:
    prompt = prompt_of(40)
    plain, bent = alone(make_engine, prompt, max_tokens=40), alone(make_engine, prompt, max_tokens=40, **PENALTIES)
    assert [t[0] for t in plain] != [t[0] for t in bent]
    assert plain[0][3][1:] == bent[0][3][1:], "logprobs are of the model's own distribution"
    assert len({t[0] for t in bent}) > len({t[0] for t in plain})


def test_bias_bans_and_forces(make_engine: MakeEngine) -> None:
    prompt = prompt_of(10)
    first = alone(make_engine, prompt, max_tokens=1)[0][0]
    assert alone(make_engine, prompt, max_tokens=8, logit_bias=((first, -100.0),))[0][0] != first
    assert [t[0] for t in alone(make_engine, prompt, max_tokens=3, logit_bias=((7, 100.0),))] == [7, 7, 7]


def test_min_tokens_holds_off_eos_stop_ids_and_stop_strings(make_engine: MakeEngine) -> None:
    prompt, eager = prompt_of(10), {"logit_bias": ((65, 90.0), (257, 100.0)), "ignore_eos": False}
    assert [t[0] for t in alone(make_engine, prompt, **eager)] == [257]
    held = alone(make_engine, prompt, min_tokens=4, **eager)
    assert [t[0] for t in held] == [65, 65, 65, 65, 257]
    assert held[-1][2] == "stop"
    by_id = alone(make_engine, prompt, min_tokens=3, stop_token_ids=(66,), logit_bias=((65, 90.0), (66, 100.0)))
    assert [t[0] for t in by_id] == [65, 65, 65, 66]
    letter = text_of(alone(make_engine, prompt, max_tokens=1, logit_bias=((65, 90.0),)))
    by_text = alone(make_engine, prompt, min_tokens=3, stop=(letter,), logit_bias=((65, 90.0),))
    assert (len(by_text), text_of(by_text)) == (4, letter * 3)


def test_a_stop_ids_text_is_kept_if_asked_for(make_engine: MakeEngine) -> None:
    bias = {"logit_bias": ((65, 90.0),), "stop_token_ids": (65,)}
    assert text_of(alone(make_engine, prompt_of(9), **bias)) == ""
    kept = alone(make_engine, prompt_of(9), include_stop_str_in_output=True, **bias)
    assert (len(text_of(kept)), kept[-1][2]) == (1, "stop")
