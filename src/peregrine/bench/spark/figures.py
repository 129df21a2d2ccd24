"""Figures, what they are held against, and how they are shown. Pure: numbers in, a table or a JSON object out."""

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from enum import StrEnum
from typing import Any

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text


class Bound(StrEnum):
    AT_MOST = "≤"
    AT_LEAST = "≥"


@dataclass(frozen=True, slots=True)
class Target:
    bound: Bound
    value: float

    def met_by(self, value: float) -> bool:
        return value <= self.value if self.bound is Bound.AT_MOST else value >= self.value


def at_most(value: float) -> Target:
    return Target(Bound.AT_MOST, value)


def at_least(value: float) -> Target:
    return Target(Bound.AT_LEAST, value)


@dataclass(frozen=True, slots=True)
class Figure:
    """One number. `unit` is "x" for a ratio of two numbers of the same run; without a value it was not measured."""

    what: str
    value: float | None
    unit: str
    target: Target | None = None
    note: str = ""  # what the number was made of, or why there is none

    @property
    def verdict(self) -> str:
        if self.target is None:
            return ""
        if self.value is None:
            return "not measured"
        return "pass" if self.target.met_by(self.value) else "short"


@dataclass(frozen=True, slots=True)
class Outcome:
    """What came of one experiment."""

    name: str
    title: str
    figures: tuple[Figure, ...]
    wrong: tuple[str, ...]  # proofs that do not hold, parts that failed: then no figure of it counts
    parts: Mapping[str, Any]
    seconds: float


def ratio(one: float, other: float) -> float | None:
    """None where there is nothing to divide by: a figure that cannot be had is not a good one."""
    return one / other if other > 0 else None


def show(outcomes: Sequence[Outcome]) -> RenderableType:
    """Ratios and whatever else has a target first, then the numbers they were made of."""
    held, plain = _table("against a target", "", "target", ""), _table("besides", "")
    for outcome in outcomes:
        for figure in outcome.figures:
            name, value = Text(f"{outcome.name}: {figure.what}"), number(figure)
            if figure.note:
                name.append(f"\n  {figure.note}", style="dim")
            if figure.target is not None:
                against = f"{figure.target.bound} {_digits(figure.target.value)}{_unit(figure.unit)}"
                held.add_row(name, value, against, Text(figure.verdict, style=_STYLES[figure.verdict]))
            else:
                plain.add_row(name, value)
    wrong = [Text(f"{outcome.name}: {each}", style="bold red") for outcome in outcomes for each in outcome.wrong]
    parts: list[RenderableType] = [table for table in (held, plain) if table.row_count]
    return Group(*(each for part in [*parts, *wrong] for each in (part, Text())))


def as_dict(outcomes: Sequence[Outcome], machine: Mapping[str, Any], quick: bool) -> dict[str, Any]:
    return {
        "machine": dict(machine),
        "quick": quick,
        "holds": holds(outcomes),
        "experiments": [
            {
                "name": outcome.name,
                "title": outcome.title,
                "seconds": round(outcome.seconds, 1),
                "wrong": list(outcome.wrong),
                "figures": [{**asdict(figure), "verdict": figure.verdict} for figure in outcome.figures],
                "parts": dict(outcome.parts),
            }
            for outcome in outcomes
        ],
    }


def holds(outcomes: Sequence[Outcome]) -> bool:
    """Every proof held. A target that was missed is a figure, not a fault."""
    return not any(outcome.wrong for outcome in outcomes)


def number(figure: Figure) -> str:
    return "–" if figure.value is None else f"{_digits(figure.value)}{_unit(figure.unit)}"


def _digits(value: float) -> str:
    """Three digits that count, and no fewer than the number has before its point."""
    if value == 0 or abs(value) >= 100:
        return f"{value:,.0f}"
    return f"{value:,.1f}" if abs(value) >= 10 else f"{value:,.2f}"


def _unit(unit: str) -> str:
    return unit if unit == "x" else f" {unit}"


_STYLES = {"pass": "bold green", "short": "bold red", "not measured": "yellow"}


def _table(*columns: str) -> Table:
    table = Table(box=None, padding=(0, 2, 0, 0), header_style="dim", pad_edge=False)
    for i, column in enumerate(columns):
        table.add_column(column, justify="right" if i == 1 else "left", no_wrap=i > 0)
    return table
