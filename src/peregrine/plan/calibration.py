"""What is much and what is little on the machine at hand: the thresholds of the adaptive strategy.

Spacker IV-C: "high and low are relative, with quantitative values depending on actual hardware and workloads". So what
a migration takes is measured (`Costs`, by control/calibrating.py), and each threshold is where, by these costs, the
other choice becomes the better one on a weighted goal (`derived`). The defaults are for those who have not measured.
"""

from dataclasses import dataclass, fields

import msgspec

from peregrine.errors import ConfigurationError

BUSY = 0.25  # of what a host can work off: from here on it matters which keys leave it first
LEAST = 1e-3  # below, a cost is noise


@dataclass(frozen=True, slots=True)
class Goal:
    """How much a spike of the latency, the completion time and the overhead beforehand weigh against each other."""

    spike: float = 1.0
    completion: float = 1.0
    overhead: float = 1.0


ALIKE = Goal()


@dataclass(frozen=True, slots=True)
class Costs:
    """Of a host of micro-batches on two cores, where nobody has measured."""

    round_ms: float = 400.0  # a chunk, however small: markers, and turns of hosts
    ms_per_mb: float = 60.0  # read, cut, sent, journaled and restored
    ms_per_key: float = 0.1
    rows_per_s: float = 20_000.0  # that come through when nothing else is to be done
    replica_overhead: float = 0.5  # a batch takes so much longer if all keys have a replica and all get rows

    def to_json(self) -> bytes:
        return msgspec.json.format(msgspec.json.encode(self), indent=2)


@dataclass(frozen=True, slots=True)
class Calibration:
    """The thresholds, and the goal that they are for."""

    high_rows_per_s: float
    high_skew: float
    round_bytes: float  # travel in the time that a round of a migration takes anyway
    round_keys: float  # are named and restored in that time
    low_access_ratio: float
    goal: Goal = ALIKE

    def rounds(self, carried_bytes: float, keys: int) -> float:
        """How many rounds' worth of work it is to carry so much."""
        return carried_bytes / self.round_bytes + keys / self.round_keys


def derived(costs: Costs, goal: Goal = ALIKE) -> Calibration:
    """Skew is nothing of the machine: from 0.5 on a tenth of the keys gets a third of the rows.

    Replicas of all keys, of which the share `a` is touched, save (1 - a) of what travels. Where that is a round's worth
    (with less, nothing is to be won), spike and completion fall by up to a half each, and batches take `a` times the
    overhead longer. Both are the same at the threshold.
    """
    saved = (goal.spike + goal.completion) / 2
    paid = goal.overhead * max(costs.replica_overhead, LEAST)
    return Calibration(
        high_rows_per_s=BUSY * costs.rows_per_s,
        high_skew=0.5,
        round_bytes=costs.round_ms / max(costs.ms_per_mb, LEAST) * 1e6,
        round_keys=costs.round_ms / max(costs.ms_per_key, LEAST),
        low_access_ratio=saved / (saved + paid),
        goal=goal,
    )


DEFAULTS = derived(Costs())


def from_json(text: bytes | str) -> Costs:
    remedy = "measure again: peregrine calibrate"
    try:
        found = msgspec.json.decode(text, type=Costs)
    except msgspec.DecodeError as error:
        raise ConfigurationError(f"a calibration that cannot be read: {error}", remedy) from error
    for each in fields(Costs):
        if not getattr(found, each.name) >= 0:
            raise ConfigurationError(f"a calibration with {each.name} below 0", remedy)
    if not (found.round_ms and found.rows_per_s):
        raise ConfigurationError("a calibration in which a round, or a row, takes no time", remedy)
    return found
