"""Random reconfigurations: any kind, any mechanism, any keys, whether it makes sense or not.

The coordinator refuses what cannot be carried out, so drawing wrong plans is part of the test.
"""

import random
from dataclasses import replace

from peregrine.core import reconfigure
from peregrine.core.keyspace import KeySet, stable_hash
from peregrine.core.mechanisms import MECHANISMS
from peregrine.core.placement import Placement
from peregrine.core.reconfigure import Move, Plan, Stage
from peregrine.errors import PlanError
from peregrine.sim.scenario import Scenario
from peregrine.types import OpId, PlaceId, site_of


def draw_plan(rng: random.Random, scenario: Scenario, placement: Placement, id: str) -> Plan | None:
    mechanism = rng.choice(scenario.mechanisms)
    ops = [op for op in sorted(placement.operators) if _fits(mechanism, scenario, op)]
    if not ops:
        return None
    op = rng.choice(ops)
    topology = placement.topology
    places = [place for site in topology.sites for place in topology.places(site)]
    instances = placement.instances(op)
    source = rng.choice(sorted(instances))
    target = rng.choice([place for place in places if place != source] or [source])
    above = topology.ancestors(site_of(source))
    if above and rng.random() < 0.3:  # upwards there are two anchors, and the upper one is the longer way round
        target = topology.main_place(rng.choice(above))
    keys = _some_keys(rng, scenario, op, instances[source])
    try:
        stages = _stages(rng, placement, op, keys, source, target)
    except PlanError:
        return None
    if MECHANISMS[mechanism].chunked or rng.random() < 0.1:
        stages = reconfigure.in_chunks(stages, reconfigure.even_chunks(keys, rng.randint(2, 3)))
    if rng.random() < 0.5:  # where two sites can be the anchor, the longer way round must be right too
        stages = tuple(tuple(_other_anchor(rng, move) for move in stage) for stage in stages)
    return Plan(
        id,
        stages,
        mechanism,
        caught_up_lag_rows=rng.choice((0, 0, 20)),
        shed_below=rng.randint(1, 12) if mechanism == "shed" else 0,
        overlap=stable_hash(id) % 2 == 0,
    )


def _other_anchor(rng: random.Random, move: Move) -> Move:
    return replace(move, anchor=site_of(rng.choice((move.source, move.target))))


def _fits(mechanism: str, scenario: Scenario, op: OpId) -> bool:
    """Mostly draw operators that the mechanism is for."""
    spec = scenario.specs[op]
    has = {"stateless": spec.stateless, "windowed": spec.windowed, "static sources": not spec.roaming}
    return all(has[need] for need in MECHANISMS[mechanism].needs)


def _some_keys(rng: random.Random, scenario: Scenario, op: OpId, owned: KeySet) -> KeySet:
    names = [key for key in scenario.keys_of.get(op, ()) if key in owned]
    choice = rng.random()
    if choice < 0.4 and names:
        return KeySet.of_keys(owned.groups, rng.sample(names, rng.randint(1, len(names))))
    if choice < 0.7:
        groups = owned.touched_groups()
        return owned & KeySet.of_groups(owned.groups, rng.sample(groups, rng.randint(1, len(groups))))
    return owned


def _stages(
    rng: random.Random, placement: Placement, op: OpId, keys: KeySet, source: PlaceId, target: PlaceId
) -> tuple[Stage, ...]:
    instances = placement.instances(op)
    match rng.choice(("move", "split", "split", "merge", "redistribute", "sideways", "direct")):
        case "move":
            return reconfigure.move(placement, op, source, target)
        case "split":
            return reconfigure.split(op, keys, source, target)
        case "merge":
            others = [place for place in sorted(instances) if place != target]
            return reconfigure.merge(placement, op, others, target)
        case "redistribute" if target in instances:
            return reconfigure.redistribute(op, (source, keys), (target, instances[target]))
        case "sideways":
            return reconfigure.sideways(placement, op, keys, source, target)
        case "direct":
            return reconfigure.sideways_direct(op, keys, source, target)
        case _:
            return reconfigure.split(op, keys, source, target)
