"""From one row of logits to one token: a function of (logits, parameters, position), with no state to move.

Random choice is Gumbel-max: argmax over tokens of log p + g, where g = -log(-log u) and u comes from a counter-based hash:
    key  = mix(mix(seed) + G * (position + 1))        position = index in the sequence (prompt included) of the token to choose
    bits = mix(key + G * (token id + 1))
    u    = ((bits >> 11) + 0.5) * 2^-53
with G = 0x9E3779B97F4A7C15, all modulo 2^64, and mix the finaliser of splitmix64 (Steele, Lea, Flood: "Fast Splittable Pseudorandom Number
Generators", OOPSLA 2014). So every worker draws the same noise for the same seed, position and token.
"""

import math
from typing import Any

import numpy as np
import numpy.typing as npt

from kvroll_worker.request import Sampling

Row = npt.NDArray[np.float32]
_Ids = npt.NDArray[np.int64]
_Floats = npt.NDArray[np.float64]

_GOLDEN = 0x9E3779B97F4A7C15
_MASK = (1 << 64) - 1
# Sampling from a whole vocabulary looks first at the tokens within this of the best, then only at those with great luck.
_NEAR = 10.0


def sample(logits: Row, sampling: Sampling, position: int) -> int:
    """The next token id. Order: temperature, top_k, top_p (of what top_k left), min_p (relative to the best).

    Equal logits are taken in the order of their ids.
    """
    temperature = np.float32(sampling.temperature)  # may be 0 where the parameter was not quite
    if temperature == 0 or sampling.top_k == 1:
        return int(np.argmax(logits))
    with np.errstate(
        over="ignore"
    ):  # a token too far below the best at a low temperature: minus infinity, as it should be
        scaled = (logits - logits.max()) / temperature
    ids = _candidates(scaled, sampling)
    if ids is None:
        near = np.flatnonzero(scaled >= -_NEAR)
        best = _noisy(scaled, near, sampling.seed, position).max()
        ids = np.concatenate((near, _lucky(scaled.size, best + _NEAR, sampling.seed, position)))
    return int(ids[np.argmax(_noisy(scaled, ids, sampling.seed, position))])


def gumbel_noise(seed: int, position: int, token_ids: _Ids) -> _Floats:
    """Standard Gumbel noise of each token id."""
    uniform = ((_bits(seed, position, token_ids) >> np.uint64(11)).astype(np.float64) + 0.5) * 2.0**-53
    noise: _Floats = -np.log(-np.log(uniform))
    return noise


def _noisy(scaled: Row, ids: _Ids, seed: int, position: int) -> _Floats:
    return scaled[ids].astype(np.float64) + gumbel_noise(seed, position, ids)


def _lucky(vocab: int, noise: float, seed: int, position: int) -> _Ids:
    """Ids whose noise is at least that: the only tokens from far below that could win. Spares two logarithms for all others."""
    least = int(math.exp(-math.exp(-noise)) * 2.0**64) - (
        1 << 12
    )  # bits grow with the noise; a little lower, to be sure
    return np.flatnonzero(_bits(seed, position, np.arange(vocab)) >= np.uint64(max(least, 0)))


def _bits(seed: int, position: int, token_ids: _Ids) -> npt.NDArray[np.uint64]:
    key = _mix_int(_mix_int(seed & _MASK) + _GOLDEN * (position + 1))
    with np.errstate(over="ignore"):  # arithmetic modulo 2^64 is meant
        return _mix(np.uint64(key) + np.uint64(_GOLDEN) * (token_ids.astype(np.uint64) + np.uint64(1)))


def top_logprobs(logits: Row, token_id: int, count: int) -> list[tuple[int, float]]:
    """The chosen token, then the `count` most likely ones, with log-probabilities of the unscaled distribution."""
    values = logits.astype(np.float64)
    best = values.max()
    total = best + np.log(np.exp(values - best).sum())
    ids = [token_id, *(int(i) for i in _largest(values, count))]
    return [(i, float(values[i] - total)) for i in ids]


def _candidates(scaled: Row, sampling: Sampling) -> _Ids | None:
    """What top_k, top_p and min_p leave; None: everything."""
    if sampling.top_k:
        ids = _largest(scaled, sampling.top_k)
        if sampling.top_p < 1:
            ids = ids[_nucleus(np.exp(scaled[ids]), sampling.top_p)]
    elif sampling.top_p < 1:
        ids = _nucleus(np.exp(scaled), sampling.top_p)
    elif sampling.min_p > 0:
        return np.flatnonzero(scaled >= np.log(sampling.min_p))
    else:
        return None
    return ids[scaled[ids] >= np.log(sampling.min_p)] if sampling.min_p > 0 else ids


def _nucleus(weights: Row, top_p: float) -> _Ids:
    """Indices of the fewest largest weights that hold `top_p` of the sum, largest first, equal ones by index."""
    total = weights.sum()
    # All weights below this together are less than 1 - top_p, so none of them is in: most of a vocabulary need not be sorted.
    possible = np.flatnonzero(weights >= (1 - top_p) * total / weights.size)
    order = possible[np.argsort(-weights[possible], kind="stable")]
    before = np.cumsum(weights[order], dtype=np.float64) - weights[order]  # mass of the likelier tokens
    kept: _Ids = order[
        : max(1, np.count_nonzero(before < top_p * total))
    ]  # the likeliest is in, however small top_p is
    return kept


def _largest(values: npt.NDArray[Any], count: int) -> _Ids:
    """Ids of the `count` largest values, largest first, equal ones by id."""
    count = min(count, values.size)
    if count == 0:
        return np.empty(0, dtype=np.int64)
    threshold = np.partition(values, values.size - count)[values.size - count]
    ids = np.flatnonzero(values >= threshold)
    return ids[np.argsort(-values[ids], kind="stable")][:count]


def _mix(x: npt.NDArray[np.uint64]) -> npt.NDArray[np.uint64]:
    x = (x ^ (x >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    x = (x ^ (x >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    mixed: npt.NDArray[Any] = x ^ (x >> np.uint64(31))
    return mixed


def _mix_int(x: int) -> int:
    x &= _MASK
    x = ((x ^ (x >> 30)) * 0xBF58476D1CE4E5B9) & _MASK
    x = ((x ^ (x >> 27)) * 0x94D049BB133111EB) & _MASK
    return x ^ (x >> 31)
