"""How a router performs the primitives of `core/mechanisms/program.py`, one by one."""

from dataclasses import replace
from typing import TYPE_CHECKING

from peregrine.core.keyspace import KeySet, group_of, stable_hash
from peregrine.core.leg import Leg, Ports
from peregrine.core.mechanisms import program as do
from peregrine.core.mechanisms.program import On
from peregrine.core.migrate import Role
from peregrine.core.replication import retrieval
from peregrine.core.routes import InLeg, Local
from peregrine.core.rows import AskRipe, Clock, DropKeys, KeyImage, RestoreKeys, Rows, TakeSnapshot
from peregrine.types import PlaceId

if TYPE_CHECKING:
    from peregrine.core.legs import Legs


def perform(legs: "Legs", leg: Leg, step: do.Step) -> None:
    m, router = leg.migration, legs.router
    match step:
        case do.Copy():
            legs.assign(m, InLeg(m.id, Role.ANCHOR))
        case do.Switch():
            leg.switched = True
            legs.learn_owner(m, m.target)
            legs.book.end(m.id, Role.ANCHOR, "switched")
            router.report(m.id, "switched")
        case do.Mark(event, roles):
            for role in roles:
                legs.tell(leg, role, event)
        case do.Tell(role, event):
            legs.tell(leg, role, event)
        case do.Defer():
            if m.site(Role.SOURCE) != m.anchor:
                leg.deferring = True
                legs.assign(m, InLeg(m.id, Role.SOURCE))
        case do.Snapshot():
            _snapshot(legs, leg, step, m.keys)
        case do.Ripen():
            ask_ripe(legs, leg, m.keys, None)
        case do.Drop(ack_to):
            router.ask(m.source, m.keys, lambda group, keys: DropKeys(m.op, group, keys, m, ack_to))
        case do.Own():
            legs.assign(m, InLeg(m.id, Role.TARGET))
        case do.Hold(fetch, then):
            leg.holding, leg.fetching, leg.then = True, fetch, then
            if not leg.missing:  # for state that comes once more
                leg.missing, leg.catch_up_to, leg.caught_up = m.keys, None, False
        case do.Sweep():
            leg.sweeping = True
            sweep(legs, leg)
        case do.Restore(beside_windows):
            _restore(legs, leg, beside_windows)
        case do.Release():
            held, leg.held = leg.held, []
            for item in held:
                legs.into_target(leg, item)
        case do.Mute():
            leg.muted = True
        case do.Unmute():
            leg.muted = False
        case do.Gate():
            leg.gated = True
        case do.Close():
            leg.closed = True
        case do.Open():
            leg.closed = False
            legs.book.end(m.id, Role.GATE, "opened")
            for item in leg.behind_gate:
                legs.passed_gate(m, item)
        case do.Halt():
            legs.halts.halt(leg.place)
        case do.Resume():
            legs.halts.resume(leg.place)
        case do.Collect():
            legs.book.end(m.id, Role.STORE, "collected")
            for state in leg.donated:
                state = legs.fetching.depart(replace(state, dest=m.site(Role.TARGET), origin=None))
                router.send(state, m.site(Role.TARGET))
        case do.Done():
            legs.assign(m, Local(m.target))
            legs.replicas.discard(m.op, m.source, m.target, m.keys)
            legs.book.end(m.id, Role.TARGET, "done")
            legs.tell_status(m)
        case _:
            raise AssertionError(f"no such primitive: {step}")


def _snapshot(legs: "Legs", leg: Leg, step: do.Snapshot, keys: KeySet) -> None:
    m = leg.migration
    legs.router.reached(m.id, "snapshot")
    dest, shed_below = m.site(step.to), m.shed_below if step.shed else 0
    legs.router.ask(
        m.source,
        keys,
        lambda group, part: TakeSnapshot(
            m.op, group, part, m.target, dest, m, step.drop, step.delta, step.static, shed_below, step.beside_windows
        ),
    )


def snapshot_fetched(legs: "Legs", leg: Leg, keys: KeySet) -> None:
    """FETCH names keys: take the snapshot that the mechanism means for these alone."""
    for step in legs.mechanism(leg.migration).steps(Role.SOURCE, On.FETCH):
        assert isinstance(step, do.Snapshot)
        _snapshot(legs, leg, step, keys)


def _restore(legs: "Legs", leg: Leg, beside_windows: bool) -> None:
    m, state = leg.migration, leg.arrived
    assert state is not None
    shed = {key for key, _ in state.shed}
    images: dict[int, list[KeyImage]] = {}
    for image in state.images:
        if not beside_windows and image.key not in shed:
            replica = legs.replicas.get(m.op, m.source, m.target, image.key)
            leg.moved = leg.moved.with_key(retrieval(image, replica))
        whole = legs.replicas.complete(m.op, m.source, m.target, image)
        images.setdefault(group_of(stable_hash(image.key), m.keys.groups), []).append(whole)
    if state.clocks:  # a host speaks of one group at a time
        images.setdefault(state.covers.touched_groups()[0], [])
    for group, part in sorted(images.items()):
        legs.router.append(m.target, RestoreKeys(m.op, group, tuple(part), beside_windows, state.clocks))
        legs.fetching.restores(m.target, legs.router.ends[m.target] - 1, part)


def sweep(legs: "Legs", leg: Leg) -> None:
    """Fetch one group of what nobody has asked for; the next when more state has come."""
    rest = leg.missing - leg.fetched
    if rest:
        part = rest.in_group(rest.touched_groups()[0])
        leg.fetched |= part
        legs.tell(leg, Role.SOURCE, On.FETCH, part)


def ask_ripe(legs: "Legs", leg: Leg, keys: KeySet, until_ms: int | None) -> None:
    m = leg.migration
    legs.router.ask(m.source, keys, lambda group, part: AskRipe(m.op, group, part, m, until_ms))


class Halts:
    """Places into whose logs no rows go for now. Control rows do: they are what a restart works with.

    Only one migration at a time may halt a place; the coordinator sees to it.
    """

    def __init__(self, router: Ports) -> None:
        self._router = router
        self._waiting: dict[PlaceId, list[Rows | Clock]] = {}

    def __contains__(self, place: PlaceId) -> bool:
        return place in self._waiting

    def halt(self, place: PlaceId) -> None:
        self._waiting.setdefault(place, [])

    def wait(self, place: PlaceId, item: Rows | Clock) -> None:
        self._waiting[place].append(item)

    def resume(self, place: PlaceId) -> None:
        for item in self._waiting.pop(place, []):
            self._router.append(place, item)

    def leftovers(self) -> list[str]:
        return [f"{place} is halted, {len(items)} batches wait" for place, items in self._waiting.items()]
