"""`python -m peregrine.bench.spark`: the data plane on this machine against its targets, as a table and as JSON.

The exit code is 1 if a proof did not hold or a part failed; a target that was missed is only said.
"""

import argparse
import json
import sys
import time
from pathlib import Path

from rich.console import Console

from peregrine.bench.spark import experiment as each
from peregrine.bench.spark import figures, machine
from peregrine.bench.spark.experiment import Experiment, Scale
from peregrine.bench.spark.experiments import EXPERIMENTS
from peregrine.errors import PeregrineError


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="peregrine.bench.spark", description=__doc__)
    parser.add_argument("--quick", action="store_true", help="short runs: shows that it works, its figures are rough")
    parser.add_argument("--only", type=_chosen, default=list(EXPERIMENTS.values()), metavar="NAME,...")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write everything that was found to a file")
    parser.add_argument("--day", action="store_true", help="memory: all rows of a day; takes a quarter of an hour")
    parser.add_argument("--part", nargs=3, help=argparse.SUPPRESS)  # experiment, part, file: one part in its process
    given = parser.parse_args(arguments)
    scale = Scale(given.quick, given.day)
    try:
        if given.part:
            name, part, answer = given.part
            each.be_a_part(EXPERIMENTS[name], part, scale, Path(answer))
            return 0
        return _run(given.only, scale, given.json)
    except PeregrineError as error:
        print(f"peregrine: {error}", file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        return 130


def _run(chosen: list[Experiment], scale: Scale, file: Path | None) -> int:
    console, progress = Console(), Console(stderr=True)
    described = machine.describe()
    began = time.monotonic()

    def say(text: str) -> None:
        progress.print(f"{time.monotonic() - began:6.0f} s  {text}", style="dim", highlight=False, markup=False)

    if file is not None:
        file.parent.mkdir(parents=True, exist_ok=True)
    outcomes = []
    for experiment in chosen:
        outcomes.append(each.run(experiment, scale, say))
        for wrong in outcomes[-1].wrong:
            say(wrong.partition("\n")[0])
        if file is not None:  # after each of them: what was found stays when the rest is broken off
            file.write_text(json.dumps(figures.as_dict(outcomes, described, scale.quick), indent=2) + "\n")
    console.print(machine.line(described), style="dim", highlight=False)
    console.print(figures.show(outcomes))
    return 0 if figures.holds(outcomes) else 1


def _chosen(text: str) -> list[Experiment]:
    names = text.split(",")
    if unknown := [name for name in names if name not in EXPERIMENTS]:
        raise argparse.ArgumentTypeError(f"no experiment {unknown[0]!r}; there are {', '.join(EXPERIMENTS)}")
    return [EXPERIMENTS[name] for name in names]


if __name__ == "__main__":
    sys.exit(main())
