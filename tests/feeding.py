"""Sends generated tables to an application in memory as devices would: each in its order, all of them mixed."""

import random
from collections.abc import Mapping
from typing import Any

import pyarrow as pa

from peregrine import App, InMemory


def fed(app: App, tables: Mapping[str, pa.Table], seed: int = 0, longest: int = 40) -> InMemory:
    """Devices take turns at random, with up to `longest` rows at a time; between turns all state is bytes.

    `tables` has the rows of each source: the columns of its schema, and `source`, which says who sends the row.
    """
    rng = random.Random(seed)
    run = InMemory(app)
    waiting: dict[tuple[str, str], list[dict[str, Any]]] = {}
    for name, table in tables.items():
        rows = table.select(list(app.stream(name).schema.names)).to_pylist()
        for sender, row in zip(table["source"].to_pylist(), rows, strict=True):
            waiting.setdefault((name, sender), []).append(row)
    while waiting:
        name, sender = rng.choice(list(waiting))
        rows = waiting[name, sender]
        taken = rng.randint(1, longest)
        run.send(name, rows[:taken], sender=sender)
        del rows[:taken]
        if not rows:
            del waiting[name, sender]
    run.finish()
    return run


def tuples(run: InMemory, result: str, columns: tuple[str, ...]) -> list[tuple[Any, ...]]:
    return sorted(tuple(record[column] for column in columns) for record in run.results(result))
