"""Cells and what they found, made by hand: what analysis, checks and the report are tested on."""

from pathlib import Path

import numpy as np

from peregrine.bench.engine.definition import Definition, load
from peregrine.bench.engine.measured import Measured
from peregrine.measure import Cost, Outputs, Steady
from peregrine.proof import Proof

TEXT = """
title = "Round trip"
figure = "Paper, figure 1"
shows = "What <happens> & why."
expect = "live is flat"
mechanisms = ["live", "restart"]
measures = ["jitter_ms"]

[sweep]
setting = "round_trip_ms"
label = "round trip (ms)"

[quick]
values = [20, 320]

[full]
values = [20, 320]
repetitions = 2

[[points]]
system = "Flink"
variant = "restart"
measure = "jitter_ms"
low = 10000
high = 99000
said = "tens of seconds"
"""
HOLDS = Proof(rows_in=10, rows_out=10, lost=0, repeated=0, out_of_order=0, states=2, states_that_differ=())
MACHINE = {
    "cpu": "abacus",
    "cores": 2,
    "memory_gb": 1.0,
    "system": "Linux",
    "python": "3",
    "java": "17",
    "pyspark": "4",
    "load_before": 0.1,
}


def definition(folder: Path, text: str = TEXT, name: str = "made") -> Definition:
    path = folder / f"{name}.toml"
    path.write_text(text)
    return load(path)


def measured(cell, jitter_ms: float = 50.0, disruption_ms: float = 0.0, proof: Proof = HOLDS) -> Measured:
    calm = Steady(mean_ms=100.0, sigma_ms=10.0, p99_ms=120.0, rows=100)
    cost = Cost(
        plan="p",
        requested_ms=1000.0,
        ended_ms=1800.0,
        calm=calm,
        disruption_ms=disruption_ms,
        peak_jitter_ms=jitter_ms,
        p99_jitter_ms=jitter_ms,
        freeze_ms=90.0,
        state_movement_ms=None,
        bytes_moved=12,
        phases_ms={"begin": 5.0, "state": 40.0},
    )
    outputs = Outputs(np.array([900.0, 1010.0, 1020.0, 1250.0]), np.array([100.0, 90.0, 110.0, 100.0 + jitter_ms]))
    return Measured(cell, cost, outputs, trigger_ms=60.0, bytes_on_links=34, proof=proof, seconds=1.5)
