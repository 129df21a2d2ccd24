"""Frames of street cameras: a still background with noise, and bright rectangles that drive through (Shepherd VI-B).

Row n is a function of (seed, n), and how many objects are in its frame is known (`true_objects`). Each object has a
lane of its own, so no two of them touch. When nothing drives, a frame differs from the one before by noise alone.
The camera is the source.
"""

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from peregrine.workloads.generate.draws import Numbers, below, happens, stretch
from peregrine.workloads.generate.sending import event_times, sent_us, table

FRAMES = "camera string, frame bigint, pixels binary, background binary, at_ms bigint"
HEIGHT, WIDTH = 48, 64  # pixels are gray, one byte each, row by row

LANES = 4
_LANE = HEIGHT // LANES
_CAR_HEIGHT, _CAR_WIDTH = 6, 8
_PASSAGE = 28  # frames that an object needs to drive through
_SPECKS = 0.001

Pixels = npt.NDArray[np.uint8]


def frames(
    count: int,
    seed: int = 0,
    *,
    first: int = 0,
    rate: int = 50,
    cameras: int = 5,
    skew: float = 0.0,
    traffic: float = 0.4,
    disorder_ms: int = 0,
    start_ms: int = 0,
) -> pa.Table:
    """Rows `first` to `first + count`, `rate` a second over all cameras.

    `skew` is the Zipf exponent of how often cameras send a frame (0: all alike), `traffic` the share of lanes in use.
    """
    numbers = stretch(first, count)
    camera, frame = _turns(numbers, cameras, skew)
    still = backgrounds(cameras, seed)
    sent = sent_us(numbers, rate)
    columns = {
        "camera": pa.array([f"camera{n}" for n in range(cameras)]).take(pa.array(camera)),
        "frame": frame,
        "pixels": _binary(_pixels(camera, frame, still, traffic, seed)),
        "background": _binary(still).take(pa.array(camera)),
        "at_ms": event_times(sent, start_ms, disorder_ms, seed),
    }
    return table(columns, "camera", cameras, camera, sent)


def true_objects(
    count: int, seed: int = 0, *, first: int = 0, cameras: int = 5, skew: float = 0.0, traffic: float = 0.4
) -> Numbers:
    """How many objects the frames of these rows show."""
    camera, frame = _turns(stretch(first, count), cameras, skew)
    return sum((_drives(camera, frame, lane, traffic, seed) for lane in range(LANES)), np.zeros(count, np.int64))


def backgrounds(cameras: int, seed: int = 0) -> Pixels:
    """What each camera sees when nothing drives."""
    pixels: Pixels = (40 + below(40, seed, "background", np.arange(cameras * HEIGHT * WIDTH))).astype(np.uint8)
    return pixels.reshape(cameras, HEIGHT, WIDTH)


def _turns(numbers: Numbers, cameras: int, skew: float) -> tuple[Numbers, Numbers]:
    """Camera and frame number of each row: cameras take turns in a round, in which busy ones come more than once."""
    turns = (
        np.ceil(cameras / np.arange(1, cameras + 1) ** skew).astype(np.int64) if skew else np.ones(cameras, np.int64)
    )
    camera = np.repeat(np.arange(cameras), turns)
    nth = np.arange(len(camera)) - np.repeat(np.cumsum(turns) - turns, turns)
    order = np.lexsort((camera, (nth + 0.5) / turns[camera]))  # the turns of a camera are spread over the round
    slot = order[numbers % len(order)]
    return camera[slot], numbers // len(order) * turns[camera[slot]] + nth[slot]


def _drives(camera: Numbers, frame: Numbers, lane: int, traffic: float, seed: int) -> Numbers:
    """1 where an object is in that lane: a lane is in use for a whole passage or not at all."""
    found: Numbers = (happens(traffic, seed, f"lane{lane}", (frame // _PASSAGE << 20) + camera)).astype(np.int64)
    return found


def _pixels(camera: Numbers, frame: Numbers, still: Pixels, traffic: float, seed: int) -> Pixels:
    size = HEIGHT * WIDTH
    # A pixel is drawn by its place in all frames of all cameras.
    places = (((frame * len(still) + camera) * size)[:, None] + np.arange(size)).reshape(-1, HEIGHT, WIDTH)
    found = still[camera] + below(7, seed, "noise", places) - 3
    found[happens(_SPECKS, seed, "speck", places)] = 220
    columns = np.arange(WIDTH)
    left = (frame % _PASSAGE * 2)[:, None]  # an object is whole in the frame from its first place to its last
    in_columns = (columns >= left) & (columns < left + _CAR_WIDTH)
    for lane in range(LANES):
        driving = in_columns & (_drives(camera, frame, lane, traffic, seed) == 1)[:, None]
        top = lane * _LANE + (_LANE - _CAR_HEIGHT) // 2
        area = found[:, top : top + _CAR_HEIGHT, :]
        area[np.broadcast_to(driving[:, None, :], area.shape)] = 180 + 20 * (lane % 3)
    pixels: Pixels = found.astype(np.uint8)
    return pixels


def _binary(images: Pixels) -> pa.Array:
    data = np.ascontiguousarray(images)
    offsets = np.arange(len(data) + 1, dtype=np.int32) * (HEIGHT * WIDTH)
    return pa.Array.from_buffers(pa.binary(), len(data), [None, pa.py_buffer(offsets), pa.py_buffer(data)])
