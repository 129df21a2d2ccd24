"""What silence means: when a link is suspected, when it is lost, when it is back, and that it does not flap."""

import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from peregrine.core.topology import Link, Topology
from peregrine.errors import ConfigurationError
from peregrine.plan.redeploy.changes import Changes
from peregrine.plan.redeploy.detector import Detector, Health, Patience
from peregrine.plan.redeploy.events import LinkRemoved, LinkSet, TopologyEvent
from peregrine.plan.redeploy.queue import TopologyQueue, Verdict
from peregrine.plan.redeploy.world import World
from redeploy_worlds import site

CLOUD, A, B = site("cloud"), site("a"), site("b")
LINK = Link(7.0)
PATIENCE = Patience(suspect_ms=100, lost_ms=300, steady_ms=150)
TREE = Topology.tree(CLOUD, {A: (CLOUD, LINK), B: (CLOUD, LINK)})
LOOK_MS = 20


class Story:
    """Time passes in looks; at each of them the sites that live tell to whom they deliver."""

    def __init__(self, tree: Topology = TREE) -> None:
        self.now_ms = 5000
        self.detector = Detector(PATIENCE, self.now_ms, first_version=10)
        self.detector.watch_all(tree)
        self.tree = tree

    def looks(self, count: int, dead: str = "", cut: tuple[str, str] | None = None) -> list[TopologyEvent]:
        """`dead` sites tell nothing, and nobody delivers to them; `cut`: the first does not reach the second."""
        events: list[TopologyEvent] = []
        for _ in range(count):
            self.now_ms += LOOK_MS
            for each in self.tree.sites:
                if each not in dead.split():
                    parent = self.tree.parent(each)
                    near = (*self.tree.children(each), *([parent] if parent else []))
                    reached = [other for other in near if other not in dead.split() and (each, other) != cut]
                    self.detector.told(each, reached, self.now_ms)
            events += self.detector.tick(self.now_ms)
        return events

    def health(self, other: str) -> Health:
        return self.detector.health[site(other), CLOUD]


def test_while_everybody_tells_nothing_happens() -> None:
    story = Story()
    assert story.looks(100) == []
    assert set(story.detector.health.values()) == {Health.UP} and story.detector.lost_sites == frozenset()


def test_a_site_that_dies_is_suspected_then_lost_and_only_its_links_are() -> None:
    story = Story()
    story.looks(10)
    assert story.looks(4, dead="a") == [] and story.health("a") is Health.UP
    assert story.looks(1, dead="a") == [] and story.health("a") is Health.SUSPECTED
    assert story.looks(9, dead="a") == []
    assert story.looks(1, dead="a") == [LinkRemoved(A, CLOUD, 10)]
    assert story.detector.lost_sites == {A} and story.health("b") is Health.UP
    assert story.looks(50, dead="a") == [], "it is told once"


@pytest.mark.parametrize("cut", [("a", "cloud"), ("cloud", "a")])
def test_a_link_that_delivers_in_one_direction_alone_is_lost(cut: tuple[str, str]) -> None:
    story = Story()
    assert story.looks(15, cut=cut) == [LinkRemoved(A, CLOUD, 10)]


def test_a_link_that_is_back_in_time_gives_no_event() -> None:
    story = Story()
    assert story.looks(14, dead="a") == [] and story.health("a") is Health.SUSPECTED
    assert story.looks(1) == [] and story.health("a") is Health.UP
    assert story.looks(14, dead="a") == []
    assert story.looks(100) == []


def test_a_link_that_was_lost_is_back_when_it_has_been_heard_for_a_while() -> None:
    story = Story()
    story.looks(15, dead="a")
    assert story.looks(8) == [] and story.health("a") is Health.RETURNING
    assert story.detector.lost_sites == {A}, "not yet"
    assert story.looks(1) == [LinkSet(A, CLOUD, LINK, 11)]
    assert story.detector.lost_sites == frozenset() and story.health("a") is Health.UP


def test_a_link_that_comes_back_and_goes_was_never_back() -> None:
    story = Story()
    story.looks(15, dead="a")
    for _ in range(20):
        assert story.looks(6) == []
        assert story.looks(6, dead="a") == []
    assert story.health("a") is Health.DOWN


def test_when_the_root_is_lost_all_of_its_links_are() -> None:
    story = Story()
    assert story.looks(15, dead="cloud") == [LinkRemoved(A, CLOUD, 10), LinkRemoved(B, CLOUD, 11)]
    assert story.detector.lost_sites == {A, B, CLOUD}


def test_an_observer_that_slept_has_lost_nothing() -> None:
    story = Story()
    story.looks(10)
    story.now_ms += 3_600_000
    assert story.detector.tick(story.now_ms) == []
    assert story.looks(10) == [] and set(story.detector.health.values()) == {Health.UP}


def test_a_clock_that_goes_back_is_no_silence_and_hides_none() -> None:
    story = Story()
    story.looks(10)
    story.now_ms -= 10 * LOOK_MS
    assert story.looks(25, dead="a") == [LinkRemoved(A, CLOUD, 10)]


def test_links_that_are_gone_by_plan_are_not_missed_and_new_ones_are() -> None:
    story = Story()
    story.detector.unwatch(CLOUD, A)
    assert story.looks(50, dead="a") == []
    story.detector.watch(A, B, Link(3.0))
    assert story.looks(20, dead="a") == [LinkRemoved(A, B, 10)]
    story.detector.watch(B, A, Link(4.0))  # how it is when it is back
    for _ in range(20):
        story.detector.told(A, [B], story.now_ms)
        story.detector.told(B, [A], story.now_ms)
        if events := story.looks(1, dead="a"):
            break
    assert events == [LinkSet(A, B, Link(4.0), 11)]


@given(st.integers(0, 2**32))
def test_of_any_course_the_tree_of_the_events_is_that_of_the_links_which_are_not_lost(seed: int) -> None:
    """Events alternate, their versions grow, the queue takes each of them, and none comes too soon after another."""
    rng = random.Random(seed)
    middle = [site(f"m{i}") for i in range(2)]
    parents = dict.fromkeys(middle, (CLOUD, LINK))
    parents |= {site(f"e{i}"): (rng.choice(middle), LINK) for i in range(4)}
    tree = Topology.tree(CLOUD, parents)
    story, world, queue = Story(tree), World.of(tree, Changes()), TopologyQueue(CLOUD)
    last: dict[tuple[str, str], tuple[type[TopologyEvent], int]] = {}
    for _ in range(25):
        dead = " ".join(each for each in tree.sites if rng.random() < 0.15)
        for _ in range(rng.randint(1, 30)):
            for event in story.looks(1, dead):
                assert isinstance(event, LinkRemoved | LinkSet)
                assert queue.offer(event) is Verdict.TAKEN
                ends = event.a, event.b
                kind, at_ms = last.get(ends, (LinkSet, -(10**9)))
                assert kind is not type(event)
                least_ms = PATIENCE.steady_ms if kind is LinkRemoved else PATIENCE.lost_ms - PATIENCE.suspect_ms
                assert story.now_ms - at_ms >= least_ms
                last[ends] = type(event), story.now_ms
            if (batch := queue.batch()) is not None:
                world.apply(batch.facts)
    there = {ends for ends, health in story.detector.health.items() if health in (Health.UP, Health.SUSPECTED)}
    assert {(a, b) for a, links in world.links.items() for b in links if a < b} == there


@given(st.integers(0, 2**32))
def test_links_that_are_never_silent_for_long_are_never_lost(seed: int) -> None:
    rng = random.Random(seed)
    story = Story()
    for _ in range(60):
        assert (
            story.looks(rng.randint(0, PATIENCE.lost_ms // LOOK_MS - 2), dead=rng.choice(["a", "b", "a b", "cloud"]))
            == []
        )
        assert story.looks(1) == []


@pytest.mark.parametrize("wrong", [(0, 10, 10), (20, 10, 10), (10, 20, 0)])
def test_impossible_patience_is_refused(wrong: tuple[int, int, int]) -> None:
    with pytest.raises(ConfigurationError, match="suspected after"):
        Patience(*wrong)
