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
                            # "most": of `measure` of `one`, or of any variant, where it is worst
                            # "proof": nothing lost, repeated, out of order; "missing": nobody measures it yet
"""

import math
import tomllib
from collections.abc import Callable, Mapping, Sequence
from enum import StrEnum
from pathlib import Path
from typing import Annotated

import msgspec

from peregrine.bench.engine.analysis import Row
from peregrine.bench.spark.figures import Target, at_least, at_most
from peregrine.core.mechanisms import MECHANISMS
from peregrine.core.mechanisms.live import LIVE
from peregrine.errors import ConfigurationError

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
    x: float | None = None
    at_least: float | None = None
    at_most: float | None = None
    weights: dict[str, Annotated[float, msgspec.Meta(gt=0)]] = {}
    why: str = ""  # of "missing"

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
        if rule.kind in ("ratio", "spread", "growth", "goal", "most") and rule.target is None:
            raise ConfigurationError(f"{path.name}: {rule.name} has no bound", "say at_least or at_most")
    return rules


def check(rules: Sequence[Rule], cells: Sequence[Row], values: Mapping[str, int] | None = None) -> list[Checked]:
    """`values`: how many the sweep of each experiment has. What is said of all of them needs all of them."""
    run = [cell for cell in cells if cell["runs"]]
    found = []
    for rule in rules:
        line = {cell["x"] for cell in run if (cell["experiment"], cell["variant"]) == (rule.experiment, rule.one)}
        wanted = (values or {}).get(rule.experiment, 0) if rule.kind in ("spread", "growth", "goal") else 0
        if len(line) < wanted:
            found.append(Checked(rule, Verdict.NOT_RUN, told=f"{len(line)} of {wanted} values" if line else ""))
        else:
            found.append(_KINDS[rule.kind](rule, run))
    return found


def _ratio(rule: Rule, cells: Sequence[Row]) -> Checked:
    one, other = _line(rule, rule.one, cells), _line(rule, rule.other, cells)
    xs = [x for x in one if x in other and rule.x in (None, x)]
    found = [(one[x] / other[x], x) for x in xs if other[x] > 0]
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
    mine = [cell for cell in cells if not rule.experiment or cell["experiment"] == rule.experiment]
    if not mine:
        return Checked(rule, Verdict.NOT_RUN)
    bad = [cell for cell in mine if not proof_holds(cell)]
    told = ", ".join(f"{cell['experiment']}: {cell['variant']}, {cell['x_label']}" for cell in bad[:3])
    return Checked(rule, Verdict.FAIL if bad else Verdict.PASS, told=told or f"{len(mine)} cells")


def proof_holds(cell: Row) -> bool:
    """What a mechanism declares (no order, loss) is no fault of it."""
    mechanism = MECHANISMS.get(cell["mechanism"], LIVE)
    faults = ["repeated"]
    faults += ["out_of_order"] if mechanism.ordered else []
    faults += ["lost", "states_that_differ"] if mechanism.lossless else []
    return bool(cell["rows_out"]) and not any(cell[fault] for fault in faults)


def _most(rule: Rule, cells: Sequence[Row]) -> Checked:
    found: dict[str, float] = {}
    for cell in cells:
        if cell["experiment"] == rule.experiment and rule.one in ("", cell["variant"]):
            if (value := cell[rule.measure]) is not None:
                found[cell["variant"]] = max(float(value), found.get(cell["variant"], -math.inf))
    if not found:
        return Checked(rule, Verdict.NOT_RUN)
    return _judged(rule, max(found.values()), ", ".join(f"{name} {value:.2f}" for name, value in found.items()))


def _missing(rule: Rule, cells: Sequence[Row]) -> Checked:
    return Checked(rule, Verdict.NOT_RUN, told=rule.why)


def _line(rule: Rule, variant: str, cells: Sequence[Row]) -> dict[float, float]:
    """x -> what was measured, along the sweep."""
    mine = [cell for cell in cells if (cell["experiment"], cell["variant"]) == (rule.experiment, variant)]
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


def _digits(value: float) -> str:
    return f"{value:,.0f}"


_KINDS: Mapping[str, Callable[[Rule, Sequence[Row]], Checked]] = {
    "ratio": _ratio,
    "spread": _spread,
    "growth": _growth,
    "goal": _goal,
    "most": _most,
    "proof": _proof,
    "missing": _missing,
}
