"""Bytewax with one worker (two share an interpreter, and are slower) and no recovery store, which favours it."""

import json
import time
from pathlib import Path

from peregrine.bench.engine.definition import Setting
from peregrine.bench.peers import catalogue, results
from peregrine.bench.peers.catalogue import SATURATED
from peregrine.bench.peers.child import PROGRAMS, Child
from peregrine.bench.peers.seen import Facts, Seen

KEYS = 10
ROWS = 2_000_000  # at saturation
PATIENCE_S = 120.0
WARM_SHARE = 0.25  # of what came out at saturation


def run(way: str, setting: Setting, directory: Path) -> Seen:
    """A given number of rows: it ends by itself."""
    folder = directory / "results"
    folder.mkdir()
    rows_per_s = 0 if way == SATURATED else setting.rows_per_s
    rows = ROWS if way == SATURATED else int(rows_per_s * (setting.warm_s + setting.calm_s))
    began_ns = time.time_ns()
    told = {"keys": KEYS, "rows": rows, "rows_per_s": rows_per_s, "began_ns": began_ns, "results": str(folder)}
    words: list[str | Path] = [catalogue.python_of("bytewax"), PROGRAMS / "bytewax_job.py", json.dumps(told)]
    program = Child(words, directory / "bytewax", answers=False)
    try:
        program.wait(PATIENCE_S)
    finally:
        program.end()
    found = results.read(folder)
    proof = found.prove(KEYS)
    emitted_ms = found.records["emitted_ns"] / 1e6
    if way == SATURATED:
        from_ms, to_ms = float(emitted_ms[int(len(emitted_ms) * WARM_SHARE)]), float(emitted_ms[-1])
        return Seen(Facts(proof, from_ms, to_ms, max_rows_per_s=found.rows_per_s(from_ms, to_ms)))
    calm_ms = began_ns / 1e6 + setting.warm_s * 1000
    return Seen(Facts(proof, calm_ms, float(emitted_ms[-1])), found.outputs(began_ns, rows_per_s))
