"""What a guide is told when it starts: one JSON file, or the options of `peregrine guide`."""

from peregrine.net.settings import ServerSettings
from peregrine.plan.nearest import Geometry


class GuideSettings(ServerSettings, frozen=True):
    token_file: str
    port: int = 0  # 0: any that is free
    geometry: Geometry = Geometry.EARTH
    margin_m: float = 50.0  # by how much another router must be nearer
    lease_s: float = 10.0  # a router that does not renew is gone after this time

    def __post_init__(self) -> None:
        self.check_tls("the guide")
