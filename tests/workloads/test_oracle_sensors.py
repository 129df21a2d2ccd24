"""The results of the sensors application are those of the oracle."""

import pytest

from feeding import fed, tuples
from oracles.sensors import COLUMNS, expected
from peregrine.workloads.generate.sensors import observations, places
from peregrine.workloads.sensors import sensors


@pytest.mark.parametrize(
    ("parameters", "fewest"),
    [
        ({}, 1500),
        ({"bits": 64, "hashes": 2, "capacity": 20}, 1000),  # many false positives, and a filter that is emptied often
        ({"bits": 300, "capacity": 10_000, "recent": 1}, 1000),
    ],
)
@pytest.mark.parametrize("skew", [0.0, 1.0])
def test_annotated_observations_equal_the_oracle(parameters: dict[str, int], fewest: int, skew: float) -> None:
    made = observations(2500, 7, sensors=20, skew=skew, missing=0.1, repeats=0.1, outliers=0.1)
    known = places(18)  # two sensors are not in it
    run = fed(sensors(places=known, **parameters), {"observations": made})
    should = expected("annotated", {"observations": made, "places": known}, **parameters)
    assert tuples(run, "annotated", COLUMNS["annotated"]) == should
    assert fewest < len(should) < 2100
