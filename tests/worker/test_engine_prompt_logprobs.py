"""Logprobs of the prompt: the same in any chunks, beside others, and where a session lands before its first token."""

import math

import pytest

from kvroll_worker.engine.engine import Engine
from kvroll_worker.request import EnginePhase, Prompt, TokenEvent
from tests.worker.tiny_model import MakeEngine, prompt_of, state_of

ASKED: dict[str, object] = {"prompt_logprobs": 2, "echo": True, "max_tokens": 3}
PROMPT = prompt_of(100)


def told(engine: Engine, session_id: str = "a") -> Prompt:
    """The prompt on the first token of the session; no other token carries one."""
    found: list[TokenEvent] = []
    while engine.has_work():
        found += [e for e in engine.step() if isinstance(e, TokenEvent) and e.session_id == session_id]
    assert [event.prompt is not None for event in found] == [True, False, False]
    assert found[0].prompt is not None
    return found[0].prompt


@pytest.fixture
def whole(make_engine: MakeEngine) -> Prompt:
    engine = make_engine(max_batch_tokens=128)
    engine.submit(state_of("a", PROMPT, **ASKED))
    return told(engine)


def test_every_token_but_the_first_and_as_a_prefix_predicts_it(make_engine: MakeEngine, whole: Prompt) -> None:
    assert [one.token_id for one in whole.tokens] == PROMPT
    assert whole.tokens[0].logprobs == ()
    assert all(len(one.logprobs) == 3 and one.logprobs[0].token_id == one.token_id for one in whole.tokens[1:])
    assert whole.text == make_engine().tokenizer.decode(PROMPT)
    engine = make_engine()
    engine.submit(state_of("p", PROMPT[:60], max_tokens=1, logprobs=2))
    [event] = [e for e in engine.step() + engine.step() if isinstance(e, TokenEvent)]
    assert event.logprobs[1:] == whole.tokens[60].logprobs[1:], "the likeliest after 60 tokens"
    assert sum(math.exp(one.logprob) for one in whole.tokens[5].logprobs[1:]) <= 1


@pytest.mark.parametrize("chunk", [1, 7, 33])
def test_chunks_and_company_change_nothing(make_engine: MakeEngine, whole: Prompt, chunk: int) -> None:
    engine = make_engine(max_batch_tokens=chunk, max_sessions=4)
    engine.submit(state_of("b", prompt_of(9, seed=4), max_tokens=5, prompt_logprobs=0))
    engine.submit(state_of("a", PROMPT, **ASKED))
    assert told(engine) == whole


@pytest.mark.parametrize("steps", [1, 2, 3])
def test_a_session_that_lands_while_it_prefills_tells_all(make_engine: MakeEngine, whole: Prompt, steps: int) -> None:
    source, target = make_engine(max_batch_tokens=30), make_engine()
    source.submit(state_of("a", PROMPT, **ASKED))
    for _ in range(steps):
        source.step()
    source.freeze("a")
    covered = source.num_kv_tokens("a")
    target.reserve("a", -(-covered // 32))
    for index in range(-(-covered // 32)):
        target.write_page("a", index, source.read_page("a", index, "bf16"), bytes([index]) * 16)
    target.restore(source.snapshot("a"), covered)
    assert target.phase("a") is EnginePhase.HELD
    target.check_integrity()
    target.release("a")
    assert told(target) == whole


def test_a_held_one_tells_all_unless_its_first_token_came_from_elsewhere(
    make_engine: MakeEngine, whole: Prompt
) -> None:
    for known in (False, True):
        engine = make_engine()
        engine.submit(state_of("a", PROMPT, **ASKED), hold=True)
        while engine.has_work():
            engine.step()
        if known:
            engine.extend("a", [7])
        engine.release("a")
        if known:
            assert [e.prompt for e in engine.step() if isinstance(e, TokenEvent)] == [None]
        else:
            assert told(engine) == whole
