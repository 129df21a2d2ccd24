"""What was measured of a machine is in the user's state directory, whoever deploys what from where."""

from pathlib import Path

import pytest

from peregrine.control import calibrated
from peregrine.errors import ConfigurationError
from peregrine.plan.calibration import Costs


def test_it_is_where_the_xdg_specification_says(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    usual = tmp_path / "home/.local/state/peregrine/calibration.json"
    for given, file in (
        (str(tmp_path / "state"), tmp_path / "state/peregrine/calibration.json"),
        ("", usual),
        ("relative/paths/are/to/be/ignored", usual),
    ):
        monkeypatch.setenv("XDG_STATE_HOME", given)
        assert calibrated.usual_file() == file
    monkeypatch.delenv("XDG_STATE_HOME")
    assert calibrated.usual_file() == usual


def test_what_was_written_is_read_and_nothing_else_is_left(tmp_path: Path) -> None:
    file = tmp_path / "peregrine" / "calibration.json"
    assert calibrated.read(file) is None
    for costs in (Costs(round_ms=123.0), Costs(rows_per_s=456.0)):
        calibrated.write(file, costs)
        assert calibrated.read(file) == costs
    assert list(file.parent.iterdir()) == [file]


def test_a_broken_file_is_not_taken_for_none(tmp_path: Path) -> None:
    (tmp_path / "calibration.json").write_text("{")
    with pytest.raises(ConfigurationError):
        calibrated.read(tmp_path / "calibration.json")
