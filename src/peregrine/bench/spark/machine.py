"""What the figures were measured on."""

import os
import platform
import subprocess
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

from peregrine.errors import ConfigurationError


def describe() -> dict[str, Any]:
    return {
        "cpu": _cpu(),
        "cores": len(os.sched_getaffinity(0)),
        "memory_gb": round(os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / (1 << 30), 1),
        "system": f"{platform.system()} {platform.release()}",
        "python": platform.python_version(),
        "java": _java(),
        **{package: _version(package) for package in ("pyspark", "pyarrow", "numpy", "pandas")},
        "load_before": round(os.getloadavg()[0], 2),  # of other work: figures of a busy machine rank nothing
    }


def line(machine: dict[str, Any]) -> str:
    return (
        f"{machine['cores']} cores ({machine['cpu']}), {machine['memory_gb']:g} GB, {machine['system']}, "
        f"Python {machine['python']}, Java {machine['java']}, PySpark {machine['pyspark']}, "
        f"load before {machine['load_before']:g}"
    )


def _cpu() -> str:
    for each in Path("/proc/cpuinfo").read_text().splitlines():
        if each.startswith("model name"):
            return each.partition(":")[2].strip()
    return platform.machine()


def _version(package: str) -> str:
    try:
        return version(package)
    except PackageNotFoundError:
        return "not installed"


def _java() -> str:
    from peregrine.spark.session import find_java

    try:
        told = subprocess.run([find_java() / "bin" / "java", "-version"], capture_output=True, text=True, timeout=30)
    except (ConfigurationError, OSError, subprocess.TimeoutExpired):
        return "not found"
    quoted = told.stderr.split('"')
    return quoted[1] if len(quoted) > 1 else "unknown"
