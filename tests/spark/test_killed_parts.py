"""Who runs an application and kills a part of it reads one line about that, and nothing is left when it has ended."""

import os
import subprocess
import sys
from pathlib import Path

from kill_course import needs_spark
from killed_parts import ROWS

PROGRAM = Path(__file__).parent / "killed_parts.py"
OF_JAVA = "Picked up JAVA_TOOL_OPTIONS"  # these tests set it
PATIENCE_S = 400


def test_who_kills_a_part_reads_one_line_about_it_and_nothing_is_left(tmp_path: Path) -> None:
    needs_spark()
    given = {**os.environ, "TMPDIR": str(tmp_path)}
    done = subprocess.run([sys.executable, str(PROGRAM)], capture_output=True, text=True, env=given, timeout=PATIENCE_S)
    lines = [line for line in done.stderr.splitlines() if OF_JAVA not in line]
    assert lines == [
        "what='router cloud' status='failed' detail='the process has ended' next='it is started again'",
        "what='host' status='failed' detail=\"Spark's process has ended: signal 9\" next='it is started again'",
    ]
    assert (done.returncode, done.stdout) == (0, f"{3 * ROWS}\n")
    assert list(tmp_path.iterdir()) == []
