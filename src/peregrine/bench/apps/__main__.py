"""`python -m peregrine.bench.apps`: what applications, windows and the layer above the core cost on the host.

The exit code is 1 if results were wrong: then their figures mean nothing.
"""

import argparse
import json
import sys
import time
from collections.abc import Callable
from pathlib import Path

from rich.console import Console

from peregrine.bench.apps import overhead, report
from peregrine.bench.apps.cases import CASES
from peregrine.bench.apps.measure import Measured, measure, ready
from peregrine.bench.apps.overhead import Ratio
from peregrine.bench.spark import machine

ROWS, QUICK_ROWS = 30_000, 6000
REPEATS, QUICK_REPEATS = 5, 1
COMPARISONS = {
    "shell": (overhead.shell, overhead.shell_ratios),
    "windows": (overhead.windows, overhead.windows_ratios),
}


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="peregrine.bench.apps", description=__doc__)
    parser.add_argument(
        "--quick", action="store_true", help="few rows, once: shows that it works, its figures are rough"
    )
    parser.add_argument("--only", type=_chosen, default=[*COMPARISONS, *CASES], metavar="NAME,...")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write everything that was found to a file")
    given = parser.parse_args(arguments)
    described = machine.describe()
    progress, began = Console(stderr=True), time.monotonic()

    def say(text: str) -> None:
        progress.print(f"{time.monotonic() - began:6.0f} s  {text}", style="dim", highlight=False, markup=False)

    ratios, measured = run(given.only, given.quick, say)
    if given.json is not None:
        given.json.parent.mkdir(parents=True, exist_ok=True)
        found = report.as_dict(ratios, measured, described, given.quick)
        given.json.write_text(json.dumps(found, indent=2, ensure_ascii=False) + "\n")
    console = Console()
    console.print(machine.line(described), style="dim", highlight=False)
    console.print(report.show(ratios, measured))
    return 1 if any(each.wrong for each in measured) else 0


def run(names: list[str], quick: bool, say: Callable[[str], None]) -> tuple[list[Ratio], list[Measured]]:
    rows, repeats = (QUICK_ROWS, QUICK_REPEATS) if quick else (ROWS, REPEATS)
    ratios: list[Ratio] = []
    measured: list[Measured] = []
    for name in names:
        say(name)
        if name in CASES:
            measured += measure([ready(name, CASES[name], rows)], repeats)
            continue
        prepare, compare = COMPARISONS[name]
        compared = measure(prepare(rows), repeats)
        ratios += compare({each.name: each for each in compared})
        measured += compared
    return ratios, measured


def _chosen(text: str) -> list[str]:
    names = text.split(",")
    if unknown := [name for name in names if name not in CASES and name not in COMPARISONS]:
        known = ", ".join([*COMPARISONS, *CASES])
        raise argparse.ArgumentTypeError(f"nothing is called {unknown[0]!r}; there are {known}")
    return names


if __name__ == "__main__":
    sys.exit(main())
