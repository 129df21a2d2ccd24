"""Counting objects in frames of street cameras (Shepherd VI-B): frame filter, detector, statistics.

    F keep frames that differ from the camera's last one  ->  O count objects  ->  A how many so far

F keeps one frame for each camera as its state. O has no state and does most of the work: it is a DataFrame operator, a
Spark query of its own; with `dataframe=False` it is a plain function, so that the application also runs without Spark.
`tests/oracles/cameras.py` says exactly what comes out.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from peregrine import App, Count, Last, Max, Sum
from peregrine.app.logic import Emit, Key, Moment, Timeless
from peregrine.workloads.generate.cameras import FRAMES, HEIGHT, WIDTH

OBJECTS = "camera string, frame bigint, objects bigint, at_ms bigint"

Images = npt.NDArray[np.int16]
Counts = npt.NDArray[np.int64]


def cameras(
    senders: Iterable[str] | None = None,
    *,
    threshold: int = 60,
    changed: int = 16,
    smallest: int = 12,
    dataframe: bool = True,
    groups: int = 16,
) -> App:
    """Results: `significant` (camera, frame, objects, at_ms) and, after each of these, `traffic`."""
    detector = Detector(threshold, smallest)
    app = App("cameras", groups)
    frames = app.source("frames", FRAMES, key="camera", event_time="at_ms", senders=senders)
    moving = frames.key_by("camera").connect("moving", FrameFilter(threshold, changed), schema=FRAMES)
    counted = (
        moving.transform("objects", detector.dataframe, OBJECTS)
        if dataframe
        else moving.map("objects", detector.one, OBJECTS)
    )
    counted.to("significant")
    (
        counted.key_by("camera")
        .aggregate("so_far", frame=Last("frame"), frames=Count(), total=Sum("objects"), most=Max("objects"))
        .to("traffic")
    )
    return app


APPS: Mapping[str, Callable[..., App]] = {"cameras": cameras}


@dataclass(frozen=True)
class Detector:
    """Foreground is what differs from the background by more than `threshold`; objects are its connected components of
    at least `smallest` pixels. Many frames at once.
    """

    threshold: int = 60
    smallest: int = 12
    height: int = HEIGHT
    width: int = WIDTH

    def count(self, pixels: Iterable[bytes], backgrounds: Iterable[bytes]) -> Counts:
        images, still = self._images(pixels), self._images(backgrounds)
        labels = self._labels(np.abs(images - still) > self.threshold)
        roots, sizes = np.unique(labels[labels >= 0], return_counts=True)
        frames = roots[sizes >= self.smallest] // (self.height * self.width)
        return np.bincount(frames, minlength=len(images)).astype(np.int64)

    def one(self, row: Any) -> dict[str, Any]:
        """For a plain function operator."""
        objects = int(self.count([row.pixels], [row.background])[0])
        return {"camera": row.camera, "frame": row.frame, "objects": objects, "at_ms": row.at_ms}

    def batches(self, frames: Iterable[Any]) -> Iterator[Any]:
        """For `mapInPandas`: pandas DataFrames of frames to pandas DataFrames of counts."""
        for batch in frames:
            counts = self.count(batch["pixels"], batch["background"])
            yield batch[["camera", "frame"]].assign(objects=counts, at_ms=batch["at_ms"])

    def dataframe(self, frames: Any) -> Any:
        """The DataFrame operator."""
        return frames.mapInPandas(self.batches, OBJECTS)

    def _images(self, pixels: Iterable[bytes]) -> Images:
        flat = np.frombuffer(b"".join(map(bytes, pixels)), np.uint8)
        return flat.astype(np.int16).reshape(-1, self.height, self.width)

    def _labels(self, foreground: npt.NDArray[np.bool_]) -> Counts:
        """Each foreground pixel gets the highest number of a pixel of its component; background is -1."""
        labels = np.where(foreground, np.arange(foreground.size).reshape(foreground.shape), -1)
        while True:
            spread = labels.copy()
            for here, there in _NEIGHBOURS:
                np.maximum(spread[here], labels[there], out=spread[here])
            spread[~foreground] = -1
            if np.array_equal(spread, labels):
                return labels
            labels = spread


_ALL, _FIRST, _REST = slice(None), slice(None, -1), slice(1, None)
_NEIGHBOURS = (
    ((_ALL, _FIRST, _ALL), (_ALL, _REST, _ALL)),
    ((_ALL, _REST, _ALL), (_ALL, _FIRST, _ALL)),
    ((_ALL, _ALL, _FIRST), (_ALL, _ALL, _REST)),
    ((_ALL, _ALL, _REST), (_ALL, _ALL, _FIRST)),
)


@dataclass(frozen=True)
class FrameFilter(Timeless):
    """Drops frames in which fewer than `changed` pixels differ from the camera's frame before, which is the state."""

    threshold: int
    changed: int

    def on_record(self, key: Key, state: Any, record: Any, at: Moment) -> tuple[Any, list[Emit]]:
        passes = state is None or self._differ(state, record.pixels) >= self.changed
        return record.pixels, [Emit(record, at.time_ms)] if passes else []

    def _differ(self, before: bytes, now: bytes) -> int:
        old, new = (np.frombuffer(each, np.uint8).astype(np.int16) for each in (before, now))
        return int(np.count_nonzero(np.abs(new - old) > self.threshold))
