"""What a router process is told when it starts: one JSON file, read whole, each mistake with its place.

Its directory belongs to this site with these operators and this topology; with others its journal would be stepped
through to a different state, so a router refuses to open the directory of another configuration (`fingerprint`).
"""

import hashlib
import math
import os
import secrets
import stat
from collections.abc import Iterable
from pathlib import Path
from typing import Any, Self

import msgspec

from peregrine.core.intake import RouterConfig
from peregrine.core.operator import OpSpec
from peregrine.core.topology import Link, Topology
from peregrine.errors import ConfigurationError
from peregrine.log.record_log import Fsync
from peregrine.net.protocol import Neighbour
from peregrine.net.tls import TlsFiles, with_tls
from peregrine.plan.nearest import Position, Whereabouts
from peregrine.types import PlaceId, SiteId


class ServerSettings(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """What all processes with a listener are told."""

    # PEM files (net/tls.py): all three or none. Clients that are verified show a certificate that the CA has signed.
    tls_ca: str = ""
    tls_cert: str = ""
    tls_key: str = ""
    tls_verify_clients: bool = False

    def check_tls(self, who: str) -> None:
        given = [bool(path) for path in (self.tls_ca, self.tls_cert, self.tls_key)]
        if any(given) != all(given) or (self.tls_verify_clients and not all(given)):
            raise ConfigurationError(
                f"{who} has only some of what TLS needs", "give tls_ca, tls_cert and tls_key, or none"
            )

    @classmethod
    def load(cls, path: Path) -> Self:
        try:
            return msgspec.json.decode(path.read_bytes(), type=cls)
        except OSError as error:
            raise ConfigurationError(f"cannot read {path}: {error}", "give the path of a file with settings") from error
        except msgspec.DecodeError as error:
            raise ConfigurationError(
                f"{path}: {error}", f"correct the file; {cls.__name__} names its fields"
            ) from error

    def save(self, path: Path) -> None:
        path.write_bytes(msgspec.json.format(msgspec.json.encode(self)))

    @property
    def tls(self) -> TlsFiles | None:
        return TlsFiles(self.tls_ca, self.tls_cert, self.tls_key) if self.tls_ca else None

    def reach(self, address: str) -> str:
        """An address as a client on this machine uses it: with this process's idea of whom to trust."""
        if self.tls is None or not address:
            return address
        return with_tls(address, self.tls if self.tls_verify_clients else TlsFiles(self.tls_ca))


class RouterSettings(ServerSettings, frozen=True):
    site: SiteId
    root: SiteId
    parents: dict[SiteId, SiteId]  # of the tree that it begins in; a site that joins later is not in it
    hosts: dict[SiteId, tuple[str, ...]]
    operators: tuple[OpSpec, ...]
    directory: str
    token_file: str
    port: int = 0  # 0: any that is free
    local_socket: bool = True  # beside Flight, for callers of this machine (net/local_socket.py); never with TLS
    neighbours: dict[SiteId, Neighbour] = {}  # those that are known already; others come with the action
    fsync: Fsync = Fsync.GROUPED
    tick_ms: int = 100
    snapshot_mb: float = 64.0  # of journal, then the machine is written and the journal cut
    host_lag_rows: int = 100_000
    keep_journal: bool = False  # for an audit: what is cut off is kept beside it
    # Results and dead letters: at a snapshot older ones go, in whole files; what says less counts. None: they stay.
    results_keep_rows: int | None = None
    results_keep_mb: float | None = None
    # Chunks that nobody needs go after this time, which must be longer than any batch of a host (chunk_collector.py).
    chunk_grace_s: float = 600.0
    chunk_collect_s: float = 60.0
    # The guide that sends devices here (net/guide_server.py): its address, where this router is, how far it reaches.
    guide: str = ""
    position: Position | None = None
    reach_m: float | None = None  # None: everywhere

    def __post_init__(self) -> None:
        self.check_tls(f"router {self.site}")
        if bool(self.guide) != (self.position is not None) or (self.reach_m is not None and not self.guide):
            raise ConfigurationError(
                f"router {self.site} has only some of what a guide needs", "give guide and position, or none"
            )
        if self.position is not None:
            self.whereabouts("")

    @classmethod
    def of(
        cls,
        site: SiteId,
        topology: Topology,
        operators: Iterable[OpSpec],
        directory: Path,
        token_file: Path,
        **more: Any,
    ) -> "RouterSettings":
        parents = {child: parent for child in topology.sites if (parent := topology.parent(child)) is not None}
        hosts = {each: topology.site(each).hosts for each in topology.sites if topology.site(each).hosts}
        hosts |= more.pop("hosts", {})  # of a site that is not in the tree yet
        return cls(site, topology.root, parents, hosts, tuple(operators), str(directory), str(token_file), **more)

    def whereabouts(self, address: str) -> Whereabouts | None:
        """What a guide is told of this router; None if it has none."""
        if self.position is None:
            return None
        return Whereabouts(self.site, address, self.position, math.inf if self.reach_m is None else self.reach_m)

    @property
    def _begins_in_tree(self) -> bool:
        return self.site == self.root or self.site in self.parents

    def places(self) -> tuple[PlaceId, ...]:
        """Of this site, also of one that has not joined yet."""
        return Topology.tree(self.site, {}, {self.site: self.hosts.get(self.site, ())}).places(self.site)

    def router_config(self) -> RouterConfig:
        # How a link feels is no matter of the router: only who is above whom.
        link = Link(0.0, math.inf)
        parents = {child: (parent, link) for child, parent in self.parents.items()}
        hosts = {site: named for site, named in self.hosts.items() if site != self.site or self._begins_in_tree}
        topology = Topology.tree(self.root, parents, hosts)
        return RouterConfig(
            self.site, topology, {spec.op: spec for spec in self.operators}, host_lag_rows=self.host_lag_rows
        )

    def fingerprint(self) -> str:
        operators = sorted(self.operators, key=lambda spec: spec.op)
        parts = (self.site, self.root, self.parents, self.hosts, operators)
        return hashlib.sha256(msgspec.json.encode(parts, order="deterministic")).hexdigest()


def make_token(path: Path) -> str:
    """A new token in a file that only its owner can read."""
    token = secrets.token_hex(32)
    with os.fdopen(os.open(path, os.O_CREAT | os.O_WRONLY | os.O_TRUNC, 0o600), "w") as file:
        os.fchmod(file.fileno(), 0o600)
        file.write(token)
    return token


def read_token(path: Path) -> str:
    try:
        mode = stat.S_IMODE(path.stat().st_mode)
        token = path.read_text("ascii").strip()
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigurationError(f"cannot read the token file {path}: {error}", "make one with make_token") from error
    if mode & 0o077:
        raise ConfigurationError(f"{path} has mode {mode:o}: others can read the token", f"chmod 600 {path}")
    if not token:
        raise ConfigurationError(f"the token file {path} is empty", "make one with make_token")
    return token
