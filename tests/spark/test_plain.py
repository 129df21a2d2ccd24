"""The plain query computes what ours does, on the same rows; otherwise comparing the two would be comparing nothing.

It runs in a process of its own: its session has other settings than the one that these tests share.
"""

import json
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest

from peregrine import proof
from peregrine.workloads import road, tm

ROWS, KEYS = 2500, 7

RUN = """
import json, sys
from pathlib import Path
from peregrine.bench.spark.plain_runs import PlainRun

run = PlainRun(Path(sys.argv[1]), int(sys.argv[2]), rows=int(sys.argv[3]), batch_rows=1000)
run.restart()
run.finish()
run.stop()
lines = [[*line, seq, payload.decode()] for line, results in run.lines().items() for seq, payload in results]
print(json.dumps(lines))
"""


@pytest.mark.skipif(find_spec("google") is None, reason="protobuf is not installed: pip install --editable '.[spark]'")
def test_the_plain_query_has_the_results_of_our_operators_also_when_it_was_stopped_and_started(
    spark: Any, tmp_path: Path
) -> None:
    words = [sys.executable, "-c", RUN, str(tmp_path), str(KEYS), str(ROWS)]
    done = subprocess.run(words, capture_output=True, text=True, timeout=240)
    assert done.returncode == 0, done.stderr[-3000:]
    got: proof.Lines = {}
    for op, key, source, seq, payload in json.loads(done.stdout.splitlines()[-1]):
        got.setdefault((op, key, source), []).append((seq, payload.encode()))
    sent = [road.row(n, KEYS) for n in range(ROWS)]
    should, _ = proof.expected(tm.specs(roaming=False), tm.operators(road.LIMIT), {tm.MOV_AVG: sent})
    assert got == should
