"""Pictures of an experiment: what the paper says beside what was found here, on the same axes; latency over time."""

import io
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import matplotlib as mpl
import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from peregrine.bench.engine.analysis import Row
from peregrine.bench.engine.definition import MEASURES, Definition, Point, label, variants_of
from peregrine.core.mechanisms import MECHANISMS

NAMES = ("app", "case", "hosts")  # along the sweep: with nothing between them there are no lines
LOG_FROM = 30.0  # times as much: then the axis is logarithmic
_BARS = 0.7  # of the room of one x, for all bars
LEAST = 1.0  # on a logarithmic axis; what is less is drawn there
_STEPS = (*range(0, 20, 2), *range(1, 20, 2))  # of the palette: strong colours first
_STYLE: Any = {"svg.fonttype": "none", "font.size": 9, "axes.grid": True, "grid.alpha": 0.3}


def measure_chart(definition: Definition, measure: str, cells: Sequence[Row]) -> Figure | None:
    """One measure along the sweep; None if nobody measured it."""
    mine = [cell for cell in cells if cell["experiment"] == definition.name and cell.get(measure) is not None]
    if not mine:
        return None
    points = [point for point in definition.points if point.measure == measure]
    labels = {cell["x"]: cell["x_label"] for cell in sorted(mine, key=lambda each: each["x"])}
    guessed = extrapolated(definition, measure, cells)
    labels |= {x: label(definition, x) for x in definition.extrapolate if guessed}
    with mpl.rc_context(_STYLE):
        figure = Figure(figsize=(10 if points else 6.5, 3.8), layout="constrained")
        both = figure.subplots(1, 2 if points else 1, sharex=True, sharey=True, squeeze=False)[0]
        ours: Axes = both[-1]
        at = {x: float(nth) for nth, x in enumerate(labels)}  # evenly, as on a logarithmic axis
        drawn = [each for each in _colours(definition) if any(cell["variant"] == each[0] for cell in mine)]
        for nth, (name, colour) in enumerate(drawn):
            line = sorted((cell["x"], max(cell[measure], LEAST)) for cell in mine if cell["variant"] == name)
            if definition.sweep.setting in NAMES:
                width = _BARS / len(drawn)
                places = [at[x] + (nth + 0.5) * width - _BARS / 2 for x, _ in line]
                ours.bar(places, [y for _, y in line], width, color=colour, label=name)
            else:
                ours.plot([at[x] for x, _ in line], [y for _, y in line], "o-", color=colour, label=name, markersize=4)
            if beyond := guessed.get(name):
                dashed = [line[-1], *beyond.items()]
                ours.plot([at[x] for x, _ in dashed], [y for _, y in dashed], "--", color=colour, linewidth=0.9)
        if points:
            _paper(both[0], points, labels, dict(_colours(definition)))
            both[0].set_title(definition.figure)
        ours.set_title("Peregrine, this machine" + (" (dashed: extrapolated)" if guessed else ""))
        beyond_all = [y for line in guessed.values() for y in line.values()]
        _scale(both[0], [*(cell[measure] for cell in mine), *beyond_all], points)
        for axes in both:
            axes.set_xticks(list(at.values()), list(labels.values()), rotation=30 if len(at) > 5 else 0)
            axes.set_xlabel(definition.sweep.label or definition.sweep.setting)
            axes.margins(x=0.08)
            if axes.get_legend_handles_labels()[0]:
                axes.legend(fontsize="x-small", frameon=False, ncols=3, loc="upper left")
        both[0].set_ylabel(MEASURES[measure])
    return figure


def extrapolated(definition: Definition, measure: str, cells: Sequence[Row]) -> dict[str, dict[float, float]]:
    """variant -> x -> what a straight line through what was measured says; never less than the least that was."""
    found: dict[str, dict[float, float]] = {}
    for name, _ in _colours(definition) if definition.extrapolate else ():
        line = [
            (cell["x"], cell[measure])
            for cell in cells
            if (cell["experiment"], cell["variant"]) == (definition.name, name) and cell.get(measure) is not None
        ]
        if len(line) > 1:
            slope, start = np.polyfit([x for x, _ in line], [y for _, y in line], 1)
            least = min(y for _, y in line)
            found[name] = {x: max(float(start + slope * x), least) for x in definition.extrapolate}
    return found


def curve_chart(definition: Definition, curves: Sequence[Row]) -> Figure | None:
    """Latency over time at the last value of the sweep, the reconfiguration asked for at 0."""
    mine = [row for row in curves if row["experiment"] == definition.name]
    if not mine:
        return None
    last = max(row["x"] for row in mine)
    mine = [row for row in mine if row["x"] == last]
    with mpl.rc_context(_STYLE):
        figure = Figure(figsize=(10, 3.8), layout="constrained")
        axes: Axes = figure.add_subplot()
        for name, colour in _colours(definition):
            line = [(row["at_ms"] / 1000, row["slowest_ms"]) for row in mine if row["variant"] == name]
            if line:
                axes.plot([t for t, _ in line], [y for _, y in line], color=colour, linewidth=1, label=name)
        axes.axvline(0, color="black", linewidth=0.8, linestyle=":")
        axes.set_yscale("log")
        axes.set_xlabel("seconds from the request")
        axes.set_ylabel("slowest result in 100 ms (ms)")
        axes.set_title(f"Latency over time, {definition.sweep.label or definition.sweep.setting}: {mine[0]['x_label']}")
        axes.legend(fontsize="x-small", frameon=False, ncols=4)
    return figure


def svg(figure: Figure) -> str:
    """To stand within a page: without a header, which would name a file elsewhere."""
    out = io.StringIO()
    with mpl.rc_context(_STYLE):
        figure.savefig(out, format="svg", metadata={"Date": None, "Creator": None, "Format": None, "Type": None})
    text = out.getvalue()
    return text[text.index("<svg") :]


def _colours(definition: Definition) -> list[tuple[str, Any]]:
    """The same mechanism has the same colour in all pictures; variants that are something else take others."""
    known = list(MECHANISMS)
    names = [variant.name for variant in variants_of(definition)]
    numbers = [known.index(name) if name in known else nth for nth, name in enumerate(names)]
    return [(name, mpl.colormaps["tab20"](_STEPS[number % 20])) for name, number in zip(names, numbers, strict=True)]


def _paper(axes: Axes, points: Sequence[Point], labels: Mapping[float, str], colours: Mapping[str, Any]) -> None:
    """A number is a dot, a range a bar beside those of others; what holds for every x stands at each of them."""
    systems = list(dict.fromkeys((point.system, point.variant) for point in points))
    width = _BARS / len(systems)
    for nth, (system, variant) in enumerate(systems):
        mine = [point for point in points if (point.system, point.variant) == (system, variant)]
        found = [
            (at, point.low, point.low if point.high is None else point.high)
            for at, (x, named) in enumerate(labels.items())
            for point in mine
            if point.x in (None, x, named)
        ]
        colour, told = colours[variant], f"{system} ({variant})"
        if any(high > low for _, low, high in found):
            at = [at + (nth + 0.5) * width - _BARS / 2 for at, _, _ in found]
            heights, lows = [high - low for _, low, high in found], [low for _, low, _ in found]
            axes.bar(at, heights, width, bottom=lows, color=colour, alpha=0.5, label=told)
        elif found:
            axes.plot([at for at, _, _ in found], [low for _, low, _ in found], "o-", color=colour, label=told)


def _scale(axes: Axes, found: Sequence[float], points: Iterable[Point]) -> None:
    every = [*found, *(point.low for point in points), *(point.high for point in points if point.high is not None)]
    least, most = max(min(every), LEAST), max(max(every), LEAST)
    if most / least >= LOG_FROM:
        axes.set_yscale("log", nonpositive="clip")
        axes.set_ylim(least * 0.5, most * 12)
    else:
        axes.set_ylim(0, most * 1.35)
