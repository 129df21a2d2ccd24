"""One Spark session for all hosts of a process, and the Java that it needs.

Starting a query stalls the others of a session for seconds, and a session of its own for each host costs memory and
latency: start hosts once, in one session, and keep them.
"""

# pyspark is optional, also where types are checked.
# mypy: disable-error-code="import-not-found"

import os
import shutil
import subprocess
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from peregrine.errors import ConfigurationError
from peregrine.spark.settings import tune

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

JAVA_VERSIONS = (17, 21)
_REMEDY = "install Java 17 or 21 (on Debian and Ubuntu the package openjdk-17-jre-headless), or set JAVA_HOME to one"
_SHARED_MEMORY = Path("/dev/shm")


def open_session(
    name: str = "peregrine", cores: int = 2, local_dir: Path | None = None, more: Mapping[str, str] | None = None
) -> "SparkSession":
    """A session on this machine, or the one that this process already has."""
    os.environ["JAVA_HOME"] = str(find_java())
    # Workers must be this Python, with the packages that it has.
    os.environ["PYSPARK_PYTHON"] = os.environ["PYSPARK_DRIVER_PYTHON"] = sys.executable
    try:
        from pyspark.sql import SparkSession
    except ImportError as error:
        raise ConfigurationError("pyspark is not installed", "pip install 'peregrine-spark[spark]'") from error
    builder = tune(SparkSession.builder.master(f"local[{cores}]").appName(name))
    if local_dir is None and os.access(_SHARED_MEMORY, os.W_OK):
        local_dir = _SHARED_MEMORY
    if local_dir is not None:
        builder = builder.config("spark.local.dir", str(local_dir))
    for setting, value in (more or {}).items():
        builder = builder.config(setting, value)
    spark = builder.getOrCreate()
    spark.sparkContext.setLogLevel("ERROR")
    return spark


def find_java() -> Path:
    """The home of a Java that runs Spark: JAVA_HOME, else the `java` of the PATH, else one below /usr/lib/jvm."""
    seen = []
    for home in dict.fromkeys(_candidates()):
        version = _version(home)
        if version in JAVA_VERSIONS:
            return home
        seen.append(f"{home} ({f'version {version}' if version else 'does not start'})")
    raise ConfigurationError(f"no Java that runs Spark; found {', '.join(seen) or 'none'}", _REMEDY)


def _candidates() -> Iterator[Path]:
    if given := os.environ.get("JAVA_HOME"):
        yield Path(given)
    if found := shutil.which("java"):
        yield Path(found).resolve().parent.parent
    yield from sorted(java.parent.parent.resolve() for java in Path("/usr/lib/jvm").glob("*/bin/java"))


def _version(home: Path) -> int | None:
    """17 for `openjdk version "17.0.15"`; None for what does not start."""
    try:
        told = subprocess.run([home / "bin" / "java", "-version"], capture_output=True, text=True, timeout=30).stderr
    except (OSError, subprocess.TimeoutExpired):
        return None
    quoted = told.split('"')
    return int(quoted[1].split(".")[0]) if len(quoted) > 1 and quoted[1].split(".")[0].isdigit() else None
