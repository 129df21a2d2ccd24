"""The Java that Spark needs: found, or installed where we may.

`python -m peregrine.spark.java` prints the home of a Java that runs Spark. If there is none, root installs one first
where apt-get is; anybody else is told what to do, and it ends with 1.
"""

import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

from peregrine.errors import ConfigurationError

VERSIONS = (17, 21)
PACKAGES = tuple(f"openjdk-{version}-jre-headless" for version in VERSIONS)  # of Debian and Ubuntu
JVMS = Path("/usr/lib/jvm")
START_S = 30
_REMEDY = (
    f"install Java {VERSIONS[0]} or {VERSIONS[1]} (on Debian and Ubuntu the package {PACKAGES[0]} or {PACKAGES[1]}), "
    "or set JAVA_HOME to one"
)


def find_java() -> Path:
    """The home of a Java that runs Spark: JAVA_HOME, else the `java` of the PATH, else one below /usr/lib/jvm."""
    seen = []
    for home in dict.fromkeys(_candidates()):
        version = _version(home)
        if version in VERSIONS:
            return home
        seen.append(f"{home} ({f'version {version}' if version else 'does not start'})")
    raise ConfigurationError(f"no Java that runs Spark; found {', '.join(seen) or 'none'}", _REMEDY)


def _candidates() -> Iterator[Path]:
    if given := os.environ.get("JAVA_HOME"):
        yield Path(given)
    if found := shutil.which("java"):
        yield Path(found).resolve().parent.parent
    yield from sorted(java.parent.parent.resolve() for java in JVMS.glob("*/bin/java"))


def _version(home: Path) -> int | None:
    """17 for `openjdk version "17.0.15"`; None for what does not start."""
    try:
        command = [str(home / "bin" / "java"), "-XX:-UsePerfData", "-version"]
        told = subprocess.run(command, capture_output=True, text=True, timeout=START_S).stderr
    except (OSError, subprocess.TimeoutExpired):
        return None
    quoted = told.split('"')
    return int(quoted[1].split(".")[0]) if len(quoted) > 1 and quoted[1].split(".")[0].isdigit() else None


def find_or_install() -> Path:
    try:
        return find_java()
    except ConfigurationError as error:
        apt_get = shutil.which("apt-get")
        if os.geteuid() != 0 or apt_get is None:
            raise
        print(f"{error.what}: installing one with apt-get, which may take minutes", file=sys.stderr, flush=True)
        _install(apt_get)
        return find_java()


def _install(apt_get: str) -> None:
    environment = {**os.environ, "DEBIAN_FRONTEND": "noninteractive"}
    attempts = [[apt_get, "-qq", "update"]]
    attempts += [[apt_get, "-qq", "install", "--yes", "--no-install-recommends", package] for package in PACKAGES]
    said = ""
    for command in attempts:
        done = subprocess.run(
            command, env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, errors="replace"
        )
        said += done.stdout
        if done.returncode == 0 and "install" in command:
            return
    raise ConfigurationError(f"apt-get could not install Java:\n{said.strip()[-1000:]}", _REMEDY)


def main() -> int:
    try:
        print(find_or_install())
    except ConfigurationError as error:
        print(error, file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
