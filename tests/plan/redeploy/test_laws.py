"""Whatever happens to the topology, what is deployed is valid, and only what is affected is touched."""

import copy
from random import Random
from typing import Any

from hypothesis import HealthCheck, event, given, settings
from hypothesis import strategies as st

from peregrine.core.reconfigure import Plan
from peregrine.plan.redeploy.delta import State
from peregrine.plan.redeploy.events import TopologyEvent
from peregrine.plan.redeploy.layout import app_of
from peregrine.plan.redeploy.planner import Planner, Redeployment, Scope
from peregrine.types import site_of
from redeploy_worlds import Owned, Teller, all_violations, carry_out, owned, random_planner

slow = settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.too_slow])
SEEDS = st.integers(0, 2**32)
BATCHES = 6


def everything(planner: Planner) -> tuple[Any, ...]:
    world, feeding = planner.world, planner.layout.feeding
    return copy.deepcopy(
        (world.stations, world.links, world.parent, world.cost, owned(planner.layout), feeding._at, planner.versions)
    )


def told_to(planner: Planner, told: list[TopologyEvent]) -> Redeployment | None:
    for each in told:
        planner.queue.offer(each)
    return planner.plan()


@slow
@given(SEEDS)
def test_the_deployment_is_valid_or_the_last_valid_one_is_kept(seed: int) -> None:
    rng = Random(seed)
    planner, teller = random_planner(rng), Teller(rng)
    assert all_violations(planner) == []
    for _ in range(BATCHES):
        before = everything(planner)
        redeployment = told_to(planner, teller.events(planner))
        if redeployment is None:
            assert everything(planner) == before
            assert planner.postponed
            event("all postponed")
        else:
            event(f"{min(len(redeployment.relocations), 3)} relocations, {bool(redeployment.before)}")
            planner.succeeded()
        assert all_violations(planner) == []


@slow
@given(SEEDS)
def test_the_coordinator_of_the_core_takes_the_stages_and_they_lead_to_the_new_layout(
    seed: int,
) -> None:
    rng = Random(seed)
    planner, teller = random_planner(rng), Teller(rng)
    for _ in range(BATCHES):
        topology, start = planner.world.topology(), owned(planner.layout)
        redeployment = told_to(planner, teller.events(planner))
        if redeployment is not None:
            half_way = carry_out(topology, planner, start, redeployment.before)
            for site in redeployment.shift.left:
                assert not any(site_of(place) == site for places in half_way.values() for place in places)
            left_out: list[Plan] = []
            end = carry_out(planner.world.topology(), planner, half_way, redeployment.after, left_out)
            if left_out:
                event("a plan is left out")
                return
            assert end == owned(planner.layout)
            event(f"{max((len(plan.stages) for plan in redeployment.after), default=0)} stages")
            planner.succeeded()


@slow
@given(SEEDS)
def test_what_is_not_affected_is_not_touched(seed: int) -> None:
    rng = Random(seed)
    planner, teller = random_planner(rng), Teller(rng)
    for _ in range(BATCHES):
        start: Owned = owned(planner.layout)
        redeployment = told_to(planner, teller.events(planner))
        if redeployment is None:
            continue
        planner.succeeded()
        for op, places in owned(planner.layout).items():
            if app_of(op) not in redeployment.apps:
                assert places == start[op]
            moved = [each.keys for each in redeployment.relocations if each.op == op]
            for place, part in places.items():
                for keys in moved:
                    part -= keys
                assert not part or part <= start[op][place]  # what was not relocated is where it was
        apps = set(redeployment.apps)
        assert {each.app for each in redeployment.contexts} <= apps


@slow
@given(SEEDS)
def test_contexts_lead_from_one_version_to_the_next(seed: int) -> None:
    rng = Random(seed)
    planner, teller = random_planner(rng), Teller(rng)
    layout = planner.layout
    spots = {(site, app) for site in layout.sites() for app in layout.apps_at(site)}
    versions = dict.fromkeys(spots, 1)
    for _ in range(BATCHES):
        redeployment = told_to(planner, teller.events(planner))
        if redeployment is None:
            continue
        planner.succeeded()
        for context in redeployment.contexts:
            spot = (context.site, context.app)
            match context.state:
                case State.TO_BE_DEPLOYED:
                    assert spot not in spots and not context.before and context.version_before is None
                    assert context.version == versions.get(spot, 0) + 1
                    spots.add(spot)
                case State.TO_BE_UPDATED:
                    assert spot in spots and context.version_before == versions[spot]
                    assert context.version == versions[spot] + 1
                case State.TO_BE_UNDEPLOYED:
                    assert context.version == context.version_before == versions[spot] and not context.after
                    spots.remove(spot)
            versions[spot] = context.version
        assert spots == {(site, app) for site in layout.sites() for app in layout.apps_at(site)}
        for context in redeployment.contexts:
            if context.state is not State.TO_BE_UNDEPLOYED:
                assert context.after.operators == layout.ops_at(context.site, context.app)
                assert context.after.up == planner.world.parent.get(context.site)
        assert {(each.site, each.app): each.version for each in planner.fragments()} == {
            spot: versions[spot] for spot in spots
        }


@slow
@given(SEEDS)
def test_a_redeployment_that_fails_is_taken_back_and_comes_again(seed: int) -> None:
    rng = Random(seed)
    planner, teller = random_planner(rng), Teller(rng)
    for _ in range(BATCHES):
        before = everything(planner)
        redeployment = told_to(planner, teller.events(planner))
        if redeployment is None:
            continue
        planner.failed()
        assert everything(planner) == before
        again = planner.plan()
        assert again is not None
        assert set(again.facts) == set(redeployment.facts)
        assert again.relocations == redeployment.relocations
        planner.succeeded()


@slow
@given(SEEDS)
def test_order_and_repetition_of_events_do_not_matter(seed: int) -> None:
    rng = Random(seed)
    planner, teller = random_planner(rng), Teller(rng)
    other = copy.deepcopy(planner)
    for _ in range(BATCHES):
        events = teller.events(planner)
        one = told_to(planner, events)
        shuffled = [*events, *events]
        rng.shuffle(shuffled)
        two = told_to(other, shuffled)
        assert (one is None) == (two is None)
        if one is not None and two is not None:
            assert (one.facts, one.relocations, one.contexts) == (two.facts, two.relocations, two.contexts)
            planner.succeeded()
            other.succeeded()
        assert planner.world.parent == other.world.parent


@slow
@given(SEEDS)
def test_the_baseline_is_as_valid_and_sees_the_same_tree(seed: int) -> None:
    rng = Random(seed)
    planner, teller = random_planner(rng), Teller(rng)
    baseline = copy.deepcopy(planner)
    baseline.scope = Scope.HOLISTIC
    for _ in range(BATCHES):
        events = teller.events(planner)
        redeployment, holistic = told_to(planner, events), told_to(baseline, events)
        if redeployment is None or holistic is None:
            return  # with little room the two may differ in what fits
        if redeployment.facts != holistic.facts:
            return  # and from then on in all that follows
        assert planner.world.parent == baseline.world.parent
        planner.succeeded()
        baseline.succeeded()
        assert all_violations(planner) == all_violations(baseline) == []
        assert set(holistic.apps) == set(baseline.layout.apps)
