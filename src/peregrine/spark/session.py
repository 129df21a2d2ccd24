"""One Spark session for all hosts of a process.

Starting a query stalls the others of a session for seconds, and a session of its own for each host costs memory and
latency: start hosts once, in one session, and keep them.
"""

# pyspark is optional, also where types are checked.
# mypy: disable-error-code="import-not-found"

import atexit
import os
import sys
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from peregrine.errors import ConfigurationError
from peregrine.net import scratch
from peregrine.net.scratch import Scratch
from peregrine.spark.files import without_forks
from peregrine.spark.java import find_java
from peregrine.spark.quiet import quieten
from peregrine.spark.settings import tune

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

__all__ = ["clear_up", "find_java", "open_session"]

TASK_FAILURES = 4
_SHARED_MEMORY = Path("/dev/shm")
_PREFIX = "peregrine-spark-"
_DRIVER, _EXECUTOR = "spark.driver.extraJavaOptions", "spark.executor.extraJavaOptions"
_NO_COUNTERS = "-XX:-UsePerfData"  # a file in /tmp, wherever temporary files go
END_S = 10.0
MOST_SOCKET_DIRECTORY = 60  # bytes: what Spark calls its sockets is 43 more, and some systems take 104
_scratch: Scratch | None = None


def open_session(
    name: str = "peregrine",
    cores: int = 2,
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
    for setting, value in (more or {}).items():
        builder = builder.config(setting, value)
    with _stderr_to(log_file):
        spark = put_aside(builder, master).getOrCreate()
    quieten(spark)
    spark.sparkContext.setLogLevel("ERROR")
    if master is None or master.startswith("local["):
        without_forks(spark)
    return spark


def put_aside(
    builder: "SparkSession.Builder", master: str | None = None, parent: Path | None = None
) -> "SparkSession.Builder":
    """What Spark and its libraries put aside goes to a directory that is removed when this process ends."""
    from pyspark import SparkContext

    global _scratch
    if SparkContext._gateway is None:
        if _scratch is None:
            atexit.register(_end)
        else:
            _scratch.remove()  # of a Spark that was killed
        _scratch = Scratch(_PREFIX, parent or _parent())
    if _scratch is None:
        return builder  # somebody else has started Spark in this process, and told it
    java = f"-Djava.io.tmpdir={_scratch.path} {_NO_COUNTERS}"
    # Of the Java that only finds out how to start the other.
    os.environ.setdefault("SPARK_LAUNCHER_OPTS", f"{_NO_COUNTERS} -XX:TieredStopAtLevel=1 -XX:+UseSerialGC")
    builder = builder.config("spark.local.dir", str(_scratch.path))
    if len(os.fsencode(_scratch.path)) > MOST_SOCKET_DIRECTORY:
        builder = builder.config("spark.python.unix.domain.socket.enabled", "false")
    options = [_DRIVER]
    if master is not None and master.startswith("local-cluster"):
        options.append(_EXECUTOR)
    for option in options:
        builder = builder.config(option, f"{builder._options.get(option, '')} {java}".strip())
    return builder


def clear_up() -> None:
    """Remove what processes have left behind that were killed."""
    scratch.clear_up(_PREFIX, _parent())


def _parent() -> Path:
    """In memory, unless whoever runs this says where temporary files go."""
    if "TMPDIR" in os.environ or not os.access(_SHARED_MEMORY, os.W_OK):
        return Path(tempfile.gettempdir())
    # Native libraries are unpacked there, and run: in a container they may not.
    runs = not os.statvfs(_SHARED_MEMORY).f_flag & os.ST_NOEXEC
    return _SHARED_MEMORY if runs else Path(tempfile.gettempdir())


def _end() -> None:
    """Spark's process ends a moment after us if it is let: it must not write where nobody clears up any more."""
    from peregrine.spark.query import forget_session

    try:
        forget_session(END_S)
    finally:
        if _scratch is not None:
            _scratch.remove()


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
