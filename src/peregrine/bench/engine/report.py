"""The report: one HTML file that needs nothing else, and the same pictures as PNG files beside it.

Ratios come first: what must hold, and how much more than `live`, or what stands for it, every other way costs. Then the
numbers behind them.
"""

import json
from collections.abc import Iterable, Mapping, Sequence
from html import escape
from pathlib import Path
from typing import Any

from peregrine.bench.engine import charts
from peregrine.bench.engine.analysis import Analysed, Row
from peregrine.bench.engine.check import Checked, Verdict, faults_of, proof_holds
from peregrine.bench.engine.definition import MEASURES, Definition, label
from peregrine.bench.spark import machine

PNG_DPI = 130
_PAGE = """<!doctype html>
<html lang="en"><head><meta charset="utf-8"><title>Peregrine: {size} benchmark</title>
<style>
body {{ font: 15px/1.5 system-ui, sans-serif; max-width: 70rem; margin: 2rem auto; padding: 0 1rem; color: #222; }}
h2 {{ margin-top: 3rem; border-top: 1px solid #ccc; padding-top: 1rem; }}
table {{ border-collapse: collapse; margin: 1rem 0; font-variant-numeric: tabular-nums; }}
th, td {{ padding: .2rem .7rem; text-align: right; border-bottom: 1px solid #eee; }}
th:first-child, td:first-child {{ text-align: left; }}
.pass {{ color: #187a2f; }} .fail {{ color: #b3261e; font-weight: 600; }} .not {{ color: #8a6d00; }}
.dim {{ color: #666; }} .wide {{ overflow-x: auto; font-size: 13px; }} caption {{ text-align: left; color: #666; }}
figure {{ margin: 1rem 0; }} svg {{ max-width: 100%; height: auto; }}
</style></head><body>
<h1>Peregrine: {size} benchmark</h1>
{body}
</body></html>
"""


def write(
    folder: Path, size: str, definitions: Mapping[str, Definition], found: Analysed, checked: Sequence[Checked]
) -> Path:
    """Returns the HTML file."""
    folder.mkdir(parents=True, exist_ok=True)
    parts = [_machines(found.machines), _rules(checked)]
    for name, definition in definitions.items():
        if any(cell["experiment"] == name for cell in found.cells):
            parts.append(_experiment(folder, definition, found))
        else:
            parts.append(f"<h2>{escape(name)}</h2><p class=not>{escape(definition.title)}: not run.</p>")
    path = folder / "report.html"
    path.write_text(_PAGE.format(size=escape(size), body="\n".join(parts)), "utf-8")
    return path


def _machines(rows: Iterable[Row]) -> str:
    told = [f"{machine.line(json.loads(row['machine']))} ({row['cells']} cells)" for row in rows]
    return "".join(f"<p class=dim>{escape(each)}</p>" for each in told)


def _rules(checked: Sequence[Checked]) -> str:
    rows = []
    for each in checked:
        target = "" if each.rule.target is None else f"{each.rule.target.bound} {each.rule.target.value:g}"
        value = "" if each.value is None else f"{each.value:,.2f}"
        style = "not" if each.verdict is Verdict.NOT_RUN else str(each.verdict)
        verdict = f"<span class={style}>{each.verdict}</span>"
        rows.append([escape(each.rule.name), value, escape(target), verdict, escape(each.told)])
    return "<h2>What must hold</h2>" + _table(["", "found", "bound", "", "from"], rows)


def _experiment(folder: Path, definition: Definition, found: Analysed) -> str:
    name = definition.name
    cells = [cell for cell in found.cells if cell["experiment"] == name]
    parts = [f"<h2 id={name}>{escape(name)}: {escape(definition.title)}</h2>"]
    parts.append(f"<p class=dim>{escape(definition.figure)}</p><p>{escape(definition.shows)}</p>")
    parts.append(f"<p><b>Expected.</b> {escape(definition.expect)}</p>")
    if definition.missing:
        parts.append(f"<p><b>Not done here.</b> {escape(definition.missing)}</p>")
    parts.append(_ratios(definition, [row for row in found.ratios if row["experiment"] == name]))
    parts += [_faulty(cells)]
    pictures = {measure: charts.measure_chart(definition, measure, found.cells) for measure in definition.measures}
    pictures["latency"] = charts.curve_chart(definition, found.curves)
    for kind, figure in pictures.items():
        if figure is not None:
            figure.savefig(folder / f"{name}-{kind}.png", dpi=PNG_DPI)
            parts.append(f"<figure>{charts.svg(figure)}</figure>")
    phases = [row for row in found.phases if row["experiment"] == name]
    parts += [_cells(cells), _extrapolated(definition, found.cells), _phases(phases), _quotes(definition)]
    return "\n".join(part for part in parts if part)


def _ratios(definition: Definition, rows: Sequence[Row]) -> str:
    """Each measure of the experiment: a line for each variant, a column for each value of the sweep."""
    labels = {row["x"]: row["x_label"] for row in sorted(rows, key=lambda row: row["x"])}
    parts = []
    for measure in definition.measures:
        lines: dict[str, dict[float, Any]] = {}
        for row in rows:
            if row.get(measure) is not None:
                lines.setdefault(row["variant"], {})[row["x"]] = row[measure]
        body = [[escape(name), *(_times(line.get(x)) for x in labels)] for name, line in lines.items()]
        if body:
            caption = f"times as much {MEASURES[measure].partition(' (')[0]} as {rows[0]['reference']}"
            parts.append(_table([definition.sweep.label, *labels.values()], body, caption))
    return "".join(parts)


def _times(value: float | None) -> str:
    """Near 1 a tenth is much."""
    return f"{value:,.2f}x" if value is not None and 0 < value < 10 else _number(value, "x")


def _cells(cells: Sequence[Row]) -> str:
    columns = [name for name in MEASURES if any(cell[name] is not None for cell in cells)]
    head = ["", "", "runs", "steady mean", "p99", *(MEASURES[name] for name in columns), "proof"]
    body, words = [], []
    for cell in cells:
        if cell["trouble"]:
            words.append(f"{cell['variant']}, {cell['x_label']}: {cell['trouble']}")
        if not cell["runs"]:
            continue
        named = [escape(cell["variant"]), escape(cell["x_label"]), str(cell["runs"])]
        steady = [_number(cell["steady_mean_ms"]), _number(cell["steady_p99_ms"])]
        holds = "<span class=pass>holds</span>" if proof_holds(cell) else f"<span class=fail>{faults_of(cell)}</span>"
        body.append([*named, *steady, *(_number(cell[name]) + _spread(cell, name) for name in columns), holds])
    told = "".join(f"<p class=not>{escape(each)}</p>" for each in words)
    return f"<details><summary>All figures</summary>{_table(head, body)}{told}</details>"


def _spread(cell: Row, measure: str) -> str:
    """The least and the most of several runs, of the figure that differs the most."""
    if measure != "jitter_ms" or cell["runs"] < 2:
        return ""
    return f" <span class=dim>({_number(cell['least_jitter_ms'])} – {_number(cell['most_jitter_ms'])})</span>"


def _extrapolated(definition: Definition, cells: Sequence[Row]) -> str:
    body = [
        [escape(variant), escape(MEASURES[measure]), *(_number(line[x]) for x in definition.extrapolate)]
        for measure in definition.measures
        for variant, line in charts.extrapolated(definition, measure, cells).items()
    ]
    head = [f"extrapolated to {definition.sweep.label}", "", *(label(definition, x) for x in definition.extrapolate)]
    return _table(head, body) if body else ""


def _faulty(cells: Sequence[Row]) -> str:
    bad = [cell for cell in cells if cell["runs"] and not proof_holds(cell)]
    told = "; ".join(f"{cell['variant']}, {cell['x_label']}: {faults_of(cell)}" for cell in bad)
    lines = [f"The proof does not hold: {told}"] if bad else []
    lines += [f"Failed: {cell['variant']}, {cell['x_label']}: {cell['failed']}" for cell in cells if cell.get("failed")]
    return "".join(f"<p class=fail>{escape(line)}</p>" for line in lines)


def _phases(rows: Sequence[Row]) -> str:
    if not rows:
        return ""
    names = list(dict.fromkeys(row["phase"] for row in rows))
    lines: dict[tuple[str, str], dict[str, float]] = {}
    for row in rows:
        lines.setdefault((row["variant"], row["x_label"]), {})[row["phase"]] = row["ms"]
    body = [
        [escape(variant), escape(x), *(_number(each.get(name)) for name in names)]
        for (variant, x), each in lines.items()
    ]
    return "<details><summary>Phases (ms)</summary>" + _table(["", "", *map(escape, names)], body) + "</details>"


def _quotes(definition: Definition) -> str:
    body = [
        [
            escape(f"{point.system} ({point.variant})"),
            escape(MEASURES[point.measure]),
            escape("" if point.x is None else label(definition, point.x)),
            _number(point.low) + ("" if point.high is None else f" – {_number(point.high)}"),
            escape(point.said),
        ]
        for point in definition.points
    ]
    return "<p>What the paper says</p>" + _table(["", "", definition.sweep.label, "", ""], body) if body else ""


def _number(value: Any, unit: str = "") -> str:
    if value is None:
        return ""
    return f"{value:,.0f}{unit}" if abs(value) >= 100 or value == 0 else f"{value:,.1f}{unit}"


def _table(head: Sequence[str], rows: Iterable[Sequence[str]], caption: str = "") -> str:
    cells = "".join(f"<th>{escape(each)}</th>" for each in head)
    body = "".join("<tr>" + "".join(f"<td>{each}</td>" for each in row) + "</tr>" for row in rows)
    named = f"<caption>{escape(caption)}</caption>" if caption else ""
    table = f"<table>{named}<thead><tr>{cells}</tr></thead><tbody>{body}</tbody></table>"
    return f"<div class=wide>{table}</div>"
