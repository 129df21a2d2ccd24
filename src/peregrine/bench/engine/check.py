"""What must hold, evaluated on what the cells found: pass, fail, or not run. Pure.

The rules are in `expected.toml`:

    [[rules]]
    name = "..."
    experiment = "falcon-12"
    measure = "disruption_ms"
    kind = "ratio"          # of variant `one` over variant `other`, at `x` or wherever it is worst
    one = "restart"         # "spread": most over least of `one` along the sweep
    other = "live"          # "growth": of `one` from the first value of the sweep to the last
    at_least = 50           # "goal": `one` over the best of the others, by `weights`, where it is worst
                            # "most": of `measure` of `one`, or of any variant, at `x` or where it is worst
                            # "least": the same; without `x` all values of the sweep must have been run
                            # "proof": nothing lost, repeated, out of order; "missing": nobody measures it yet
    x = 10485760            # or as the axis says it: "10 MiB"
    size = "full"           # it says nothing of the other size
    per = 1000              # "most", "least": in what the measure is told, here in seconds
    same_run = true         # the cells must be of one run

A cell that failed has no figures: what is said of it does not hold, and the reason is told.
"""

import tomllib
from collections.abc import Callable, Iterable, Mapping, Sequence
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Literal

import msgspec

from peregrine.bench.engine.analysis import Row
from peregrine.bench.spark.figures import Target, at_least, at_most
from peregrine.core.mechanisms import MECHANISMS
from peregrine.core.mechanisms.live import LIVE
from peregrine.errors import ConfigurationError

# Measured, but not drawn: how far predictions were off, and the share of the told changes that was carried out.
UNDRAWN = ("duration_error", "bytes_error", "carried_out")
EXPECTED = Path(__file__).parent.parent / "expected.toml"
FLOOR_MS = 1.0  # what the clocks can tell


class Verdict(StrEnum):
    PASS = "pass"
    FAIL = "fail"
    NOT_RUN = "not run"


class Rule(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    name: str
    kind: str
    experiment: str = ""
    measure: str = ""
    one: str = ""
    other: str = ""
    x: float | str | None = None
    size: Literal["", "quick", "full"] = ""
    same_run: bool = False
    at_least: float | None = None
    at_most: float | None = None
    per: Annotated[float, msgspec.Meta(gt=0)] = 1.0
    weights: dict[str, Annotated[float, msgspec.Meta(gt=0)]] = {}
    why: str = ""  # of "missing"

    def is_at(self, cell: Row) -> bool:
        return self.x in (None, cell["x"], cell["x_label"])

    def is_of(self, cell: Row) -> bool:
        """Is anything said of this cell?"""
        if self.experiment not in ("", cell["experiment"]) or not self.is_at(cell):
            return False
        return not self.one or self.kind == "goal" or cell["variant"] in (self.one, self.other)

    @property
    def target(self) -> Target | None:
        if self.at_least is not None:
            return at_least(self.at_least)
        return at_most(self.at_most) if self.at_most is not None else None


class Checked(msgspec.Struct, frozen=True):
    rule: Rule
    verdict: Verdict
    value: float | None = None
    told: str = ""


def load(path: Path = EXPECTED) -> list[Rule]:
    try:
        rules = msgspec.convert(tomllib.loads(path.read_text("utf-8")), dict[str, list[Rule]])["rules"]
    except (OSError, tomllib.TOMLDecodeError, msgspec.ValidationError, KeyError) as error:
        raise ConfigurationError(f"{path.name}: {error}", "write [[rules]] as bench/engine/check.py says") from error
    for rule in rules:
        if rule.kind not in _KINDS:
            raise ConfigurationError(f"{path.name}: {rule.name}: kind {rule.kind!r}", f"use {', '.join(_KINDS)}")
        if rule.kind not in ("proof", "missing") and rule.target is None:
            raise ConfigurationError(f"{path.name}: {rule.name} has no bound", "say at_least or at_most")
    return rules


def check(rules: Sequence[Rule], cells: Sequence[Row], values: Mapping[str, int] | None = None) -> list[Checked]:
    """`values`: how many the sweep of each experiment has. What is said of all of them needs all of them."""
    there = [cell for cell in cells if cell["runs"] or cell.get("failed")]
    return [_ruled_out(rule, there, values or {}) or _KINDS[rule.kind](rule, there) for rule in rules]


def _ruled_out(rule: Rule, cells: Sequence[Row], values: Mapping[str, int]) -> Checked | None:
    """What there is to say without a look at the figures."""
    if rule.size and any(cell.get("size") not in (None, rule.size) for cell in cells):
        return Checked(rule, Verdict.NOT_RUN, told=f"of the {rule.size} size only")
    mine = [cell for cell in cells if rule.is_of(cell)]
    if rule.kind in ("proof", "missing"):
        return None
    if failed := [cell for cell in mine if cell.get("failed")]:
        return Checked(rule, Verdict.FAIL, told=_told(failed))
    line = {cell["x"] for cell in mine if cell["variant"] == rule.one}
    whole = rule.kind in ("spread", "growth", "goal") or (rule.kind == "least" and rule.x is None)
    if whole and len(line) < (wanted := values.get(rule.experiment, 0)):
        return Checked(rule, Verdict.NOT_RUN, told=f"{len(line)} of {wanted} values" if line else "")
    # The load before a run is part of what is kept of its machine, so two runs differ.
    if rule.same_run and len({machine for cell in mine for machine in cell.get("machines", ())}) > 1:
        return Checked(rule, Verdict.NOT_RUN, told="its cells are of several runs: run them again in one")
    return None


def _ratio(rule: Rule, cells: Sequence[Row]) -> Checked:
    one, other = _line(rule, rule.one, cells), _line(rule, rule.other, cells)
    found = [(one[x] / other[x], x) for x in one if x in other and other[x] > 0]
    if not found:
        return Checked(rule, Verdict.NOT_RUN)
    value, x = min(found) if rule.at_least is not None else max(found)
    return _judged(rule, value, f"{_digits(one[x])} / {_digits(other[x])}, {_label(rule, cells, x)}")


def _spread(rule: Rule, cells: Sequence[Row]) -> Checked:
    line = _line(rule, rule.one, cells)
    if len(line) < 2 or min(line.values()) <= 0:
        return Checked(rule, Verdict.NOT_RUN)
    told = " / ".join(_digits(value) for value in line.values())
    return _judged(rule, max(line.values()) / min(line.values()), told)


def _growth(rule: Rule, cells: Sequence[Row]) -> Checked:
    line = _line(rule, rule.one, cells)
    if len(line) < 2 or line[min(line)] <= 0:
        return Checked(rule, Verdict.NOT_RUN)
    told = " / ".join(_digits(value) for value in line.values())
    return _judged(rule, line[max(line)] / line[min(line)], told)


def _goal(rule: Rule, cells: Sequence[Row]) -> Checked:
    """Each measure counts by how much more it is than the best of all; 1 would be the best in everything."""
    found: list[tuple[float, float]] = []
    for x in sorted({cell["x"] for cell in cells if cell["experiment"] == rule.experiment}):
        here = {cell["variant"]: cell for cell in cells if cell["experiment"] == rule.experiment and cell["x"] == x}
        if rule.one not in here or len(here) < 2:
            return Checked(rule, Verdict.NOT_RUN)
        best = {name: min(_felt(cell, name) for cell in here.values()) for name in rule.weights}
        goals = {
            variant: sum(weight * _felt(cell, name) / best[name] for name, weight in rule.weights.items())
            for variant, cell in here.items()
        }
        mine = goals.pop(rule.one)
        if mine > max(goals.values()):
            return Checked(rule, Verdict.FAIL, mine / min(goals.values()), f"it is the worst, {_label(rule, cells, x)}")
        found.append((mine / min(goals.values()), x))
    if not found:
        return Checked(rule, Verdict.NOT_RUN)
    value, x = max(found)
    return _judged(rule, value, _label(rule, cells, x))


def _proof(rule: Rule, cells: Sequence[Row]) -> Checked:
    mine = [cell for cell in cells if rule.is_of(cell)]
    if not mine:
        return Checked(rule, Verdict.NOT_RUN)
    bad = [cell for cell in mine if cell.get("failed") or not proof_holds(cell)]
    return Checked(rule, Verdict.FAIL if bad else Verdict.PASS, told=_told(bad) or f"{len(mine)} cells")


def proof_holds(cell: Row) -> bool:
    """What a mechanism declares (no order, loss) is no fault of it."""
    mechanism = MECHANISMS.get(cell["mechanism"], LIVE)
    faults = ["repeated", "violations"]
    faults += ["out_of_order"] if mechanism.ordered else []
    faults += ["lost", "states_that_differ"] if mechanism.lossless else []
    return bool(cell["rows_out"]) and not any(cell.get(fault) for fault in faults)


def faults_of(cell: Row) -> str:
    """Of a proof that does not hold."""
    names = ("lost", "repeated", "out_of_order", "states_that_differ", "violations")
    return ", ".join(f"{name.replace('_', ' ')} {cell[name]}" for name in names if cell.get(name)) or "nothing came out"


def _most(rule: Rule, cells: Sequence[Row]) -> Checked:
    return _worst(rule, cells, max)


def _least(rule: Rule, cells: Sequence[Row]) -> Checked:
    return _worst(rule, cells, min)


def _worst(rule: Rule, cells: Sequence[Row], worst: Callable[[Iterable[float]], float]) -> Checked:
    found: dict[str, float] = {}
    for cell in cells:
        if rule.is_of(cell) and (measured := cell[rule.measure]) is not None:
            value = float(measured) / rule.per
            found[cell["variant"]] = worst((value, found.get(cell["variant"], value)))
    if not found:
        return Checked(rule, Verdict.NOT_RUN)
    told = ", ".join(f"{name} {value:.2f}" for name, value in found.items())
    return _judged(rule, worst(found.values()), told)


def _missing(rule: Rule, cells: Sequence[Row]) -> Checked:
    return Checked(rule, Verdict.NOT_RUN, told=rule.why)


def _line(rule: Rule, variant: str, cells: Sequence[Row]) -> dict[float, float]:
    """x -> what was measured, along the sweep or where the rule says."""
    mine = [cell for cell in cells if rule.is_of(cell) and cell["variant"] == variant]
    return {cell["x"]: _felt(cell, rule.measure) for cell in mine if cell[rule.measure] is not None}


def _felt(cell: Row, measure: str) -> float:
    value = float(cell[f"felt_{measure}" if measure.startswith("jitter") else measure])
    return max(value, FLOOR_MS)


def _judged(rule: Rule, value: float, told: str) -> Checked:
    assert rule.target is not None
    return Checked(rule, Verdict.PASS if rule.target.met_by(value) else Verdict.FAIL, value, told)


def _label(rule: Rule, cells: Sequence[Row], x: float) -> str:
    labels = (cell["x_label"] for cell in cells if cell["experiment"] == rule.experiment and cell["x"] == x)
    return f"at {next(labels)}"


def _told(bad: Sequence[Row]) -> str:
    """Which cells, and why."""
    return "; ".join(
        f"{cell['experiment']}: {cell['variant']}, {cell['x_label']}: {cell.get('failed') or faults_of(cell)}"
        for cell in bad[:3]
    )


def _digits(value: float) -> str:
    return f"{value:,.0f}"


_KINDS: Mapping[str, Callable[[Rule, Sequence[Row]], Checked]] = {
    "ratio": _ratio,
    "spread": _spread,
    "growth": _growth,
    "goal": _goal,
    "most": _most,
    "least": _least,
    "proof": _proof,
    "missing": _missing,
}
