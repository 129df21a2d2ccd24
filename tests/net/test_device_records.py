"""A device that is killed at the worst moment comes back with what routers know of it."""

import shutil
from pathlib import Path

import pytest

from harness import EDGE1, EDGE2, OP
from peregrine.core.messages import Attach, FromSource, Single
from peregrine.net.device import Device
from peregrine.types import SourceId


def test_where_a_device_is_is_on_its_disk_before_a_router_hears_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Else it counts its moves anew, and what it says next passes for old."""

    class Heard:
        def offer(self, event: Single) -> int | None:
            if isinstance(event, Attach) and event.nth == 1 and not (tmp_path / "killed").exists():
                shutil.copytree(tmp_path / "device", tmp_path / "killed")
            return event.items[-1][0] if isinstance(event, FromSource) else None

        def close(self) -> None:
            pass

    monkeypatch.setattr(Device, "_connected", lambda self, site: Heard())
    addresses = {EDGE1: "", EDGE2: ""}
    with Device(SourceId("d"), addresses, EDGE1, "token", roaming=True, directory=tmp_path / "device") as device:
        device.send(OP, "k", b"1")
        assert device.flush()
        device.move(EDGE2)
        assert device.flush()
    with Device(SourceId("d"), addresses, EDGE1, "token", roaming=True, directory=tmp_path / "killed") as again:
        assert again.site == EDGE2
        again.move(EDGE1)
        assert again._source.moves == 2
