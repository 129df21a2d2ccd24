"""A directory of another version is refused with what to do, or brought to this one, before anything in it is read."""

from pathlib import Path

import pytest

import kept_format
from peregrine.control.durable_manager import DurableManager
from peregrine.core.format_version import FORMAT
from peregrine.errors import StorageError
from peregrine.net import directory_format
from peregrine.net.device import Device
from peregrine.net.directory_format import FILE, check_format
from peregrine.net.store import Store


def open_router(directory: Path) -> None:
    Store(kept_format.settings_of(kept_format.CLOUD, directory.parent)).close()


def open_manager(directory: Path) -> None:
    DurableManager(directory, kept_format.make_manager).close()


def open_device(directory: Path) -> None:
    Device(kept_format.GATE, {}, kept_format.EDGE1, "token", directory=directory).close()


OPENERS = {"router": open_router, "manager": open_manager, "device": open_device}


@pytest.mark.parametrize("owner", OPENERS)
def test_routers_managers_and_devices_refuse_another_version(tmp_path: Path, owner: str) -> None:
    directory = tmp_path / "cloud"
    OPENERS[owner](directory)
    OPENERS[owner](directory)
    assert (directory / FILE).read_text() == f"{owner} {FORMAT}\n"
    for text, why in (
        (f"{owner} {FORMAT + 1}\n", f"is of format {FORMAT + 1}, and this version reads format {FORMAT}"),
        (f"{owner} 0\n", f"is of format 0, and this version reads format {FORMAT}"),
        (None, f"a version before format 1 wrote it, and this one reads format {FORMAT}"),
    ):
        (directory / FILE).write_text(text) if text else (directory / FILE).unlink()
        before = sorted((path, path.stat().st_mtime_ns) for path in directory.rglob("*"))
        with pytest.raises(StorageError) as refused:
            OPENERS[owner](directory)
        assert str(directory) in refused.value.what and why in refused.value.what
        assert "the version that wrote it" in refused.value.remedy
        assert before == sorted((path, path.stat().st_mtime_ns) for path in directory.rglob("*")), "it was touched"


def test_a_checkpoint_from_before_there_were_versions_is_refused(tmp_path: Path) -> None:
    (tmp_path / "offsets").mkdir()
    with pytest.raises(StorageError, match="a version before format 1 wrote it"):
        check_format(tmp_path, "host", has_begun="offsets")


def test_a_directory_of_somebody_else_is_refused(tmp_path: Path) -> None:
    open_manager(tmp_path / "cloud")
    with pytest.raises(StorageError, match="belongs to a manager, not to a router"):
        open_router(tmp_path / "cloud")


def test_whoever_died_before_anything_was_written_begins_again(tmp_path: Path) -> None:
    (tmp_path / "cloud").mkdir()
    open_router(tmp_path / "cloud")


def test_an_older_directory_is_brought_to_this_version_step_by_step(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    open_manager(tmp_path)
    done: list[str] = []

    def breaks_once(directory: Path, owner: str) -> None:
        done.append(f"{owner} from {FORMAT + 1}")
        if len(done) == 2:
            raise StorageError("the disk is gone", "get another")

    steps = {FORMAT: lambda directory, owner: done.append(f"{owner} from {FORMAT}"), FORMAT + 1: breaks_once}
    monkeypatch.setattr(directory_format, "FORMAT", FORMAT + 2)
    monkeypatch.setattr(directory_format, "MIGRATIONS", steps)
    with pytest.raises(StorageError, match="the disk is gone"):
        check_format(tmp_path, "manager")
    assert (tmp_path / FILE).read_text() == f"manager {FORMAT + 1}\n"
    check_format(tmp_path, "manager")
    check_format(tmp_path, "manager")
    assert done == [f"manager from {FORMAT}", f"manager from {FORMAT + 1}", f"manager from {FORMAT + 1}"]
    assert (tmp_path / FILE).read_text() == f"manager {FORMAT + 2}\n"
