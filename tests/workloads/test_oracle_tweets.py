"""The results of the tweets application are those of the oracle."""

from typing import Any

import pytest

from feeding import fed, tuples
from oracles.tweets import COLUMNS, expected
from peregrine.workloads.generate import tweets as generate
from peregrine.workloads.tweets import tweets

OTHER_WORDS = {"stop_words": ("coffee",), "positive": ("the", "rain"), "negative": ("great",)}


@pytest.mark.parametrize(("seed", "parameters"), [(1, {}), (2, {}), (3, OTHER_WORDS)])
def test_scores_and_moods_equal_the_oracle(seed: int, parameters: dict[str, Any]) -> None:
    tables = {"tweets": generate.tweets(1500, seed, users=60, regions=5, disorder_ms=50)}
    run = fed(tweets(**parameters), tables, seed)
    for result, columns in COLUMNS.items():
        should = expected(result, tables, **parameters)
        assert tuples(run, result, columns) == should
        assert 800 < len(should) < 1000
