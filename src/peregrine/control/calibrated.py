"""What `peregrine calibrate` has measured of this machine: one file for all deployments of a user, in no deployment."""

import os
from pathlib import Path

from peregrine.net.chunk_files import write_aside
from peregrine.plan import calibration
from peregrine.plan.calibration import Costs


def usual_file() -> Path:
    """As the XDG base directory specification has it."""
    state = os.environ.get("XDG_STATE_HOME", "")
    home = Path(state) if Path(state).is_absolute() else Path.home() / ".local" / "state"
    return home / "peregrine" / "calibration.json"


def read(file: Path) -> Costs | None:
    """None: nobody has measured yet."""
    return calibration.from_json(file.read_bytes()) if file.exists() else None


def write(file: Path, costs: Costs) -> None:
    file.parent.mkdir(parents=True, exist_ok=True)
    write_aside(file, costs.to_json(), durable=False)
