"""The results of the cameras application are those of the oracle. Its DataFrame operator is tested on Spark."""

import numpy as np
import pytest

from feeding import fed, tuples
from oracles.cameras import COLUMNS, expected, objects_in
from peregrine.workloads.cameras import Detector, cameras
from peregrine.workloads.generate.cameras import HEIGHT, WIDTH, frames


# An object that drives changes 24 pixels, specks some more: 30 is in the middle of that.
@pytest.mark.parametrize("parameters", [{}, {"changed": 30}, {"changed": 40, "smallest": 60, "threshold": 100}])
def test_significant_frames_and_traffic_equal_the_oracle(parameters: dict[str, int]) -> None:
    tables = {"frames": frames(400, 3, skew=0.5, traffic=0.3)}
    run = fed(cameras(dataframe=False, **parameters), tables)
    for result in ("significant", "traffic"):
        should = expected(result, tables, **parameters)
        assert tuples(run, result, COLUMNS[result]) == should
        assert 100 < len(should) < 400


def test_counts_of_batches_equal_the_oracle() -> None:
    tables = {"frames": frames(300, 4)}
    batches = [tables["frames"].slice(start, 70).to_pandas() for start in range(0, 300, 70)]
    found = [row for batch in Detector().batches(batches) for row in batch.itertuples(index=False)]
    assert sorted((row.camera, row.frame, row.objects) for row in found) == expected("objects", tables)
    assert next(Detector().batches([batches[0].head(0)])).empty


@pytest.mark.parametrize("share", [0.2, 0.5, 0.6])  # specks, mazes, one large thing
@pytest.mark.parametrize("smallest", [1, 5])
def test_shapes_of_all_kinds_are_counted_as_the_oracle_counts_them(share: float, smallest: int) -> None:
    images = np.random.default_rng(5).random((20, HEIGHT, WIDTH)) < share
    pixels = [(image * 255).astype(np.uint8).tobytes() for image in images]
    counts = Detector(smallest=smallest).count(pixels, [bytes(HEIGHT * WIDTH)] * 20)
    assert counts.tolist() == [objects_in(image, smallest) for image in images]
