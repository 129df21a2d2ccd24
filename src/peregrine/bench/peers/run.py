"""Cells of the experiment `peers`: each in a process of its own, one after the other, on the machine as it is left."""

import subprocess
import sys
import tempfile
import time
from pathlib import Path

import msgspec

from peregrine.bench.engine.definition import Cell
from peregrine.bench.engine.measured import Measured
from peregrine.bench.peers import catalogue
from peregrine.bench.peers.child import last_lines
from peregrine.bench.peers.seen import Seen
from peregrine.errors import PeregrineError

RUN_S = 600.0
END_S = 30.0


def find(group: list[Cell], first: bool) -> list[Measured]:
    """What is not built is skipped, and says so; what fails is said."""
    return [_cell(cell) for cell in group]


def _cell(cell: Cell) -> Measured:
    system, _ = catalogue.parts(cell.setting.mechanism)
    if why := catalogue.not_built(system):
        return Measured(cell, trouble=why, skipped=True)
    began_s = time.monotonic()
    try:
        with tempfile.TemporaryDirectory(prefix="peregrine-peers-") as directory:
            seen = _in_a_process(cell, Path(directory))
    except PeregrineError as error:
        return Measured(cell, trouble=error.what, failed=True)
    return seen.measured(cell, time.monotonic() - began_s)


def _in_a_process(cell: Cell, directory: Path) -> Seen:
    """The process ends with this one, whatever ends it: it listens to a pipe from here."""
    answer, log = directory / "answer.json", directory / "log"
    words = [sys.executable, "-m", "peregrine.bench.peers", msgspec.json.encode(cell.setting).decode(), str(answer)]
    with open(log, "wb") as said:
        process = subprocess.Popen(words, stdin=subprocess.PIPE, stdout=said, stderr=subprocess.STDOUT)
        try:
            code: int | None = process.wait(RUN_S)
        except subprocess.TimeoutExpired:
            code = None
        finally:
            assert process.stdin is not None
            process.stdin.close()
            try:
                process.wait(END_S)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
    if code != 0 or not answer.exists():
        why = f"it takes longer than {RUN_S:g} s" if code is None else f"exit code {code}"
        raise PeregrineError("\n".join([f"{cell.setting.mechanism}: {why}", *last_lines(log)]), "see what it said")
    return Seen.read(answer)
