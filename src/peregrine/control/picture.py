"""Latency over time as an image, with the reconfigurations marked."""

from pathlib import Path

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from peregrine.control.figures import Figures
from peregrine.control.watch import Watch
from peregrine.measure import Milliseconds, Outputs

BIN_MS = 100.0
HEADROOM = 1.15
COLOURS = ("tab:orange", "tab:purple", "tab:green")


def draw(path: Path, watch: Watch, found: Figures) -> None:
    """The suffix of the file says what it becomes: .png, .svg or .pdf."""
    marks = found.marks
    moved = found.course.half
    figure = Figure(figsize=(10, 4.5), layout="constrained")
    axes: Axes = figure.add_subplot()
    for label, outputs, colour in (
        ("keys that stay", watch.outputs(but=moved), "tab:gray"),
        ("keys that move", watch.outputs(moved), "tab:blue"),
    ):
        seen = outputs.between(marks.steady_ms, marks.ended_ms)
        at_s, median_ms, slowest_ms = _binned(seen, marks.steady_ms)
        axes.plot(at_s, median_ms, color=colour, linewidth=1.2, label=f"{label}: median")
        axes.plot(at_s, slowest_ms, color=colour, linewidth=0.8, alpha=0.5, label=f"{label}: slowest")
    for (number, each), colour in zip(enumerate(found.reconfigurations, start=1), COLOURS, strict=False):
        begin_s, end_s = ((at_ms - marks.steady_ms) / 1000 for at_ms in (each.moved.requested_ms, each.moved.ended_ms))
        axes.axvspan(begin_s, end_s, color=colour, alpha=0.25, label=f"{number}  {each.journey}")
        axes.annotate(str(number), ((begin_s + end_s) / 2, 0.95), xycoords=("data", "axes fraction"), ha="center")
    disrupted_ms = found.calm.disrupted_from_ms
    axes.axhline(disrupted_ms, color="tab:red", linewidth=0.8, linestyle=":", label="disrupted (mean + 5 sigma)")
    slowest = watch.outputs().between(marks.steady_ms, marks.ended_ms).latency_ms
    axes.set_ylim(0, max(float(slowest.max(initial=0.0)), disrupted_ms) * HEADROOM)
    axes.set_xlim(0, (marks.ended_ms - marks.steady_ms) / 1000)
    axes.set_xlabel("seconds of the run")
    axes.set_ylabel("latency of results (ms)")
    course = found.course
    axes.set_title(
        f"Traffic Monitoring on Spark, {course.rows_per_s:,.0f} rows/s, {course.vehicles} keys, "
        f"{2 * course.latency_ms:g} ms round trip"
    )
    axes.legend(loc="upper center", bbox_to_anchor=(0.5, -0.15), ncols=4, fontsize="small", frameon=False)
    figure.savefig(path, dpi=110)


def _binned(outputs: Outputs, from_ms: float) -> tuple[Milliseconds, Milliseconds, Milliseconds]:
    """Median and slowest of each tenth of a second in which something came out."""
    bins = ((outputs.emitted_ms - from_ms) // BIN_MS).astype(int)
    order = np.argsort(bins, kind="stable")
    numbers, starts = np.unique(bins[order], return_index=True)
    parts = np.split(outputs.latency_ms[order], starts[1:]) if len(numbers) else []
    at_s = (numbers + 0.5) * BIN_MS / 1000
    return at_s, np.array([np.median(part) for part in parts]), np.array([part.max() for part in parts])
