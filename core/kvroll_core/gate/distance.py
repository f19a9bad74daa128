"""How far two models' distributions of one next token are apart, of which only the likeliest tokens are known."""

import math

from kvroll_core.gate.answer import Score, ScoredToken, Token

FLOOR_NATS = 20.0
"""A log-probability below -20 counts as -20 (2e-9): it bounds every difference and every KL by 20 nats."""


class NotComparableError(ValueError):
    """The arms answered about different tokens, or without what was asked for: nothing can be said, so nothing passes."""


def divergence(base: ScoredToken, found: ScoredToken) -> float:
    """KL(base || found) in nats, of the tokens that both report and one bucket for all others.

    By the data-processing inequality (Cover and Thomas, Elements of Information Theory, §2.8) merging outcomes never makes a KL larger:
    this is a lower bound of the KL over the whole vocabulary, and equal to it where the buckets hold the same shape of rest.
    """
    ours, theirs = _known(base), _known(found)
    shared = ours.keys() & theirs.keys()
    rest = _rest(ours, shared), _rest(theirs, shared)
    pairs = [(math.exp(ours[token]), ours[token] - max(theirs[token], -FLOOR_NATS)) for token in shared]
    pairs.append((rest[0], math.log(max(rest[0], math.exp(-FLOOR_NATS)) / max(rest[1], math.exp(-FLOOR_NATS)))))
    return min(max(math.fsum(share * ratio for share, ratio in pairs), 0.0), FLOOR_NATS)


def agree(base: ScoredToken, found: ScoredToken) -> bool:
    """Whether both find the same token the likeliest.

    Raises:
        NotComparableError: one reports no likeliest token.
    """
    if not base.likeliest or not found.likeliest:
        raise NotComparableError("expected the likeliest tokens of each position, found none")
    return base.likeliest[0][0] == found.likeliest[0][0]


def mean_loss(score: Score) -> float:
    """Mean negative log-probability in nats a token."""
    return math.fsum(-max(one.logprob, -FLOOR_NATS) for one in score.tokens) / len(score.tokens)


def paired(base: Score, found: Score) -> list[tuple[ScoredToken, ScoredToken]]:
    """The scores position by position.

    Raises:
        NotComparableError: they are not of the same tokens, or of none.
    """
    ids = [[one.token for one in score.tokens] for score in (base, found)]
    if not ids[0] or ids[0] != ids[1]:
        where = next((at for at, (a, b) in enumerate(zip(*ids, strict=False)) if a != b), min(map(len, ids)))
        raise NotComparableError(
            f"expected both models to score the same tokens, found {len(ids[0])} and {len(ids[1])} that part at {where}; "
            "compare models of one tokenizer"
        )
    return list(zip(base.tokens, found.tokens, strict=True))


def _known(one: ScoredToken) -> dict[Token, float]:
    return {one.token: one.logprob, **dict(one.likeliest)}


def _rest(known: dict[Token, float], shared: set[Token]) -> float:
    return max(1.0 - math.fsum(math.exp(known[token]) for token in shared), 0.0)
