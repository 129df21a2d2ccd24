"""One Spark session for all hosts of a process.

Starting a query stalls the others of a session for seconds, and a session of its own for each host costs memory and
latency: start hosts once, in one session, and keep them.
"""

# pyspark is optional, also where types are checked.
# mypy: disable-error-code="import-not-found"

import atexit
import os
import shutil
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from peregrine.errors import ConfigurationError
from peregrine.spark.files import without_forks
from peregrine.spark.java import find_java
from peregrine.spark.settings import tune

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

__all__ = ["clear_up", "find_java", "open_session"]

TASK_FAILURES = 4
_SHARED_MEMORY = Path("/dev/shm")
_PREFIX = "peregrine-spark-"


def open_session(
    name: str = "peregrine",
    cores: int = 2,
    local_dir: Path | None = None,
    more: Mapping[str, str] | None = None,
    log_file: Path | None = None,
    master: str | None = None,
) -> "SparkSession":
    """A session on this machine or at a `master`, or the one that this process already has. The settings bind the
    driver to loopback, so the executors of a `master` must be on this machine, too.

    What Spark and its workers print goes to `log_file`, if there is one, from here on.
    """
    os.environ["JAVA_HOME"] = str(find_java())
    # Workers must be this Python, with the packages that it has.
    os.environ["PYSPARK_PYTHON"] = os.environ["PYSPARK_DRIVER_PYTHON"] = sys.executable
    try:
        from pyspark.sql import SparkSession
    except ImportError as error:
        raise ConfigurationError("pyspark is not installed", "pip install 'peregrine-spark[spark]'") from error
    # A task is tried again when its worker dies; without the second number one death fails the query.
    builder = tune(SparkSession.builder.master(master or f"local[{cores},{TASK_FAILURES}]").appName(name))
    if local_dir is None and os.access(_SHARED_MEMORY, os.W_OK):
        local_dir = _own_directory(_SHARED_MEMORY)
    if local_dir is not None:
        builder = builder.config("spark.local.dir", str(local_dir))
    for setting, value in (more or {}).items():
        builder = builder.config(setting, value)
    with _stderr_to(log_file):
        spark = builder.getOrCreate()
    spark.sparkContext.setLogLevel("ERROR")
    if master is None or master.startswith("local["):
        without_forks(spark)
    return spark


def _own_directory(parent: Path) -> Path:
    """For what Spark writes aside. A process that was killed leaves it behind: the next one clears it away."""
    clear_up(parent)
    own = parent / f"{_PREFIX}{os.getpid()}"
    if not own.exists():
        own.mkdir(mode=0o700)
        atexit.register(shutil.rmtree, own, ignore_errors=True)
    return own


def clear_up(parent: Path = _SHARED_MEMORY) -> None:
    """Remove what processes have left behind that are gone."""
    for left in parent.glob(f"{_PREFIX}*"):
        if not Path(f"/proc/{left.name.removeprefix(_PREFIX)}").exists():
            shutil.rmtree(left, ignore_errors=True)


@contextmanager
def _stderr_to(file: Path | None) -> Iterator[None]:
    """Spark's process has the standard error that this one has while it starts it."""
    if file is None:
        yield
        return
    sys.stderr.flush()
    ours = os.dup(2)
    with open(file, "ab") as log:
        os.dup2(log.fileno(), 2)
    try:
        yield
    finally:
        sys.stderr.flush()
        os.dup2(ours, 2)
        os.close(ours)
