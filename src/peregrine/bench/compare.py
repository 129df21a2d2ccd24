"""`python -m peregrine.bench.compare --base REV`: is this tree as fast as another commit of it?

Runs of the two take turns on this machine, so that a busy minute hits both alike; single runs drift by half. What is
compared is the ratio of this tree to the base in each pair. Above 1 is worse, whatever the unit: a rate is turned
round. The figure is the geometric mean of the ratios with its 95 % interval (Student's t on their logarithms). The
upper end is what "at most as slow as" means. Each tree runs its own benchmarks from its own sources; a part that breaks
its proof stops the comparison. Nothing else may run meanwhile.
"""

import argparse
import ctypes
import json
import math
import os
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from statistics import mean, median, stdev

from rich.console import Console
from rich.table import Table

from peregrine.bench.spark.experiment import Found, broken
from peregrine.errors import ConfigurationError, PeregrineError

LEFT_S = 30.0
PR_SET_CHILD_SUBREAPER = 36
T_975 = (  # by degrees of freedom, from 1 on
    *(12.706, 4.303, 3.182, 2.776, 2.571, 2.447, 2.365, 2.306, 2.262),
    *(2.228, 2.201, 2.179, 2.160, 2.145, 2.131, 2.120, 2.110, 2.101, 2.093),
)

Values = dict[str, float]  # the lower, the better


@dataclass(frozen=True, slots=True)
class Run:
    """What one process of a tree found, and what it and all that it started used of the processors."""

    found: Found
    cpu_s: float


@dataclass(frozen=True, slots=True)
class Compared:
    what: str
    base: float  # median
    here: float
    ratio: float
    low: float
    high: float


@dataclass(frozen=True, slots=True)
class Case:
    words: tuple[str, ...]  # of a process; it writes what it found to the file that comes last, or to stdout
    values: Callable[[Run], Values]


def core(run: Run) -> Values:
    """Routing and planning; the simulator may do more in one tree than in the other, and is left out."""
    slow = {name: float(value) for name, value in run.found.items() if name.endswith(("_sites", "_ms"))}
    fast = {name: 1e9 / float(value) for name, value in run.found.items() if name.startswith("rows_per_s")}
    return {f"core: {name}": value for name, value in slow.items()} | {
        f"core: ns a row, {name}": value for name, value in fast.items()
    }


def steady(name: str, run: Run) -> Values:
    latency: Mapping[str, float] = run.found["latency"]
    return {f"{name}: latency {each} ms": latency[f"{each}_ms"] for each in ("mean", "p50", "p99")}


def throughput(run: Run) -> Values:
    rates: Mapping[str, float] = run.found["rows_per_s"]
    rows = sum(proof["rows_out"] for proof in run.found["proofs"].values())
    return {f"throughput: µs a row, {keys} keys": 1e6 / rate for keys, rate in rates.items()} | {
        "throughput: CPU s a million rows": run.cpu_s / rows * 1e6
    }


def _part(experiment: str, part: str) -> tuple[str, ...]:
    return "-m", "peregrine.bench.spark", "--quick", "--part", experiment, part


CASES: Mapping[str, Case] = {
    "core": Case(("-m", "peregrine.bench"), core),
    "steady": Case(_part("steady", "ours"), lambda run: steady("steady", run)),
    "continuous": Case(_part("continuous", "steady continuous"), lambda run: steady("continuous", run)),
    "throughput": Case(_part("throughput", "ours"), throughput),
}


def compare(pairs: Sequence[tuple[Values, Values]]) -> list[Compared]:
    """Of what both have; (base, here) in each pair."""
    names = [name for name in pairs[0][0] if all(name in one and name in other for one, other in pairs)]
    return [_compared(name, [(base[name], here[name]) for base, here in pairs]) for name in names]


def _compared(what: str, pairs: Sequence[tuple[float, float]]) -> Compared:
    logs = [math.log(here / base) for base, here in pairs]
    middle = mean(logs)
    if len(logs) == 1:
        low, high = -math.inf, math.inf
    else:
        half = T_975[min(len(logs) - 2, len(T_975) - 1)] * stdev(logs) / math.sqrt(len(logs))
        low, high = middle - half, middle + half
    base, here = (median(each) for each in zip(*pairs, strict=True))
    return Compared(what, base, here, math.exp(middle), math.exp(low), math.exp(high))


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="peregrine.bench.compare", description=__doc__)
    parser.add_argument("--base", required=True, metavar="REV", help="the commit that this tree is held against")
    parser.add_argument("--pairs", type=int, default=10, help="how many runs of each (default: 10)")
    parser.add_argument("--only", default=",".join(CASES), help=f"of {', '.join(CASES)}")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write every value to a file, after each pair")
    given = parser.parse_args(arguments)
    if unknown := [name for name in given.only.split(",") if name not in CASES]:
        parser.error(f"no case {unknown[0]!r}; there are {', '.join(CASES)}")
    ctypes.CDLL(None).prctl(PR_SET_CHILD_SUBREAPER, 1)  # so that the time of Spark's JVM is counted, too
    console = Console(stderr=True)
    try:
        with worktree(given.base) as base:
            for name in given.only.split(","):
                pairs: list[tuple[Values, Values]] = []
                for i in range(given.pairs):
                    console.print(f"{name}: pair {i + 1} of {given.pairs}", style="dim", highlight=False)
                    trees = (base, Path.cwd()) if i % 2 else (Path.cwd(), base)
                    ran = {tree: CASES[name].values(run(CASES[name].words, tree)) for tree in trees}
                    pairs.append((ran[base], ran[Path.cwd()]))
                    if given.json is not None:
                        _keep(given.json, name, pairs)
                Console().print(table(compare(pairs)))
    except PeregrineError as error:
        console.print(f"peregrine: {error}", style="bold red", highlight=False)
        return 2
    except KeyboardInterrupt:
        return 130
    return 0


@contextmanager
def worktree(rev: str) -> Iterator[Path]:
    """The sources of a commit, beside this tree, as long as they are needed."""
    with tempfile.TemporaryDirectory(prefix="peregrine-base-") as directory:
        path = Path(directory, "tree")
        made = subprocess.run(
            ["git", "worktree", "add", "--detach", str(path), rev], capture_output=True, text=True, check=False
        )
        if made.returncode:
            raise ConfigurationError(f"no tree of {rev!r}: {made.stderr.strip()}", "name a commit of this repository")
        try:
            yield path
        finally:
            subprocess.run(["git", "worktree", "remove", "--force", str(path)], capture_output=True, check=False)


def run(words: Sequence[str], tree: Path) -> Run:
    """One process of the tree's own sources, and what it leaves behind: both are waited for."""
    with tempfile.TemporaryDirectory(prefix="peregrine-compare-") as directory:
        answer, log = Path(directory, "answer.json"), Path(directory, "log")
        environment = {**os.environ, "PYTHONPATH": str(tree / "src"), "TMPDIR": directory}
        to_file = "--part" in words
        before_s = _cpu_s()
        with open(log, "wb") as said, open(answer, "wb") as told:
            process = subprocess.Popen(
                [sys.executable, *words, *([str(answer)] if to_file else [])],
                cwd=tree,
                env=environment,
                stdin=subprocess.PIPE,  # a part ends when this end closes
                stdout=said if to_file else told,
                stderr=said,
            )
            code = process.wait()
            assert process.stdin is not None
            process.stdin.close()
        _reap()
        if code:
            last = "\n".join(log.read_text(errors="replace").splitlines()[-15:])
            raise PeregrineError(f"{' '.join(words)} in {tree} ended with {code}:\n{last}", "run it there alone")
        found: Found = json.loads(answer.read_text())
        if to_file and (wrong := broken(found)):
            raise PeregrineError(f"{' '.join(words)} in {tree}: {'; '.join(wrong)}", "its figures count for nothing")
        return Run(found, _cpu_s() - before_s)


def _reap() -> None:
    """What the process had started, and did not wait for, is ours now."""
    deadline_s = time.monotonic() + LEFT_S
    while time.monotonic() < deadline_s:
        try:
            if os.waitpid(-1, os.WNOHANG) == (0, 0):
                time.sleep(0.05)
        except ChildProcessError:
            return
    raise PeregrineError("a process of the run has not ended", "end it: its work would count for the next run")


def _cpu_s() -> float:
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def _keep(file: Path, name: str, pairs: Sequence[tuple[Values, Values]]) -> None:
    file.parent.mkdir(parents=True, exist_ok=True)
    kept = json.loads(file.read_text()) if file.exists() else {}
    kept[name] = [{"base": base, "here": here} for base, here in pairs]
    file.write_text(json.dumps(kept, indent=2) + "\n")


def table(compared: Sequence[Compared]) -> Table:
    shown = Table(box=None, padding=(0, 2, 0, 0), header_style="dim", pad_edge=False)
    for i, column in enumerate(("median of", "base", "here", "ratio", "95 % interval")):
        shown.add_column(column, justify="right" if i else "left", no_wrap=True)
    for each in compared:
        interval = f"{each.low:.3f} to {each.high:.3f}"
        shown.add_row(each.what, f"{each.base:,.3f}", f"{each.here:,.3f}", f"{each.ratio:.3f}", interval)
    return shown


if __name__ == "__main__":
    sys.exit(main())
