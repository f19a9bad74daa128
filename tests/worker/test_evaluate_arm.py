"""An engine as a gate's arm: what it answers, whatever else is in its batch, and a trial of it against itself."""

import pytest

from kvroll_core.gate import Arm, Ask, Bar, GateVerdict, Trial, TrialPolicy, parse
from kvroll_worker.evaluate.arm import EngineArm
from kvroll_worker.request import EngineError
from tests.worker.tiny_model import MakeEngine, state_of

ASKS = [
    Ask("text", None, ("the long wall and the north road",), 4),
    Ask("task", "the gate", (" of the market", " and"), 1),
]


def test_each_token_behind_the_prompt_is_scored_and_the_batch_changes_nothing(make_engine: MakeEngine) -> None:
    engine = make_engine()
    alone, together = EngineArm(engine).answer(ASKS), EngineArm(make_engine(), 3).answer(ASKS)
    assert alone == together
    ids = engine.tokenizer.encode("the long wall and the north road")
    text = alone[0].scores[0]
    assert [one.token for one in text.tokens] == ids[1:]
    assert all(len(one.likeliest) == 4 and one.logprob <= one.likeliest[0][1] for one in text.tokens)
    whole = engine.tokenizer.encode("the gate of the market")
    scored = [one.token for one in alone[1].scores[0].tokens]
    assert scored == whole[-len(scored) :]
    for score in (text, *alone[1].scores):
        assert score.is_greedy == all(one.token == one.likeliest[0][0] for one in score.tokens)
    assert not engine.sessions()


def test_an_engine_at_work_is_left_alone(make_engine: MakeEngine) -> None:
    engine = make_engine()
    engine.submit(state_of("a", [1, 2, 3], max_tokens=4))
    with pytest.raises(EngineError, match="found 1"):
        EngineArm(engine).answer(ASKS)
    assert len(engine.sessions()) == 1


def test_a_precision_agrees_with_itself_and_a_coarse_one_does_not(make_engine: MakeEngine) -> None:
    data = parse(
        "\n".join(f'{{"text": "the market {number} and the long wall of the north gate"}}' for number in range(9))
    )

    def verdict(weights: str) -> GateVerdict:
        arms = {Arm.BASELINE: make_engine(), Arm.CANDIDATE: make_engine(weights=weights)}
        trial = Trial(data, [Bar.parse("klMean<=1e-9")], TrialPolicy(min_samples=2))
        while (batch := trial.ask()) is not None:
            arm = EngineArm(arms[Arm.CANDIDATE if batch.arm is Arm.CANDIDATE else Arm.BASELINE])
            trial.take(batch.id, arm.answer(batch.asks))
        return trial.evidence().verdict

    assert verdict("bf16") is GateVerdict.PASS
    assert verdict("int8") is GateVerdict.FAIL
