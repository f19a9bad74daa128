"""How long the parts of a rollout take."""

from kvroll_core.price.ask import PriceAsk, SessionClass
from kvroll_core.price.outcome import GroupOutcome
from kvroll_core.words import WayOn
from kvroll_core.work import WorkModel

ASSUMED_GROUP_SECONDS = 6.0
"""A group's way through the operator's passes besides start and moves (create, admit, close, seal, delete), and what a start beside workers
that serve takes longer than the one that was measured: 6 s a group on a local cluster of two CPUs with two workers, 12 to 15 s with three.
"""
ASSUMED_MOVE_SECONDS = 0.1
"""A move waits for the drain's next walk (`session/drain.py` walks ten times a second), however few bytes it has."""
ATTENTION_COST = 1.7
"""An operation of attention takes as long as so many of the matrices': 1.5 to 1.95 over weights bf16 and int8 with KV bf16, int8 and
fp8_e4m3, prefilling 1,728 tokens of SmolLM2-135M with the CPU kernels on one thread.
"""
MOST_CHASED = 0.9
"""Tokens that come while one is computed, at most: a target that is slower than its source would never be done on paper."""
_MOVES = (WayOn.EXACT, WayOn.CONVERT, WayOn.REPLAY)
_ENDS = (WayOn.FINISH_SOON, WayOn.FINISH)


def seconds_before_drain(ask: PriceAsk) -> float:
    """From a group's turn until its old worker is drained: its new worker starts and is opened."""
    return ask.rates.start_seconds.value + ASSUMED_GROUP_SECONDS + ask.settings.min_ready_seconds


def drain_seconds(ask: PriceAsk, outcome: GroupOutcome) -> float:
    """Moves of a group's workers run beside each other; whoever ends where it is is waited for."""
    settings, rates = ask.settings, ask.rates
    rate = rates.move_bytes_per_second.value * settings.parallel
    if settings.bytes_per_second:
        rate = min(rate, settings.bytes_per_second)
    moved = sum(w.bytes for w in outcome.ways) / rate
    replayed = sum(w.tokens * replay_token_seconds(ask, w.tokens / max(1, w.sessions)) for w in outcome.ways)
    moves = sum(w.sessions for w in outcome.ways if w.way in _MOVES)
    moving = (moved + replayed + moves * ASSUMED_MOVE_SECONDS / settings.parallel) / settings.group_size
    ending = max((w.longest_tokens for w in outcome.ways if w.way in _ENDS), default=0) * rates.step_seconds.value
    return max(moving, ending)


def replayed_tokens(ask: PriceAsk, sessions: SessionClass, behind_tokens: int) -> int:
    """Tokens that targets compute for those sessions, one after the other and after `behind_tokens` of others: each goes on being
    generated until its own turn is over, a token a step.
    """
    longest = sessions.mean_tokens + sessions.mean_remaining_tokens
    total, steps = behind_tokens, behind_tokens * _ahead(ask, sessions.mean_tokens)
    for _ in range(sessions.sessions):
        # What it has when its turn comes, and what comes while it is computed: n = now + n * ahead.
        now = sessions.mean_tokens + steps
        ahead = _ahead(ask, now)
        tokens = min(round(now / (1 - ahead)), longest)
        total, steps = total + tokens, steps + tokens * ahead
    return total - behind_tokens


def replay_token_seconds(ask: PriceAsk, tokens: float) -> float:
    """Seconds that a target computes a token of a session of that length: those of the measured prompts, by the operations of a row, which
    grow with what it looks back on; those of attention are slower.
    """
    seconds, context = ask.rates.prefill_token_seconds.value, ask.rates.prefill_context_tokens
    if context is None:
        return seconds
    model = WorkModel(ask.change.shape, ask.change.after.precision)
    long, measured = (model.row_flops(n, attention_cost=ATTENTION_COST) for n in (tokens / 2, context))
    return seconds * long / measured


def _ahead(ask: PriceAsk, tokens: float) -> float:
    """Tokens that the source generates while the target computes one."""
    seconds = replay_token_seconds(ask, tokens) / ask.settings.group_size
    return min(seconds / ask.rates.step_seconds.value, MOST_CHASED)


def rollout_seconds(ask: PriceAsk, outcomes: tuple[GroupOutcome, ...]) -> float:
    """Until the last group is through. Groups that change at a time take as long as the slowest of them."""
    return max((o.drained_at + drain_seconds(ask, o) for o in outcomes), default=0.0)
