"""What cells found, as Parquet files: one of the summary and one of latency over time for each cell.

    <folder>/<size>/<experiment>/<digest>.summary.parquet
    <folder>/<size>/<experiment>/<digest>.samples.parquet
    <folder>/<size>/<experiment>/<digest>.failed.json     of a cell that failed the last time, until it does not

The digest is of the cell's definition. A cell whose summary is there, and that has not failed since, need not run
again; what no definition stands for any more is thrown away.
"""

import os
from collections.abc import Iterable
from dataclasses import asdict, fields
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from peregrine.bench.engine.definition import Cell
from peregrine.bench.engine.measured import Measured, Roamed, pause_ms
from peregrine.bench.spark.experiment import proved
from peregrine.bench.spark.moves import cost_as_dict
from peregrine.errors import ConfigurationError
from peregrine.measure import Outputs

BUCKET_MS = 100.0

_text, _number, _whole = pa.string(), pa.float64(), pa.int64()
SUMMARY = pa.schema(
    {
        **dict.fromkeys(("experiment", "size", "digest", "variant", "mechanism", "app", "x_label"), _text),
        "x": _number,
        "repetition": _whole,
        **dict.fromkeys(("steady_mean_ms", "steady_sigma_ms", "steady_p99_ms", "trigger_ms"), _number),
        **dict.fromkeys(("disruption_ms", "jitter_ms", "jitter_p99_ms", "freeze_ms"), _number),
        **dict.fromkeys(("duration_ms", "state_movement_ms", "available_ms"), _number),
        **dict.fromkeys(("bytes_moved", "bytes_on_links"), _whole),
        "phases_ms": pa.map_(_text, _number),
        **dict.fromkeys(("predicted_duration_ms", "predicted_bytes", "predicted_pause_ms", "pause_ms"), _number),
        "lessons": _whole,
        **dict.fromkeys(
            (
                "max_rows_per_s",
                "dip",
                "dip_before",
                "handover",
                "handover_of_others",
                "deployment_ms",
                "event_time_ms",
                "downtime_ms",
                "recovery_ms",
                "per_month",
            ),
            _number,
        ),
        **dict.fromkeys(("changes", "late", *(each.name for each in fields(Roamed))), _whole),
        **dict.fromkeys(("rows_in", "rows_out", "lost", "repeated", "out_of_order"), _whole),
        **dict.fromkeys(("states", "states_that_differ", "violations"), _whole),
        "trouble": _text,  # why there are no figures, or what they do not tell; else empty
        "seconds": _number,
        **dict.fromkeys(("setting", "machine"), _text),  # JSON
    }
)
SAMPLES = pa.schema(
    {
        **dict.fromkeys(("experiment", "size", "digest"), _text),
        "at_ms": _number,  # from when the reconfiguration was asked for
        "results": _whole,
        **dict.fromkeys(("median_ms", "p99_ms", "slowest_ms"), _number),
    }
)


class Failure(msgspec.Struct, frozen=True):
    """Of a cell that has no figures because it failed."""

    experiment: str
    size: str
    variant: str
    mechanism: str
    app: str
    x: float
    x_label: str
    why: str


class Store:
    def __init__(self, folder: Path, size: str) -> None:
        self.folder = folder / size
        self._size = size

    def has(self, cell: Cell) -> bool:
        return self._path(cell, "summary").exists() and not self._failed(cell).exists()

    def keep(self, measured: Measured, machine: dict[str, Any]) -> None:
        """The summary comes last: what it stands for is complete. Of what failed only that is kept, and what an earlier
        run found stays.
        """
        cell = measured.cell
        self._path(cell, "summary").parent.mkdir(parents=True, exist_ok=True)
        if measured.failed:
            self._failed(cell).write_bytes(msgspec.json.encode(self._failure(measured)))
            return
        self._write(cell, "samples", pa.Table.from_pylist(self._samples(measured), SAMPLES))
        self._write(cell, "summary", pa.Table.from_pylist([self._summary(measured, machine)], SUMMARY))
        self._failed(cell).unlink(missing_ok=True)

    def prune(self, experiment: str, cells: Iterable[Cell]) -> None:
        """Throw away what none of these cells has found."""
        digests = {cell.digest for cell in cells}
        for path in (self.folder / experiment).glob("*.*"):
            if path.name.partition(".")[0] not in digests:
                path.unlink()

    def check_there_is_something(self) -> None:
        if not self.files("summary") and not self.failures():
            raise ConfigurationError(f"no results in {self.folder}", "run first: peregrine bench run NAME")

    def files(self, kind: str) -> list[Path]:
        return sorted(self.folder.glob(f"*/*.{kind}.parquet"))

    def failures(self) -> list[Failure]:
        paths = sorted(self.folder.glob("*/*.failed.json"))
        return [msgspec.json.decode(path.read_bytes(), type=Failure) for path in paths]

    def _path(self, cell: Cell, kind: str) -> Path:
        return self.folder / cell.experiment / f"{cell.digest}.{kind}.parquet"

    def _failed(self, cell: Cell) -> Path:
        return self.folder / cell.experiment / f"{cell.digest}.failed.json"

    def _write(self, cell: Cell, kind: str, table: pa.Table) -> None:
        path = self._path(cell, kind)
        aside = path.with_suffix(".new")
        pq.write_table(table, aside)
        os.replace(aside, path)

    def _failure(self, measured: Measured) -> Failure:
        cell, setting = measured.cell, measured.cell.setting
        named = (cell.experiment, self._size, cell.variant, setting.mechanism, setting.app, cell.x, cell.x_label)
        return Failure(*named, measured.trouble)

    def _summary(self, measured: Measured, machine: dict[str, Any]) -> dict[str, Any]:
        cell, cost = measured.cell, measured.cost
        found: dict[str, Any] = {
            "experiment": cell.experiment,
            "size": self._size,
            "digest": cell.digest,
            "variant": cell.variant,
            "mechanism": cell.setting.mechanism,
            "app": cell.setting.app,
            "x": cell.x,
            "x_label": cell.x_label,
            "repetition": cell.repetition,
            "trouble": measured.trouble,
            "seconds": measured.seconds,
            "setting": msgspec.json.encode(cell.setting).decode(),
            "machine": msgspec.json.encode(machine).decode(),
            "bytes_on_links": measured.bytes_on_links,
            "max_rows_per_s": measured.max_rows_per_s,
            "dip": measured.dip,
            "dip_before": measured.dip_before,
            "handover": measured.handover,
            "handover_of_others": measured.handover_of_others,
            "deployment_ms": measured.deployment_ms,
            "event_time_ms": measured.event_time_ms,
            "changes": measured.changes,
            "per_month": measured.per_month,
        }
        if (calm := measured.calm if cost is None else cost.calm) is not None:
            found |= {"steady_mean_ms": calm.mean_ms, "steady_sigma_ms": calm.sigma_ms, "steady_p99_ms": calm.p99_ms}
        if cost is not None:
            found |= {"trigger_ms": measured.trigger_ms, **cost_as_dict(cost)}
            found["phases_ms"] = list(cost.phases_ms.items())
        if (felt := measured.felt) is not None:
            found |= {"downtime_ms": felt.downtime_ms, "late": felt.late, "recovery_ms": felt.recovery_ms}
        if measured.roamed is not None:
            found |= asdict(measured.roamed)
        if (forecast := measured.forecast) is not None:
            found |= {"predicted_duration_ms": forecast.duration_ms, "predicted_bytes": forecast.bytes_moved}
            found |= {"predicted_pause_ms": forecast.pause_ms, "lessons": forecast.lessons}
            found["pause_ms"] = None if cost is None else pause_ms(cost)
        if measured.proof is not None:
            found |= proved(measured.proof)
            found["violations"] = len(measured.proof.violations)
        return found

    def _samples(self, measured: Measured) -> list[dict[str, Any]]:
        if measured.outputs is None or measured.cost is None:
            return []
        cell = measured.cell
        named = {"experiment": cell.experiment, "size": self._size, "digest": cell.digest}
        return [{**named, **each} for each in buckets(measured.outputs, measured.cost.requested_ms)]


def buckets(outputs: Outputs, zero_ms: float) -> list[dict[str, Any]]:
    """Each stretch of time in which something came out."""
    numbers = ((outputs.emitted_ms - zero_ms) // BUCKET_MS).astype(np.int64)
    order = np.argsort(numbers, kind="stable")
    found, starts = np.unique(numbers[order], return_index=True)
    parts = np.split(outputs.latency_ms[order], starts[1:]) if len(found) else []
    return [
        {
            "at_ms": float(number) * BUCKET_MS,
            "results": len(part),
            "median_ms": float(np.median(part)),
            "p99_ms": float(np.percentile(part, 99)),
            "slowest_ms": float(part.max()),
        }
        for number, part in zip(found.tolist(), parts, strict=True)
    ]
