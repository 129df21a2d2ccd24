"""`python -m peregrine.bench.peers.build`: install the peers, each into a virtual environment of its own.

PyFlink wants versions of pyarrow and pandas that Peregrine cannot have. A peer that cannot be installed here (no wheel
for this Python, say) is told and left out; the experiment then skips it.
"""

import shutil
import subprocess
import sys
import venv
from collections.abc import Callable, Sequence
from pathlib import Path

from peregrine.bench.peers import catalogue

WANTED = {"flink": "apache-flink>=2.3,<2.4", "bytewax": "bytewax>=0.21,<0.22"}
SIZES = {"flink": "about 850 MB", "bytewax": "about 130 MB"}
LAST_LINES = 5

Say = Callable[[str], None]


def build(home: Path, say: Say, wanted: dict[str, str] = WANTED, pip: Sequence[str] = ()) -> list[str]:
    """Returns those that there are. What is there already stays as it is."""
    built = []
    for name, package in wanted.items():
        folder = home / name
        if (folder / catalogue.STAMP).exists():
            say(f"{package} is in {folder}")
            built.append(name)
            continue
        say(f"installing {package} into {folder} ({SIZES[name]})")
        why = _install(folder, package, pip)
        if why:
            say(f"{package} cannot be installed here, so its runs will be skipped:\n{why}")
            shutil.rmtree(folder, ignore_errors=True)
            continue
        if name == "flink":
            _prepare_flink(folder)
        (folder / catalogue.STAMP).touch()  # last: an installation that broke off is done again
        built.append(name)
    return built


def _install(folder: Path, package: str, pip: Sequence[str]) -> str:
    """Why it did not work; empty if it did."""
    venv.create(folder, clear=True, with_pip=True)
    python = str(folder / "bin" / "python")
    words = [python, "-m", "pip", "install", "--disable-pip-version-check", "--quiet", *pip, package]
    done = subprocess.run(words, capture_output=True, text=True)
    said = [line for line in done.stderr.splitlines() if line.strip()][-LAST_LINES:]
    return "\n".join(f"  {line}" for line in said) or "  pip failed" if done.returncode else ""


def _prepare_flink(folder: Path) -> None:
    """On Java 17 thread mode runs no second job unless Flink itself has loaded what belongs to Python."""
    (package,) = folder.glob("lib/python3*/site-packages/pyflink")
    for jar in package.glob("opt/flink-python-*.jar"):
        shutil.copy(jar, package / "lib")


def main() -> int:
    home = catalogue.home()
    built = build(home, lambda text: print(text, flush=True))
    print(f"{', '.join(built) or 'nothing'} ready in {home}; compare with: peregrine bench run peers", flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
