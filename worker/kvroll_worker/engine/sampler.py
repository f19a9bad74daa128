"""From one row of logits to one token: a function of (logits, parameters, position), with no state to move.

Random choice is Gumbel-max: argmax over tokens of log p + g, where g = -log(-log u) and u comes from a counter-based hash:
    key  = mix(mix(seed) + G * (position + 1))        position = index in the sequence (prompt included) of the token to choose
    bits = mix(key + G * (token id + 1))
    u    = ((bits >> 11) + 0.5) * 2^-53
with G = 0x9E3779B97F4A7C15, all modulo 2^64, and mix the finaliser of splitmix64 (Steele, Lea, Flood: "Fast Splittable Pseudorandom Number
Generators", OOPSLA 2014). So every worker draws the same noise for the same seed, position and token.
"""

from typing import Any

import numpy as np
import numpy.typing as npt

from kvroll_worker.engine.request import Sampling

Row = npt.NDArray[np.float32]
_Ids = npt.NDArray[np.int64]
_Floats = npt.NDArray[np.float64]

_GOLDEN = 0x9E3779B97F4A7C15
_MASK = (1 << 64) - 1
# Noise lies in [-log(54 log 2), 54 log 2]: a token further than this below the best can never win, so it needs no noise.
_REACH = 42.0


def sample(logits: Row, sampling: Sampling, position: int) -> int:
    """The next token id. Order: temperature, top_k, top_p (of what top_k left), min_p (relative to the best).

    Equal logits are taken in the order of their ids.
    """
    if sampling.temperature == 0 or sampling.top_k == 1:
        return int(np.argmax(logits))
    scaled = (logits.astype(np.float64) - float(logits.max())) / sampling.temperature
    ids = _candidates(scaled, sampling)
    best = np.argmax(scaled[ids] + gumbel_noise(sampling.seed, position, ids))
    return int(ids[best])


def gumbel_noise(seed: int, position: int, token_ids: _Ids) -> _Floats:
    """Standard Gumbel noise of each token id."""
    key = _mix_int(_mix_int(seed & _MASK) + _GOLDEN * (position + 1))
    with np.errstate(over="ignore"):  # arithmetic modulo 2^64 is meant
        bits = _mix(np.uint64(key) + np.uint64(_GOLDEN) * (token_ids.astype(np.uint64) + np.uint64(1)))
    uniform = ((bits >> np.uint64(11)).astype(np.float64) + 0.5) * 2.0**-53
    noise: _Floats = -np.log(-np.log(uniform))
    return noise


def top_logprobs(logits: Row, token_id: int, count: int) -> list[tuple[int, float]]:
    """The chosen token, then the `count` most likely ones, with log-probabilities of the unscaled distribution."""
    values = logits.astype(np.float64)
    best = values.max()
    total = best + np.log(np.exp(values - best).sum())
    ids = [token_id, *(int(i) for i in _largest(values, count))]
    return [(i, float(values[i] - total)) for i in ids]


def _candidates(scaled: _Floats, sampling: Sampling) -> _Ids:
    if sampling.top_k:
        ids = _largest(scaled, sampling.top_k)
    elif sampling.top_p < 1:
        ids = _nucleus_superset(scaled, sampling.top_p)
    else:
        ids = np.flatnonzero(scaled >= -_REACH)
    if sampling.top_p < 1:
        weights = np.exp(scaled[ids])
        total = weights.sum() if sampling.top_k else np.exp(scaled).sum()
        before = np.cumsum(weights) - weights  # mass of the likelier tokens
        ids = ids[before < sampling.top_p * total]
    if sampling.min_p > 0:
        ids = ids[scaled[ids] >= np.log(sampling.min_p)]
    return ids


def _nucleus_superset(scaled: _Floats, top_p: float) -> _Ids:
    """The likeliest tokens, in order, that surely hold `top_p` of the mass: sorting the whole vocabulary is mostly for nothing."""
    needed = top_p * np.exp(scaled).sum()
    for count in (256, 4096):
        ids = _largest(scaled, count)
        if np.exp(scaled[ids]).sum() >= needed:
            return ids
    return _largest(scaled, scaled.size)


def _largest(values: _Floats, count: int) -> _Ids:
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
