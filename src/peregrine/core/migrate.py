"""Migrate(K, S, D): the one thing that every reconfiguration is made of (Falcon III-D).

A `Migration` is everything that a router must know to play its role in one; it travels whole inside of every marker,
so that no router has to be told anything beforehand and a router that was down misses nothing.
"""

from dataclasses import dataclass
from enum import StrEnum

from peregrine.core.keyspace import KeySet
from peregrine.types import MigrationId, OpId, PlaceId, SiteId, site_of


class Role(StrEnum):
    """Who a router is to a migration. One router may play several roles (hosts of one site, for instance)."""

    ANCHOR = "anchor"  # decides the order of the rows of K, and therefore when things happen
    SOURCE = "source"  # has the old place S
    TARGET = "target"  # has the new place D
    GATE = "gate"  # is where the paths of S and D towards their consumers meet
    STORE = "store"  # keeps donated state until it is collected (`indirect` only)


@dataclass(frozen=True, slots=True)
class Migration:
    id: MigrationId
    op: OpId
    keys: KeySet
    source: PlaceId
    target: PlaceId
    anchor: SiteId
    mechanism: str
    gate: SiteId  # where the paths of S and D meet
    store: SiteId
    caught_up_lag_rows: int = 0
    shed_below: int = 0  # `shed` only: keys with fewer applied rows than this stay behind

    def site(self, role: Role) -> SiteId:
        match role:
            case Role.ANCHOR:
                return self.anchor
            case Role.SOURCE:
                return site_of(self.source)
            case Role.TARGET:
                return site_of(self.target)
            case Role.GATE:
                return self.gate
            case Role.STORE:
                return self.store

    def __str__(self) -> str:
        return f"{self.id}: {self.mechanism} {self.op} {{{self.keys.describe()}}} {self.source} -> {self.target}"
