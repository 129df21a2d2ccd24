"""What a router lets in: an event that names only what exists here.

Checked before an event is journaled, so that a mistake of a client reaches the client and leaves no trace. What it says
is judged against the configuration, and against how far logs and links have come. Rows of devices wait while this
router or its parent is pressed.
"""

from peregrine.core.intake import RouterConfig
from peregrine.core.keyspace import KeySet
from peregrine.core.messages import (
    Abort,
    Ahead,
    Begin,
    Committed,
    Event,
    FromGroups,
    FromHost,
    FromLink,
    FromSource,
    KeepReplicas,
    Query,
    Rehome,
    SetOwner,
    StopReplicas,
)
from peregrine.core.router import Router
from peregrine.errors import Busy, ConfigurationError, ProtocolError, UnknownName
from peregrine.types import OpId, PlaceId, SiteId, site_of


def admit(router: Router, event: Event) -> None:
    """Raises an error for what this router cannot make sense of, or does not take now."""
    match event:
        case FromSource():
            if not router.accepts_rows():
                raise Busy(f"router {router.site} takes no rows now", "send the same again")
        case FromLink(neighbour, session=session):
            _in_session(router, neighbour, session)
            router.intake.vet(event)
        case FromHost(place, op) | FromGroups(place, op):
            _place_here(router, place)
            _operator(router, op, None)
        case Committed(place, offset) | Ahead(place, offset):
            _place_here(router, place)
            end = router.ends.get(place, 0)
            if offset > end:
                raise ProtocolError(
                    f"{place} has come to {offset}, and its log at router {router.site} ends at {end}",
                    "router and host have directories of different runs: start both from the same ones",
                )
        case SetOwner(op, keys, place):
            _operator(router, op, keys)
            _place_somewhere(router, place)
        case KeepReplicas(op, keys, source, target) | StopReplicas(op, keys, source, target):
            _operator(router, op, keys)
            _place_here(router, source)
            router.config.topology.place(target)
            if source == target:
                raise ConfigurationError(f"replicas of {op} at {target}, where its keys are", "name another place")
        case Begin(migration) | Abort(migration) | Query(migration):
            _operator(router, migration.op, migration.keys)
            for place in (migration.source, migration.target):
                _place_somewhere(router, place)
            for site in (migration.anchor, migration.gate, migration.store):
                _site_somewhere(router, site)
            if migration.mechanism not in router.config.mechanisms:
                raise UnknownName("mechanism", migration.mechanism, list(router.config.mechanisms))
        case Rehome(rehoming):
            if rehoming.site != router.site:
                raise ProtocolError(
                    f"router {router.site} was told the {rehoming}", "tell it to the router of that site"
                )
        case _:
            pass  # what a device has rows for is its own affair: what has no operator becomes a dead letter


def has_seq(router: Router, neighbour: SiteId, session: int) -> int:
    """What a neighbour is told that asks what this router has of it."""
    _in_session(router, neighbour, session)
    return router.acked_link(neighbour, session)


def _in_session(router: Router, site: SiteId, session: int) -> None:
    """Later sessions begin with a site that has just become a neighbour: nobody can be known beforehand."""
    known = neighbours_of(router.config)
    if site not in known and not session:
        raise UnknownName(f"neighbour of {router.site}", site, [str(each) for each in known])
    if router.intake.is_over(site, session):  # the machine would ignore it: it need not be journaled
        raise ProtocolError(f"{router.site} takes nothing more from {site} in session {session}", "it has moved")


def neighbours_of(config: RouterConfig) -> list[SiteId]:
    """In the tree that it begins in."""
    if config.site not in config.topology:
        return []
    parent = config.topology.parent(config.site)
    return [*config.topology.children(config.site), *([] if parent is None else [parent])]


def _site_somewhere(router: Router, site: SiteId) -> None:
    """One that has joined is known to those above it; all others leave it to the root to miss it."""
    if not router.ways.reaches(site):
        raise UnknownName("site", site, [str(each) for each in (router.site, *router.ways.below)])


def _place_somewhere(router: Router, place: PlaceId) -> None:
    if site_of(place) in router.config.topology:
        router.config.topology.place(place)
    else:
        _site_somewhere(router, site_of(place))


def _place_here(router: Router, place: PlaceId) -> None:
    if router.site not in router.config.topology and site_of(place) == router.site:
        return  # it has joined: the log of the place shows whether there is one
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
