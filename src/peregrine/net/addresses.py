"""Where a router listens and where its neighbours do, kept in its directory so that a restart finds them again.

An address in the settings that has changed since counts more than what was told to the router before.
"""

import os
import socket
import threading
import time
from collections.abc import Mapping
from pathlib import Path

import msgspec

from peregrine.errors import ConfigurationError
from peregrine.net.protocol import Neighbour
from peregrine.types import SiteId

HERE = "127.0.0.1"  # routers listen on this machine only
PATIENCE_S = 1.0
Known = dict[SiteId, Neighbour]


class _Told(msgspec.Struct, frozen=True):
    settings: Known  # as they were when the others were told
    neighbours: Known


class Addresses:
    def __init__(self, directory: Path, settings: Mapping[SiteId, Neighbour]) -> None:
        self._path = directory / "neighbours"
        self._port_path = directory / "port"
        self._lock = threading.Lock()
        self._settings = dict(settings)
        self.neighbours: Known = dict(settings)
        told = _read(self._path)
        for neighbour, to in told.neighbours.items():
            if told.settings.get(neighbour) == settings.get(neighbour):
                self.neighbours[neighbour] = to

    def remember(self, neighbours: Mapping[SiteId, Neighbour]) -> None:
        with self._lock:
            known = {**self.neighbours, **neighbours}
            if known != self.neighbours:
                self.neighbours = known
                _write(self._path, msgspec.json.encode(_Told(self._settings, known)))

    def port(self, wanted: int) -> int:
        """The one that is wanted; else the one that it had, if nobody else has it now; else any (0)."""
        if wanted:
            check_free(wanted)
            return wanted
        try:
            before = int(self._port_path.read_text())
        except (OSError, ValueError):
            return 0
        return before if _gets_free(before) else 0

    def listens_at(self, port: int) -> None:
        _write(self._port_path, str(port).encode())


def check_free(port: int) -> None:
    """Asked first: gRPC shares a port with whoever allows it, and two listeners would take each other's calls."""
    if not _gets_free(port):
        raise ConfigurationError(
            f"port {port} is in use", "end the process that has it, choose another port, or 0 for any"
        )


def _read(path: Path) -> _Told:
    # It can be told again, so a file that cannot be read is as good as none.
    try:
        return msgspec.json.decode(path.read_bytes(), type=_Told)
    except (OSError, msgspec.DecodeError):
        return _Told({}, {})


def _write(path: Path, data: bytes) -> None:
    aside = path.with_suffix(".new")
    aside.write_bytes(data)
    os.replace(aside, path)


def _gets_free(port: int) -> bool:
    """A client that is knocking at a port may itself have it for a moment."""
    until_s = time.monotonic() + PATIENCE_S
    while not (free := _is_free(port)) and time.monotonic() < until_s:
        time.sleep(0.02)
    return free


def _is_free(port: int) -> bool:
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((HERE, port))
        except OSError:
            return False
        return True
