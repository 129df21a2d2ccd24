"""Random numbers by position: what row n draws depends on the seed, the name of the draw and n, on nothing before it.

So a stretch of a stream can be made without the rows in front of it, and by the column. Not for secrets. All generators
draw from here.
"""

from functools import lru_cache

import numpy as np
import numpy.typing as npt

from peregrine.core.keyspace import stable_hash

Numbers = npt.NDArray[np.int64]
Mixed = npt.NDArray[np.uint64]
Shares = npt.NDArray[np.float64]
Answers = npt.NDArray[np.bool_]


def stretch(first: int, count: int) -> Numbers:
    """The numbers of the rows from `first` on."""
    return np.arange(first, first + count, dtype=np.int64)


def disordered(at_ms: Numbers, start_ms: int, disorder_ms: int, seed: int, numbers: Numbers) -> Numbers:
    """The same times, each earlier by up to `disorder_ms`, but none before the start."""
    if disorder_ms == 0:
        return at_ms
    times: Numbers = np.maximum(at_ms - below(disorder_ms + 1, seed, "delay", numbers), start_ms)
    return times


def below(bound: int, seed: int, name: str, numbers: Numbers) -> Numbers:
    """For each number an integer in [0, bound)."""
    return (mixed(seed, name, numbers) % np.uint64(bound)).astype(np.int64)


def uniform(seed: int, name: str, numbers: Numbers) -> Shares:
    """For each number a fraction in [0, 1)."""
    return (mixed(seed, name, numbers) >> np.uint64(11)).astype(np.float64) * 2.0**-53


def happens(share: float, seed: int, name: str, numbers: Numbers) -> Answers:
    """For each number yes or no; `share` of them yes."""
    return uniform(seed, name, numbers) < share


def skewed(keys: int, skew: float, seed: int, name: str, numbers: Numbers) -> Numbers:
    """For each number a key in [0, keys): key k with a weight of 1 / (k + 1) ** skew (Zipf); a skew of 0 is uniform."""
    if skew == 0:
        return below(keys, seed, name, numbers)
    return np.searchsorted(_heaped(keys, skew), uniform(seed, name, numbers), side="right").astype(np.int64)


def mixed(seed: int, name: str, numbers: Numbers) -> Mixed:
    """For each number 64 random bits: SplitMix64 at that position (Steele, Lea and Flood, OOPSLA 2014)."""
    start = np.uint64(stable_hash(f"{seed}:{name}"))
    bits: Mixed = numbers.astype(np.uint64) * np.uint64(0x9E3779B97F4A7C15) + start
    for shift, factor in ((30, 0xBF58476D1CE4E5B9), (27, 0x94D049BB133111EB)):
        bits = (bits ^ (bits >> np.uint64(shift))) * np.uint64(factor)
    return bits ^ (bits >> np.uint64(31))


@lru_cache(maxsize=4)  # eight bytes for each key
def _heaped(keys: int, skew: float) -> Shares:
    """The share of all keys up to each one."""
    heaped = np.cumsum(np.arange(1, keys + 1, dtype=np.float64) ** -skew)
    heaped /= heaped[-1]
    return heaped
