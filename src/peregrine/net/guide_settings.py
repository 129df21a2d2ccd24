"""What a guide is told when it starts: one JSON file, or the options of `peregrine guide`."""

from pathlib import Path

import msgspec

from peregrine.net.settings import check_tls, load, save
from peregrine.net.tls import TlsFiles, with_tls
from peregrine.plan.nearest import Geometry


class GuideSettings(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    token_file: str
    port: int = 0  # 0: any that is free
    geometry: Geometry = Geometry.EARTH
    margin_m: float = 50.0  # by how much another router must be nearer
    lease_s: float = 10.0  # a router that does not renew is gone after this time
    tls_ca: str = ""  # PEM files (net/tls.py): all three or none
    tls_cert: str = ""
    tls_key: str = ""
    tls_verify_clients: bool = False

    def __post_init__(self) -> None:
        check_tls("the guide", (self.tls_ca, self.tls_cert, self.tls_key), self.tls_verify_clients)

    @classmethod
    def load(cls, path: Path) -> "GuideSettings":
        return load(path, cls)

    def save(self, path: Path) -> None:
        save(path, self)

    @property
    def tls(self) -> TlsFiles | None:
        return TlsFiles(self.tls_ca, self.tls_cert, self.tls_key) if self.tls_ca else None

    def reach(self, address: str) -> str:
        """An address as a client on this machine uses it."""
        if self.tls is None:
            return address
        return with_tls(address, self.tls if self.tls_verify_clients else TlsFiles(self.tls_ca))
