"""Camera frames: the same for the same seed, by any stretch; and the oracle by hand."""

import numpy as np
import pyarrow as pa
import pytest

from oracles.cameras import expected, objects_in
from peregrine.workloads.generate.cameras import FRAMES, HEIGHT, LANES, WIDTH, backgrounds, frames, true_objects

TYPES = {"string": pa.string(), "bigint": pa.int64(), "binary": pa.binary()}


def of(*rows: tuple[str, int, str]) -> dict[str, pa.Table]:
    """Frames of 3 x 6 pixels; # is bright."""
    table = [
        {"camera": camera, "frame": frame, "pixels": _bytes(picture), "background": bytes([50]) * 18}
        for camera, frame, picture in rows
    ]
    return {"frames": pa.Table.from_pylist(table)}


def _bytes(picture: str) -> bytes:
    return bytes(200 if pixel == "#" else 50 for pixel in picture.replace("/", ""))


def test_a_seed_gives_the_same_frames_and_another_one_others() -> None:
    assert frames(40, 3).equals(frames(40, 3))
    assert not frames(40, 3).equals(frames(40, 4))


@pytest.mark.parametrize("more", [{}, {"skew": 1.0, "cameras": 3}, {"disorder_ms": 30, "start_ms": 1000, "rate": 77}])
def test_stretches_are_pieces_of_the_whole(more: dict[str, int]) -> None:
    whole = frames(60, 5, **more)
    assert pa.concat_tables([frames(23, 5, **more), frames(37, 5, first=23, **more)]).equals(whole)


def test_frames_have_the_columns_of_their_schema() -> None:
    wanted = [tuple(column.split()) for column in FRAMES.split(", ")]
    fields = list(frames(5).schema)[: len(wanted)]
    assert [(name, TYPES[kind]) for name, kind in wanted] == [(field.name, field.type) for field in fields]
    assert {len(pixels) for pixels in frames(5)["pixels"].to_pylist()} == {HEIGHT * WIDTH}


@pytest.mark.parametrize("skew", [0.0, 1.0, 0.5])
def test_each_camera_numbers_its_frames_and_keeps_its_background(skew: float) -> None:
    made = frames(120, cameras=4, skew=skew).to_pandas()
    assert (made["camera"] == made["source"]).all()
    for camera, rows in made.groupby("camera"):
        assert rows["frame"].tolist() == list(range(len(rows)))
        assert set(rows["background"]) == {backgrounds(4)[int(camera[-1])].tobytes()}
    counts = made["camera"].value_counts()
    assert (counts["camera0"] > 2 * counts["camera3"] - 2) if skew == 1.0 else (counts["camera0"] >= counts["camera3"])


def test_the_oracle_finds_as_many_objects_as_were_drawn() -> None:
    made = frames(600, 9)
    truth = true_objects(600, 9)
    rows = zip(made["camera"].to_pylist(), made["frame"].to_pylist(), truth.tolist(), strict=True)
    assert expected("objects", {"frames": made}) == sorted(rows)
    assert {0, 1, 2, 3} <= set(truth.tolist()) <= set(range(LANES + 1))


def test_still_frames_of_generated_cameras_are_not_significant() -> None:
    still = frames(50, traffic=0.0)
    assert [row[1] for row in expected("significant", {"frames": still})] == [0] * 5
    busy = frames(50, traffic=1.0)
    assert expected("significant", {"frames": busy}) == expected("objects", {"frames": busy})


def test_the_oracle_tells_objects_apart_by_the_four_neighbours_of_a_pixel() -> None:
    assert objects_in(np.array([[1, 1, 0, 0], [0, 0, 1, 1], [1, 0, 0, 1]], bool), 1) == 3
    assert objects_in(np.array([[1, 1, 0, 0], [0, 0, 1, 1], [1, 0, 0, 1]], bool), 2) == 2
    assert objects_in(np.array([[1, 1, 1], [1, 0, 1], [1, 1, 1]], bool), 8) == 1
    assert objects_in(np.zeros((3, 3), bool), 1) == 0


def test_the_oracle_keeps_frames_that_differ_enough_from_the_one_before() -> None:
    tables = of(
        ("a", 0, "##..../##..../......"),
        ("b", 0, "....../....../......"),
        ("a", 1, "##..../##..../......"),  # the same as before
        ("a", 2, "##..##/##..##/......"),  # four pixels differ
        ("a", 3, "##..##/##..#./......"),  # one differs
        ("b", 1, "###.##/###.##/......"),
        ("a", 4, "....../....../......"),  # seven differ from frame 3
    )
    size = {"height": 3, "width": 6, "smallest": 4, "changed": 4}
    assert expected("objects", tables, **size) == [
        *(("a", 0, 1), ("a", 1, 1), ("a", 2, 2), ("a", 3, 1), ("a", 4, 0)),
        *(("b", 0, 0), ("b", 1, 2)),
    ]
    assert expected("significant", tables, **size) == [
        *(("a", 0, 1), ("a", 2, 2), ("a", 4, 0)),
        *(("b", 0, 0), ("b", 1, 2)),
    ]
    assert expected("traffic", tables, **size) == [
        *(("a", 0, 1, 1, 1), ("a", 2, 2, 3, 2), ("a", 4, 3, 3, 2)),
        *(("b", 0, 1, 0, 0), ("b", 1, 2, 2, 2)),
    ]
