"""Every application with rows to send and what must come out of them, all in one form: for runs of all at once."""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa

from oracles import cameras as cameras_oracle
from oracles import sensors as sensors_oracle
from oracles import tm as tm_oracle
from oracles import trains as trains_oracle
from oracles import tweets as tweets_oracle
from oracles.keyed_cases import CASES, RESULTS, as_tuples
from peregrine import App
from peregrine.workloads import cameras, sensors, tm, trains, tweets
from peregrine.workloads.generate import cameras as frames_of
from peregrine.workloads.generate import sensors as observations_of
from peregrine.workloads.generate import tm as readings_of
from peregrine.workloads.generate import trains as passengers_of
from peregrine.workloads.generate import tweets as tweets_of

Tables = dict[str, pa.Table]
Sent = tuple[str, str, dict[str, Any]]  # device, source, record


@dataclass
class Everything:
    """One application. `sent` are its rows in the order in which they are sent."""

    name: str
    app: App
    sent: list[Sent]
    expected: dict[str, list[tuple]]  # of each result, sorted
    columns: dict[str, tuple[str, ...]] = field(default_factory=dict)

    @property
    def in_memory(self) -> App:
        """The same without DataFrame operators, which need Spark."""
        devices = sorted({device for device, _, _ in self.sent})
        return cameras.cameras(devices, dataframe=False) if self.name == "cameras" else self.app

    def found(self, result: str, records: list[Any]) -> list[tuple]:
        columns = self.columns.get(result)
        rows = [tuple(record[column] for column in columns) for record in records] if columns else records
        return as_tuples(rows)


def everything() -> list[Everything]:
    keyed = {name.removesuffix("_disorder"): case for name, case in CASES.items()}  # of two the harder one
    found = []
    for name, case in keyed.items():
        tables = case.tables()
        app = case.app(_devices(name, tables))
        found.append(Everything(name, app, _sent(app, name, tables), {RESULTS: case.expected(tables)}))
    found.append(
        _one("tweets", tweets.tweets, {"tweets": tweets_of.tweets(1200, 3, users=40, regions=5)}, tweets_oracle)
    )
    observations = {"observations": observations_of.observations(1500, 3)}
    tables = {"places": observations_of.places()}
    found.append(_one("sensors", sensors.sensors, observations, sensors_oracle, tables))
    rides = {"passengers": passengers_of.passengers(40 * 3 * 2 * 8, 3, rate=2, coaches=2)}
    found.append(_one("trains", trains.trains, rides, trains_oracle))
    found.append(_one("tm_app", tm.app, {"readings": readings_of.readings(1500, 3, sources=3)}, tm_oracle))
    frames = {"frames": frames_of.frames(120, 3)}
    found.append(_one("cameras", cameras.cameras, frames, cameras_oracle))
    return found


def _one(
    name: str, build: Callable[..., App], tables: Tables, oracle: Any, looked_up: Tables | None = None
) -> Everything:
    app = build(_devices(name, tables))
    results = [node.name for node in app.nodes if node.kind == "result"]
    expected = {result: oracle.expected(result, tables | (looked_up or {})) for result in results}
    return Everything(name, app, _sent(app, name, tables), expected, oracle.COLUMNS)


def _devices(name: str, tables: Tables) -> list[str]:
    """Each application has devices of its own: a device has one event time."""
    return sorted(_device(name, each) for table in tables.values() for each in table["source"].unique().to_pylist())


def _device(name: str, sender: str) -> str:
    return f"{name}-{sender}"


def _sent(app: App, name: str, tables: Tables) -> list[Sent]:
    rows = []
    for source, table in tables.items():
        records = table.select(list(app.stream(source).schema.names)).to_pylist()
        when = table["sent_us"].to_pylist() if "sent_us" in table.column_names else list(range(len(records)))
        senders = table["source"].to_pylist()
        rows += [
            (at, _device(name, sender), source, record)
            for at, sender, record in zip(when, senders, records, strict=True)
        ]
    return [(device, source, record) for _, device, source, record in sorted(rows, key=lambda each: each[0])]
