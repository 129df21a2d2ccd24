"""Figures of applications as tables and as a JSON object. Pure."""

from collections.abc import Mapping, Sequence
from typing import Any

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from peregrine.bench.apps.host import Work
from peregrine.bench.apps.measure import BATCH_ROWS, Measured
from peregrine.bench.apps.overhead import Ratio


def show(ratios: Sequence[Ratio], measured: Sequence[Measured]) -> RenderableType:
    """Ratios first: they compare on any machine."""
    parts: list[RenderableType] = []
    if ratios:
        table = _table("ratio", "", "of")
        for ratio in ratios:
            table.add_row(ratio.what, f"{ratio.value:.2f}x", ratio.of)
        parts += [table, Text()]
    table = _table("one core", "rows/s", "µs/row", "out/in", "keys", "bytes/key")
    for each in measured:
        name = Text(each.name)
        if each.said:
            name.append(f"\n  {each.said}", style="dim")
        run, works = each.best, each.best.works
        outputs = len(run.results) / run.rows
        sizes = _sizes(*works.values()) if len(works) == 1 else ("", "")
        table.add_row(name, f"{1e6 / run.us_per_row:,.0f}", f"{run.us_per_row:.1f}", f"{outputs:.2f}", *sizes)
        for op, work in works.items() if len(works) > 1 else ():
            share = work.seconds / run.rows * 1e6  # of a row of the application, so that they add up
            told = f"{work.rows_out / work.rows_in:.2f}" if work.rows_in else "–"
            table.add_row(Text(f"  - {op.partition('/')[2]}", style="dim"), "", f"{share:.1f}", told, *_sizes(work))
    parts.append(table)
    parts += [Text(f"{each.name}: {wrong}", style="bold red") for each in measured for wrong in each.wrong]
    return Group(*parts)


def as_dict(
    ratios: Sequence[Ratio], measured: Sequence[Measured], machine: Mapping[str, Any], quick: bool
) -> dict[str, Any]:
    return {
        "machine": dict(machine),
        "quick": quick,
        "batch_rows": BATCH_ROWS,
        "ratios": [{"what": each.what, "value": round(each.value, 3), "of": each.of} for each in ratios],
        "measured": [
            {
                "name": each.name,
                "wrong": list(each.wrong),
                "rows": each.best.rows,
                "rows_per_s": round(1e6 / each.best.us_per_row),
                "us_per_row": round(each.best.us_per_row, 2),
                "results": len(each.best.results),
                "operators": {op: _work(work, each.best.rows) for op, work in each.best.works.items()},
            }
            for each in measured
        ],
    }


def _sizes(work: Work) -> tuple[str, str]:
    return f"{work.keys:,}", f"{work.state_bytes / work.keys:,.0f}" if work.keys else "–"


def _work(work: Work, rows: int) -> dict[str, Any]:
    return {
        "us_per_row": round(work.seconds / rows * 1e6, 2),
        "rows_in": work.rows_in,
        "clocks_in": work.clocks_in,
        "rows_out": work.rows_out,
        "keys": work.keys,
        "bytes_per_key": round(work.state_bytes / work.keys, 1) if work.keys else None,
    }


def _table(*columns: str) -> Table:
    table = Table(box=None, padding=(0, 2, 0, 0), header_style="dim", pad_edge=False)
    for nth, column in enumerate(columns):
        table.add_column(column, justify="left" if nth == 0 else "right", no_wrap=True)
    return table
