"""Every field of a session, carried over the wire at every step of a run: what follows equals the undisturbed run bit for bit.

Derived at the target: penalty counts, the detokenizer and what it holds back, noise. Carried: ids and their border, resolved sampling
with the seed, characters given out, precision epochs, moves, creation time. Owed: logprobs of the prompt, which are computed again.
"""

import random
from typing import Any

import pytest

from kvroll.v1 import common_pb2 as pb
from kvroll_core.precision.formats import KV_FORMATS
from kvroll_worker.engine.engine import Engine
from kvroll_worker.request import PrecisionEpoch, SessionFailure, SessionState, TokenEvent
from kvroll_worker.wire.codec import state_from_wire, state_to_wire
from tests.worker.tiny_model import MakeEngine, prompt_of, state_of

SYMBOL = "終"  # one character of three tokens
NEVER_DRAWN = 2**64 - 1
SEEDED: dict[str, Any] = {"temperature": 0.875, "top_p": 0.9375, "seed": 11}
BENT: dict[str, Any] = {"repetition_penalty": 1.25, "presence_penalty": 0.5, "frequency_penalty": 0.25}
CASES: dict[str, dict[str, Any]] = {
    "greedy": {},
    "seeded": SEEDED,
    "unseeded": {"temperature": 1.0, "seed": random.SystemRandom().randrange(NEVER_DRAWN)},
    "penalties": {**SEEDED, **BENT, "temperature": 1.5, "top_k": 50, "min_p": 0.0078125},
    "logit bias": {**SEEDED, "logit_bias": ((5, 1.5), (70, -100.0))},
    "min tokens": {**SEEDED, "min_tokens": 7, "ignore_eos": False, "logit_bias": ((257, 100.0),)},
    "prompt logprobs": {**SEEDED, "prompt_logprobs": 2, "echo": True},
    "no logprobs": {**SEEDED, "logprobs": None},
}


def wired(state: SessionState) -> SessionState:
    """As another worker reads it."""
    return state_from_wire(pb.SessionState.FromString(state_to_wire(state).SerializeToString()))


def stepped(engine: Engine, steps: int | None = None) -> list[TokenEvent]:
    """The events of so many steps, or of all."""
    events: list[TokenEvent] = []
    while engine.has_work() and steps != 0:
        for event in engine.step():
            assert not isinstance(event, SessionFailure), event
            events.append(event)
        steps = None if steps is None else steps - 1
    return events


def land(source: Engine, target: Engine) -> None:
    """State by the wire's encoding, pages by their bytes; the target's copy is the source's."""
    state, covered = source.snapshot("a"), source.num_kv_tokens("a")
    assert covered == state.num_tokens - 1 or not state.output_token_ids, "KV covers all ids but the last sampled one"
    target.reserve("a", -(-covered // 32))
    for index in range(-(-covered // 32)):
        form = source.config.precision.sealing.form(index, covered)
        target.write_page("a", index, source.read_page("a", index, form), None)
    target.restore(wired(state), covered)
    assert target.snapshot("a") == state
    for index in range(-(-target.num_kv_tokens("a") // 32)):
        form = source.config.precision.sealing.form(index, target.num_kv_tokens("a"))
        assert target.read_page("a", index, form) == source.read_page("a", index, form)


def check_every_split(make_engine: MakeEngine, state: SessionState, **config: Any) -> list[TokenEvent]:
    """Splits a run after each of its steps, the prompt's chunks too; returns the events of the undisturbed run."""
    alone, source, target = (make_engine(max_batch_tokens=24, **config) for _ in range(3))
    alone.submit(wired(state))
    whole = stepped(alone)
    source.submit(wired(state))
    emitted: list[TokenEvent] = []
    splits = 0
    while source.sessions():
        source.freeze("a")
        if source.num_kv_tokens("a"):
            land(source, target)
            target.release("a")
            assert emitted + stepped(target) == whole, f"split after {len(emitted)} tokens, seed {state.sampling.seed}"
            target.check_integrity()
            assert target.stats().pages_free == target.stats().pages_total
            splits += 1
        source.thaw("a")
        emitted += stepped(source, steps=1)
    assert emitted == whole
    assert splits >= len(whole), "every token, and the prompt's chunks"
    return whole


@pytest.mark.parametrize("case", CASES)
def test_a_run_split_at_every_step_goes_on_bit_for_bit(make_engine: MakeEngine, case: str) -> None:
    settings = {"max_tokens": 12, **CASES[case]}
    whole = check_every_split(make_engine, state_of("a", prompt_of(50), **settings))
    assert (whole[0].prompt is not None) == ("prompt_logprobs" in settings)
    if case == "min tokens":
        assert whole[-1].finish_reason == "stop"
        assert len(whole) == 8, "the end was wanted from the first token on"


@pytest.mark.parametrize("kv_cache", [name for name, entry in KV_FORMATS.items() if entry.built and name != "bf16"])
def test_so_does_one_in_any_cache(make_engine: MakeEngine, kv_cache: str) -> None:
    """Scales travel inside the pages; the last page is partial."""
    settings = {**SEEDED, **BENT, "max_tokens": 6}
    # Of 93 tokens the first page is sealed; with the fourth output the second one is.
    check_every_split(
        make_engine, state_of("a", prompt_of(93 if kv_cache.startswith("kivi") else 45), **settings), kv_cache=kv_cache
    )


def test_unfinished_characters_cross_the_split(make_engine: MakeEngine) -> None:
    alphabet = make_engine().tokenizer
    bias = tuple(sorted((token_id, 90.0) for token_id in alphabet.encode(SYMBOL)))
    assert len(bias) == 3
    whole = check_every_split(
        make_engine, state_of("a", prompt_of(30), temperature=1.0, seed=5, max_tokens=24, logit_bias=bias)
    )
    texts = [event.text for event in whole]
    assert set("".join(texts)) - {"\ufffd"}, "some of them make a character"
    assert texts.count("") > 5, "most tokens end within a character"


@pytest.mark.parametrize("keep", [False, True])
def test_text_held_back_for_a_stop_string_crosses_the_split(make_engine: MakeEngine, keep: bool) -> None:
    letters = {"logit_bias": tuple((token_id, 60.0) for token_id in range(64, 68)), "temperature": 1.0, "seed": 3}
    free = check_every_split(make_engine, state_of("a", prompt_of(30), max_tokens=20, **letters))
    text = "".join(event.text for event in free)
    stop = (text[9:13], text[4:8] + "?", text[:6] + "!")
    whole = check_every_split(
        make_engine,
        state_of("a", prompt_of(30), max_tokens=20, stop=stop, include_stop_str_in_output=keep, **letters),
    )
    assert whole[-1].finish_reason == "stop"
    assert "" in [event.text for event in whole[:-1]], "something was held back"
    assert "".join(event.text for event in whole) == text[: text.index(stop[0]) + (len(stop[0]) if keep else 0)]


def test_what_only_the_record_knows_crosses_too(make_engine: MakeEngine) -> None:
    state = state_of("a", prompt_of(40), max_tokens=5)
    state.precision_epochs = [PrecisionEpoch(0, "bf16", "bf16", "Start")]
    state.created_unix_seconds, state.same_revision_moves = 1764450000.125, 1
    source, target = make_engine(), make_engine()
    source.submit(wired(state))
    stepped(source, steps=3)
    source.freeze("a")
    land(source, target)
    landed = target.snapshot("a")
    assert (landed.created_unix_seconds, landed.same_revision_moves) == (1764450000.125, 1)
    assert landed.precision_epochs == state.precision_epochs
    assert landed.sampling == state.sampling
