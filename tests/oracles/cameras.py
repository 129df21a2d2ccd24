"""What must come out of camera frames: a batch computation that knows no operator.

The contract of the operators. Frames of a camera are taken in the order of the table `frames`; `pixels` and
`background` are gray, one byte each, row by row, `height` times `width`:
  F  a frame is significant if at least `changed` of its pixels differ by more than `threshold` from the frame that the
     camera sent before it (significant or not). The first frame of a camera is significant
  O  a pixel is foreground if it differs by more than `threshold` from the background. Objects are the connected
     components of foreground pixels (each pixel with its four neighbours) that have at least `smallest` pixels
  A  statistics of the camera over its significant frames so far

Results:
  "objects"      (camera, frame, objects) of every frame: O alone, without state
  "significant"  (camera, frame, objects) of the significant frames: F, then O
  "traffic"      (camera, frame, frames, total, most): after each significant frame the number of significant frames so
                 far, the sum of their objects, and the most objects in one of them
"""

from collections.abc import Mapping
from typing import Any

import numpy as np
import numpy.typing as npt
import pandas as pd

from peregrine.workloads.generate.cameras import HEIGHT, WIDTH

Image = npt.NDArray[np.int64]

COLUMNS = {
    "objects": ("camera", "frame", "objects"),
    "significant": ("camera", "frame", "objects"),
    "traffic": ("camera", "frame", "frames", "total", "most"),
}


def expected(
    result: str,
    tables: Mapping[str, Any],
    *,
    threshold: int = 60,
    changed: int = 16,
    smallest: int = 12,
    height: int = HEIGHT,
    width: int = WIDTH,
) -> list[tuple[Any, ...]]:
    rows = tables["frames"].to_pandas()[["camera", "frame", "pixels", "background"]]
    images, backgrounds = (
        [np.frombuffer(data, np.uint8).astype(np.int64).reshape(height, width) for data in rows[column]]
        for column in ("pixels", "background")
    )
    if result == "objects":
        significant = np.ones(len(rows), bool)
    elif result in ("significant", "traffic"):
        significant = np.array(_significant(rows["camera"].tolist(), images, threshold, changed))
    else:
        raise ValueError(f"no result {result!r} of cameras")
    rows["objects"] = [
        objects_in(np.abs(image - background) > threshold, smallest) if counts else 0
        for image, background, counts in zip(images, backgrounds, significant, strict=True)
    ]
    found = rows.loc[significant, ["camera", "frame", "objects"]]
    if result == "traffic":
        by_camera = found.groupby("camera")["objects"]
        found = pd.DataFrame(
            {
                "camera": found["camera"],
                "frame": found["frame"],
                "frames": by_camera.cumcount() + 1,
                "total": by_camera.cumsum(),
                "most": by_camera.cummax(),
            }
        )
    return sorted(map(tuple, found.astype(object).values.tolist()))


def objects_in(foreground: npt.NDArray[np.bool_], smallest: int) -> int:
    """Flood fill: take a pixel, and all that can be reached from it, until none is left."""
    left = set(zip(*(axis.tolist() for axis in np.nonzero(foreground)), strict=True))
    found = 0
    while left:
        reached, size = [left.pop()], 0
        while reached:
            y, x = reached.pop()
            size += 1
            near = left & {(y - 1, x), (y + 1, x), (y, x - 1), (y, x + 1)}
            left -= near
            reached.extend(near)
        found += size >= smallest
    return found


def _significant(cameras: list[str], images: list[Image], threshold: int, changed: int) -> list[bool]:
    before: dict[str, Image] = {}
    found = []
    for camera, image in zip(cameras, images, strict=True):
        previous = before.get(camera)
        found.append(previous is None or int((np.abs(image - previous) > threshold).sum()) >= changed)
        before[camera] = image
    return found
