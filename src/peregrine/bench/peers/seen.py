"""What a run of one system saw, as its process hands it over, and its figures by the definitions that hold for all."""

from dataclasses import dataclass, replace
from pathlib import Path

import msgspec
import numpy as np

from peregrine import measure
from peregrine.bench.engine.definition import Cell
from peregrine.bench.engine.measured import Measured
from peregrine.errors import PeregrineError
from peregrine.measure import Outputs
from peregrine.net.chunk_files import write_aside
from peregrine.proof import Proof


class Facts(msgspec.Struct, frozen=True):
    """Times in milliseconds of the clock. Without `requested_ms` nothing was reconfigured."""

    proof: Proof
    calm_ms: float
    until_ms: float
    requested_ms: float | None = None
    ended_ms: float | None = None
    bytes_moved: int = 0
    max_rows_per_s: float | None = None
    again: int = 0  # results that came again


@dataclass(frozen=True)
class Seen:
    facts: Facts
    outputs: Outputs | None = None  # None of a run at saturation: its latency says nothing

    def write(self, answer: Path) -> None:
        """The facts come last: what is there is complete."""
        if self.outputs is not None:
            with open(_arrays(answer), "wb") as file:
                np.savez(file, emitted_ms=self.outputs.emitted_ms, latency_ms=self.outputs.latency_ms)
        write_aside(answer, msgspec.json.encode(self.facts), durable=False)

    @staticmethod
    def read(answer: Path) -> "Seen":
        facts = msgspec.json.decode(answer.read_bytes(), type=Facts)
        if not _arrays(answer).exists():
            return Seen(facts)
        with np.load(_arrays(answer)) as found:
            return Seen(facts, Outputs(found["emitted_ms"], found["latency_ms"]))

    def measured(self, cell: Cell, seconds: float) -> Measured:
        facts = self.facts
        found = Measured(cell, proof=facts.proof, seconds=seconds, max_rows_per_s=facts.max_rows_per_s)
        if self.outputs is None:
            return found
        end_ms = facts.until_ms if facts.requested_ms is None else facts.requested_ms
        try:
            steady = self.outputs.steady(facts.calm_ms, end_ms)
        except PeregrineError as error:
            return Measured(cell, trouble=error.what, failed=True)
        outputs = self.outputs.between(facts.calm_ms, facts.until_ms)
        found = replace(found, outputs=outputs, calm=steady)
        return found if facts.requested_ms is None else replace(found, cost=self._cost(cell, steady, outputs))

    def _cost(self, cell: Cell, calm: measure.Steady, outputs: Outputs) -> measure.Cost:
        """By the functions that judge our own plans; a peer tells no phases."""
        facts = self.facts
        assert facts.requested_ms is not None and facts.ended_ms is not None
        found = measure.cost_of_results(cell.variant, outputs, calm, facts.requested_ms, facts.ended_ms)
        return replace(found, bytes_moved=facts.bytes_moved)


def _arrays(answer: Path) -> Path:
    return answer.with_suffix(".npz")
