"""Random walks over three workers and a gateway with every fault: one emitter, every token once and in order, no copy left."""

from collections import Counter
from random import Random

import pytest

from kvroll_core.words import VerdictKind
from kvroll_gateway.sessions.phases import OwnershipPhase
from tests.doubles.engine_double import EngineDouble, undisturbed
from tests.wire.walk import World

pytestmark = pytest.mark.slow

PROMPT = [5, 6, 7, 8] * 10
MAX_TOKENS = 24
ACTS = (
    ["step"] * 12 + ["hear"] * 14 + ["tell"] * 14 + ["call"] * 20 + ["move"] * 5
    + ["hear_twice", "tell_twice", "call_twice", "lose_call", "abort", "cut", "attach", "attach", "suspect", "crash"]
    + ["wait", "wait", "wait_long"]
)  # fmt: skip


def act(world: World, draw: Random) -> str:
    """One random event anywhere."""
    name, what = draw.choice(list(world.workers)), draw.choice(ACTS)
    match what:
        case "step" | "cut" | "attach" | "suspect" | "crash" | "abort" | "hear" | "tell":
            if what == "attach" and world.workers[name].stream is not None:
                return ""
            if what == "crash" and draw.random() < 0.7:
                return ""
            getattr(world, what)(name)
        case "hear_twice":
            world.hear(name, twice=True)
        case "tell_twice":
            world.tell(name, twice=True)
        case "call" | "call_twice":
            world.call(draw.randrange(8), keep=what == "call_twice" and len(world.calls) < 20)
        case "lose_call":
            world.lose_call(draw.randrange(8))
        case "move":
            world.move(name, draw)
        case "wait":
            world.pass_time(draw.random() * 2)
        case "wait_long":
            world.pass_time(31.0)
    return what


def walk(seed: int, kind: VerdictKind, num_acts: int = 150) -> Counter[str]:
    draw = Random(seed)
    weights = {"a": "bf16", "b": "int8", "c": "int4"} if kind is VerdictKind.REPLAY else {}
    world = World(
        ["a", "b", "c"],
        lambda name: EngineDouble(weights=weights.get(name, "bf16"), num_pages=40),
        kind,
        max_unacknowledged=12,
    )
    world.submit("s", "a", PROMPT, MAX_TOKENS)
    world.submit("t", "b", PROMPT, MAX_TOKENS)
    done: Counter[str] = Counter()
    for _ in range(num_acts):
        done[act(world, draw)] += 1
        world.check()
        if draw.random() < 0.004:
            world.cancel("t")
    world.settle()
    for session_id, session in world.sessions.items():
        if session_id == "t" and session.phase is OwnershipPhase.CANCELLED:
            continue
        assert session.phase is OwnershipPhase.FINISHED, (session_id, session.phase, session.failure)
        tokens = list(session.log.token_ids)
        assert len(tokens) == MAX_TOKENS
        if kind is VerdictKind.EXACT:
            assert tokens == undisturbed(PROMPT, MAX_TOKENS), session_id
        assert session.log.last is not None
        done["moves"] += sum(e.mode in ("Exact", "Replay") for e in session.log.last.record.precision_epochs)
    return done


@pytest.mark.parametrize("kind", [VerdictKind.EXACT, VerdictKind.REPLAY])
@pytest.mark.parametrize("block", range(4))
def test_short_walks(kind: VerdictKind, block: int) -> None:
    done: Counter[str] = Counter()
    for seed in range(block * 15, (block + 1) * 15):
        try:
            done += walk(seed, kind)
        except Exception as error:
            error.add_note(f"walk({seed}, {kind!r})")
            raise
    assert done["moves"] > 0, "walks without a single move prove nothing"


@pytest.mark.slow
@pytest.mark.parametrize("kind", [VerdictKind.EXACT, VerdictKind.REPLAY])
def test_many_walks(kind: VerdictKind) -> None:
    done: Counter[str] = Counter()
    for seed in range(10_000, 10_150):
        try:
            done += walk(seed, kind, 300)
        except Exception as error:
            error.add_note(f"walk({seed}, {kind!r}, 300)")
            raise
    assert done["moves"] > 0, "walks without a single move prove nothing"
