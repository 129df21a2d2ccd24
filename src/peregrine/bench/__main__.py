"""`python -m peregrine.bench`: the speed of the core on this machine, as one JSON object on stdout.

The same figures stand in a short table on stderr, so that one may look and keep the object at the same time.
"""

import json
import os
import platform
import sys
from time import perf_counter

from rich.console import Console
from rich.table import Table

from peregrine.bench import redeployment, routing
from peregrine.sim.runner import Totals, run_seed
from peregrine.sim.scenario import Options

SIMULATED_SEEDS = range(20)


def main() -> None:
    figures: dict[str, object] = {**routing.run(), **redeployment.manager_step(), **simulator()}
    figures |= {"python": platform.python_version(), "cpus": os.cpu_count()}
    _show(figures)
    print(json.dumps(figures))


def simulator(seeds: range = SIMULATED_SEEDS) -> dict[str, object]:
    """Events and rows per second of one process, over seeds with every kind of migration and fault."""
    totals = Totals()
    run_seed(seeds.start, Options())  # warms up imports and caches
    began = perf_counter()
    for seed in seeds:
        totals.add(run_seed(seed, Options()))
    elapsed_s = perf_counter() - began
    return {
        "simulator_events_per_s": round(totals.events / elapsed_s),
        "simulator_rows_per_s": round(totals.rows / elapsed_s),
    }


def _show(figures: dict[str, object]) -> None:
    table = Table(show_header=False, box=None, padding=(0, 2, 0, 0))
    table.add_column()
    table.add_column(justify="right")
    for name, value in figures.items():
        table.add_row(name.replace("_", " "), f"{value:,}" if isinstance(value, int | float) else str(value))
    Console(file=sys.stderr).print(table)


if __name__ == "__main__":
    main()
