"""One experiment: parts that run one after the other, each in a process of its own, and the figures of what they found.

A Spark session cannot change its static settings and what ran before leaves it warm: so nothing is shared but the
machine. A part returns plain numbers; `figures` is pure and works on what the parts returned.
"""

import json
import os
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from peregrine.bench.spark.figures import Figure, Outcome
from peregrine.proof import Proof

Found = Mapping[str, Any]  # what a part returns: numbers, and under "proofs" what was proved of its runs
PART_S = 1800.0
END_S = 30.0
LAST_LINES = 15


@dataclass(frozen=True)
class Scale:
    """How much of everything: the whole, or enough to see that it works."""

    quick: bool = False
    day: bool = False  # of memory: all rows of a day

    def pick(self, whole: float, quick: float) -> float:
        return quick if self.quick else whole


@dataclass(frozen=True)
class Experiment:
    name: str
    title: str
    parts: Mapping[str, Callable[[Scale], Found]]
    figures: Callable[[Mapping[str, Found]], list[Figure]]


def run(experiment: Experiment, scale: Scale, say: Callable[[str], None]) -> Outcome:
    found: dict[str, Found] = {}
    wrong: list[str] = []
    began = time.monotonic()
    for part in experiment.parts:
        say(f"{experiment.name}: {part}")
        try:
            found[part] = _in_a_process(experiment.name, part, scale)
            wrong += [f"{part}: {each}" for each in broken(found[part])]
        except PartFailed as error:
            wrong.append(f"{part}: {error}")
    figures = experiment.figures(found) if len(found) == len(experiment.parts) else []
    return Outcome(experiment.name, experiment.title, tuple(figures), tuple(wrong), found, time.monotonic() - began)


class PartFailed(Exception):
    """A part's process ended without an answer; the text is the end of what it said."""


def proved(proof: Proof) -> dict[str, Any]:
    """A proof as a part returns it."""
    return {
        "rows_in": proof.rows_in,
        "rows_out": proof.rows_out,
        "lost": proof.lost,
        "repeated": proof.repeated,
        "out_of_order": proof.out_of_order,
        "states": proof.states,
        "states_that_differ": len(proof.states_that_differ),
        "violations": list(proof.violations),
    }


def broken(found: Found) -> list[str]:
    """Every run that claims a figure has a proof, and it holds. One that cannot run here claims none."""
    if "skipped" in found:
        return []
    proofs: Mapping[str, Mapping[str, Any]] = found.get("proofs", {})
    bad = ("lost", "repeated", "out_of_order", "states_that_differ", "violations")
    wrong = [
        f"{run}: {', '.join(f'{name} {proof[name]}' for name in bad if proof[name])}"
        for run, proof in proofs.items()
        if any(proof[name] for name in bad)
    ]
    wrong += [f"{run}: nothing came out" for run, proof in proofs.items() if not proof["rows_out"]]
    return wrong if proofs else ["nothing was proved"]


def _in_a_process(experiment: str, part: str, scale: Scale) -> Found:
    with tempfile.TemporaryDirectory(prefix="peregrine-bench-") as directory:
        answer, log = Path(directory, "answer.json"), Path(directory, "log")
        words = [sys.executable, "-m", "peregrine.bench.spark", "--part", experiment, part, str(answer)]
        words += [f"--{name}" for name in ("quick", "day") if getattr(scale, name)]
        with open(log, "wb") as said:
            environment = {**os.environ, "TMPDIR": directory}  # whatever a part leaves behind goes with it
            process = subprocess.Popen(
                words, stdin=subprocess.PIPE, stdout=said, stderr=subprocess.STDOUT, env=environment
            )
            try:
                code = process.wait(PART_S)
            except subprocess.TimeoutExpired as error:
                raise PartFailed(f"it takes longer than {PART_S:g} s") from error
            finally:
                assert process.stdin is not None
                process.stdin.close()  # the part ends with it, and everything that the part has started
                _reap(process)
        if code != 0 or not answer.exists():
            raise PartFailed("\n".join([f"exit code {code}", *_last_lines(log)]))
        found: Found = json.loads(answer.read_text())
        return found


def _reap(process: "subprocess.Popen[bytes]") -> None:
    try:
        process.wait(END_S)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()


def _last_lines(log: Path) -> list[str]:
    return log.read_text(errors="replace").splitlines()[-LAST_LINES:]


def be_a_part(experiment: Experiment, part: str, scale: Scale, answer: Path) -> None:
    """In the part's own process: run it and write what it found."""
    threading.Thread(target=_end_with_the_parent, daemon=True).start()
    found = experiment.parts[part](scale)
    aside = answer.with_suffix(".new")
    aside.write_text(json.dumps(found))
    aside.rename(answer)


def _end_with_the_parent() -> None:
    while os.read(0, 4096):
        pass
    os._exit(1)  # routers and Spark end when their pipes from this process close
