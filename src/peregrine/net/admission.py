"""What a router lets in: an event that names only what exists here.

Checked before an event is journaled, so that a mistake of a client reaches the client and leaves no trace. What it says
is judged against the configuration alone, and against how far logs have come.
"""

from peregrine.core.keyspace import KeySet
from peregrine.core.messages import (
    Abort,
    Begin,
    Committed,
    Event,
    FromHost,
    FromLink,
    KeepReplicas,
    Query,
    SetOwner,
    StopReplicas,
)
from peregrine.core.router import Router
from peregrine.errors import ConfigurationError, ProtocolError, UnknownName
from peregrine.types import OpId, PlaceId, SiteId


def admit(router: Router, event: Event) -> None:
    """Raises an error for what this router cannot make sense of."""
    match event:
        case FromLink(neighbour):
            known_neighbour(router, neighbour)
            router.intake.vet(event)
        case FromHost(place, op):
            _place_here(router, place)
            _operator(router, op, None)
        case Committed(place, offset):
            _place_here(router, place)
            end = router.ends.get(place, 0)
            if offset > end:
                raise ProtocolError(
                    f"{place} has committed {offset}, and its log at router {router.site} ends at {end}",
                    "router and host have directories of different runs: start both from the same ones",
                )
        case SetOwner(op, keys, place):
            _operator(router, op, keys)
            router.config.topology.place(place)
        case KeepReplicas(op, keys, source, target) | StopReplicas(op, keys, source, target):
            _operator(router, op, keys)
            _place_here(router, source)
            router.config.topology.place(target)
            if source == target:
                raise ConfigurationError(f"replicas of {op} at {target}, where its keys are", "name another place")
        case Begin(migration) | Abort(migration) | Query(migration):
            _operator(router, migration.op, migration.keys)
            for place in (migration.source, migration.target):
                router.config.topology.place(place)
            for site in (migration.anchor, migration.gate, migration.store):
                router.config.topology.site(site)
            if migration.mechanism not in router.config.mechanisms:
                raise UnknownName("mechanism", migration.mechanism, list(router.config.mechanisms))
        case _:
            pass  # devices may send what they like: what has no operator becomes a dead letter


def known_neighbour(router: Router, site: SiteId) -> None:
    topology = router.config.topology
    parent = topology.parent(router.site)
    known = [*topology.children(router.site), *([] if parent is None else [parent])]
    if site not in known:
        raise UnknownName(f"neighbour of {router.site}", site, [str(each) for each in known])


def _place_here(router: Router, place: PlaceId) -> None:
    places = router.config.topology.places(router.site)
    if place not in places:
        raise UnknownName(f"place of {router.site}", place, [str(each) for each in places])


def _operator(router: Router, op: OpId, keys: KeySet | None) -> None:
    spec = router.config.operators.get(op)
    if spec is None:
        raise UnknownName("operator", op, [str(each) for each in router.config.operators])
    if keys is not None and keys.groups != spec.groups:
        raise ConfigurationError(
            f"keys in {keys.groups} groups of {op}, which has {spec.groups}", f"say KeySet with {spec.groups} groups"
        )
