"""What peers' programs write: one record for each result, a file for each attempt. Pure, but for reading.

A reading is its number (workloads/road.py), so number, time, average and alert tell everything. Systems that go back to
a checkpoint repeat what came after it; whoever reads results with such a system drops what it has already (or waits for
the checkpoint, and so do the results). Here the first of equal ones counts.
"""

from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt

from peregrine.errors import PeregrineError
from peregrine.measure import Outputs
from peregrine.proof import Proof
from peregrine.workloads import road

RECORD = np.dtype([("seq", "<i8"), ("emitted_ns", "<i8"), ("average", "<f8"), ("alert", "?")])
SUFFIX = ".results"

Records = npt.NDArray[np.void]


@dataclass(frozen=True)
class Results:
    records: Records  # in the order in which they came, each number once
    again: int  # how many came again

    def outputs(self, began_ns: int, rows_per_s: float) -> Outputs:
        """Row n is created when it is due, whether or not anybody takes it then."""
        emitted_ms = self.records["emitted_ns"] / 1e6
        return Outputs(emitted_ms, emitted_ms - (began_ns / 1e6 + self.records["seq"] * (1000 / rows_per_s)))

    def prove(self, keys: int) -> Proof:
        """All rows up to the last, with the right values, those of one vehicle in order."""
        numbers = self.records["seq"]
        rows = int(numbers.max()) + 1
        averages = expected(rows, keys)
        should, alert = averages[numbers], averages[numbers] > road.LIMIT
        wrong = int(((self.records["average"] != should) | (self.records["alert"] != alert)).sum())
        by_vehicle = numbers[np.argsort(numbers % keys, kind="stable")]
        same = np.diff(by_vehicle % keys) == 0
        late = int((same & (np.diff(by_vehicle) < 0)).sum())
        return Proof(rows, len(numbers), rows - len(numbers) + wrong, wrong, late, 0, ())

    def rows_per_s(self, from_ms: float, to_ms: float) -> float:
        """Results within a stretch of time."""
        emitted_ms = self.records["emitted_ns"] / 1e6
        return float(((emitted_ms >= from_ms) & (emitted_ms < to_ms)).sum() / (to_ms - from_ms) * 1000)


def read(folder: Path) -> Results:
    """Of all attempts. A record that was torn off at the end of a file was never written."""
    files = sorted(folder.glob(f"*{SUFFIX}"))
    size = RECORD.itemsize
    parts = [np.fromfile(file, RECORD, count=file.stat().st_size // size) for file in files]
    if not sum(map(len, parts)):
        raise PeregrineError(f"no results in {folder}", "the system's own log says why")
    every = np.concatenate(parts)
    every = every[np.argsort(every["emitted_ns"], kind="stable")]
    _, first = np.unique(every["seq"], return_index=True)
    return Results(every[np.sort(first)], len(every) - len(first))


def expected(rows: int, keys: int) -> npt.NDArray[np.float64]:
    """The average that belongs to each reading, rounded as the applications do."""
    rounds = -(-rows // keys)
    speeds = road.speeds(np.arange(rounds * keys, dtype=np.int64)).reshape(rounds, keys)
    found = np.empty_like(speeds)
    average = np.zeros(keys)
    for nth in range(rounds):
        average += (speeds[nth] - average) / (nth + 1)
        found[nth] = average
    # Python's own rounding: numpy's differs in the last digit now and then.
    return np.array([round(each, 6) for each in found.reshape(-1)[:rows].tolist()])
