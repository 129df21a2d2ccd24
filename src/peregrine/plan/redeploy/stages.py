"""In which order relocations are carried out: stages of migrations that the coordinator of the core takes.

Falcon's rule holds after every stage (III-B): the target of a move is at or above all that produces for it now, and all
that consumes from it is at or above the target. Operators that feed each other are never in one stage.

- `evacuate`: what is at a place that goes moves up the old tree, consumers first, to the nearest place that stays.
- `settle`: everything goes to its final place in the new tree, as soon as the rule allows it. Where operators stand in
  each other's way (both go from one edge to another), they meet above both, consumers first, and come down, producers
  first.
"""

from collections.abc import Iterable
from dataclasses import dataclass, replace

from peregrine.core.keyspace import KeySet
from peregrine.core.reconfigure import Move, Stage
from peregrine.errors import PlanError
from peregrine.plan.redeploy.layout import Layout, own_host
from peregrine.plan.redeploy.placing import Relocation, place_like, refuge
from peregrine.plan.redeploy.world import Shift, World
from peregrine.types import OpId, PlaceId, SiteId, site_of


@dataclass(frozen=True, slots=True)
class Course:
    """The migrations of one application."""

    before: tuple[Stage, ...]  # in the old tree, before any site changes its parent or leaves
    after: tuple[Stage, ...]  # in the new one


def course(world: World, layout: Layout, shift: Shift, relocations: Iterable[Relocation]) -> Course:
    """Of relocations of one application. The layout is changed as the stages say."""
    pending = sorted(relocations, key=lambda each: (layout.rank[each.op], each.op, each.source, each.target))
    before, pending = _evacuate(world, layout, shift, pending)
    return Course(tuple(before), tuple(_settle(world, layout, pending)))


def _evacuate(
    world: World, layout: Layout, shift: Shift, pending: list[Relocation]
) -> tuple[list[Stage], list[Relocation]]:
    leaving = [each for each in pending if not world.has_place(each.source)]
    rest = [each for each in pending if world.has_place(each.source)]
    refuges: dict[tuple[OpId, PlaceId], PlaceId] = {}
    for op, place in {(each.op, each.source) for each in leaving}:
        above = refuge(world, shift, op, place)
        assert above is not None, "placing has seen to it"
        refuges[op, place] = above
    stages = []
    for op in _consumers_first(layout, {each.op for each in leaving}):
        moves = [Move(op, each.keys, each.source, refuges[op, each.source]) for each in leaving if each.op == op]
        stages.append(_perform(layout, moves))
    for each in leaving:
        waits = refuges[each.op, each.source]
        if waits != each.target:
            rest.append(replace(each, source=waits))
    return stages, rest


def _settle(world: World, layout: Layout, pending: list[Relocation]) -> list[Stage]:
    stages: list[Stage] = []
    while pending:
        ready = _ready(world, layout, pending)
        if not ready:
            return stages + _meet(world, layout, pending)
        stages.append(_perform(layout, [Move(each.op, each.keys, each.source, each.target) for each in ready]))
        pending = [each for each in pending if each not in ready]
    return stages


def _ready(world: World, layout: Layout, pending: list[Relocation]) -> list[Relocation]:
    """What can move now, all at once. What does not move is in no one's way: the new layout is valid."""
    now: dict[OpId, list[SiteId]] = {}
    for each in pending:
        now.setdefault(each.op, []).append(site_of(each.source))
    ready: dict[OpId, list[Relocation]] = {}
    for each in pending:
        feeders, consumers, target = layout.feeders[each.op], layout.consumers[each.op], site_of(each.target)
        if any(op in ready for op in (*feeders, *consumers)):
            continue
        above_all = all(world.is_at_or_above(target, site) for op in feeders for site in now.get(op, ()))
        # Of both ends, or what they emit does not meet at the gate; a site may have taken its keys along from below.
        ends = (target, site_of(each.source))
        below_all = all(world.is_at_or_above(site, end) for op in consumers for site in now.get(op, ()) for end in ends)
        if above_all and below_all:
            ready.setdefault(each.op, []).append(each)
    return [each for relocations in ready.values() for each in relocations]


def _meet(world: World, layout: Layout, pending: list[Relocation]) -> list[Stage]:
    """Up to one site that is at or above all, and down. Consumers that are below it have to go along, and come back."""
    top = world.meeting_point(site_of(place) for each in pending for place in (each.source, each.target))
    assert top is not None
    going = list(pending)
    seen: set[tuple[OpId, PlaceId]] = set()
    todo = [each.op for each in going]
    while todo:
        for consumer in layout.consumers[todo.pop()]:
            for place in sorted(layout.places(consumer)):
                if (consumer, place) in seen or world.is_at_or_above(site_of(place), top):
                    continue
                seen.add((consumer, place))
                keys = layout.keys_at(consumer, place)
                for each in pending:
                    if each.op == consumer and each.source == place:
                        keys -= each.keys
                top = world.lca(top, site_of(place))
                todo = [each.op for each in going]  # all again: the meeting point may be higher now
                if keys:
                    going.append(Relocation(consumer, keys, place, place))
    ops = _consumers_first(layout, {each.op for each in going})
    by_way_of = [(each, _meeting_place(world, each, top)) for each in going]
    stages = []
    for op in ops:
        moves = [
            Move(op, each.keys, each.source, meeting)
            for each, meeting in by_way_of
            if each.op == op and each.source != meeting
        ]
        first = {move: _turn_off(world, layout, move) for move in moves}
        stages.append(_perform(layout, [replace(move, target=at) for move, at in first.items() if at != move.source]))
        stages.append(_perform(layout, [replace(move, source=at) for move, at in first.items()]))
    for op in reversed(ops):
        moves = [
            Move(op, each.keys, meeting, each.target)
            for each, meeting in by_way_of
            if each.op == op and each.target != meeting
        ]
        stages.append(_perform(layout, moves))
    return [stage for stage in stages if stage]


def _turn_off(world: World, layout: Layout, up: Move) -> PlaceId:
    """Where it has to go first, if it comes from below or beside its producers: the place from which their ways lead
    down to it. Else rows behind the marker go straight up, past those that have turned off (core/validity.py).
    """
    if layout.operators[up.op].roaming:  # its rows are put in order by the host
        return up.source
    below, top = site_of(up.source), site_of(up.target)
    at = world.meeting_point([below, *layout.producers(up.op, up.keys)])
    if at is None or at in (below, top) or not world.is_at_or_above(top, at):
        return up.source
    return place_like(up.op, up.source, world.places(at)) or up.source


def _meeting_place(world: World, going: Relocation, top: SiteId) -> PlaceId:
    found = place_like(going.op, going.source, world.places(top))
    if found is None:
        raise PlanError(
            f"{going.op} goes from {going.source} to {going.target} by way of {top}, which has no host"
            f" {own_host(going.op)!r}",
            "give it one, or keep what feeds the operator at another site than the operator",
        )
    return found


def _consumers_first(layout: Layout, ops: Iterable[OpId]) -> list[OpId]:
    return sorted(ops, key=lambda op: (-layout.rank[op], op))


def _perform(layout: Layout, moves: list[Move]) -> Stage:
    """Moves of one operator between the same two places are one move."""
    joined: dict[tuple[OpId, PlaceId, PlaceId], KeySet] = {}
    for move in moves:
        at = (move.op, move.source, move.target)
        joined[at] = joined[at] | move.keys if at in joined else move.keys
    for (op, _, target), keys in joined.items():
        layout.assign(op, keys, target)
    return tuple(
        Move(op, keys, source, target) for (op, source, target), keys in sorted(joined.items(), key=_by_places)
    )


def _by_places(item: tuple[tuple[OpId, PlaceId, PlaceId], KeySet]) -> tuple[OpId, PlaceId, PlaceId]:
    return item[0]
