"""Events out of order, told again, or against each other: what each rule does with them."""

from contextlib import suppress
from itertools import permutations

import pytest

from peregrine.core.topology import Link, Site
from peregrine.errors import ConfigurationError
from peregrine.plan.redeploy.events import LinkRemoved, LinkSet, SiteMoved, SiteRemoved, SiteSet, Station, Subject
from peregrine.plan.redeploy.queue import TopologyQueue, Verdict
from redeploy_worlds import site

A, B, C, ROOT = site("a"), site("b"), site("c"), site("root")


def deployable(queue: TopologyQueue) -> list[tuple[Subject, int]]:
    batch = queue.batch()
    return [(fact.subject, fact.version) for fact in batch.facts] if batch is not None else []


def test_a_batch_has_the_newest_fact_of_each_subject_and_what_adds_comes_first() -> None:
    queue = TopologyQueue(ROOT)
    assert queue.offer(SiteRemoved(C, 1)) is Verdict.TAKEN
    assert queue.offer(LinkSet(A, B, Link(1.0), 2)) is Verdict.TAKEN
    assert queue.offer(LinkRemoved(B, A, 1)) is Verdict.STALE
    assert queue.offer(SiteSet(Station(Site(A)), 1)) is Verdict.TAKEN
    batch = queue.batch()
    assert batch is not None
    assert [(fact.subject, fact.version) for fact in batch.facts] == [((A,), 1), ((A, B), 2), ((C,), 1)]
    assert queue.batch() is None


def test_an_event_that_is_told_again_is_ignored_also_after_it_was_deployed() -> None:
    queue = TopologyQueue(ROOT)
    event = LinkSet(A, B, Link(1.0), 1)
    queue.offer(event)
    assert queue.offer(event) is Verdict.REPEATED
    assert queue.batch() is not None
    assert queue.offer(event) is Verdict.REPEATED
    assert len(queue) == 0


def test_a_move_is_two_facts() -> None:
    queue = TopologyQueue(ROOT)
    queue.offer(SiteMoved(C, A, B, Link(1.0), 3))
    assert queue.offer(SiteMoved(C, B, A, Link(1.0), 2)) is Verdict.STALE
    batch = queue.batch()
    assert batch is not None
    assert [(fact.subject, fact.value) for fact in batch.facts] == [((B, C), Link(1.0)), ((A, C), None)]


@pytest.mark.parametrize("swapped", [False, True])
def test_of_two_facts_that_contradict_each_other_neither_is_believed(swapped: bool) -> None:
    queue = TopologyQueue(ROOT)
    told = [LinkSet(A, B, Link(1.0), 4), LinkRemoved(A, B, 4)]
    queue.offer(LinkSet(A, B, Link(9.0), 3))
    queue.offer(told[swapped])
    with pytest.raises(ConfigurationError, match="higher version"):
        queue.offer(told[not swapped])
    assert deployable(queue) == [((A, B), 3)]
    queue.offer(LinkSet(A, B, Link(2.0), 5))
    assert deployable(queue) == [((A, B), 5)]


def test_what_was_told_before_contradictions_holds_whatever_comes_first() -> None:
    """Both halves of a move: else a site loses the link that it had, and does not get the one that it has."""
    events = (
        SiteMoved(C, A, B, Link(1.0), 1),
        *(LinkSet(B, C, Link(latency_ms), 2) for latency_ms in (2.0, 3.0)),
        *(LinkSet(B, C, Link(latency_ms), 3) for latency_ms in (4.0, 5.0)),
    )
    for order in permutations(events):
        queue = TopologyQueue(ROOT)
        for event in order:
            with suppress(ConfigurationError):
                queue.offer(event)
        assert deployable(queue) == [((B, C), 1), ((A, C), 1)], order


def test_what_was_told_before_a_contradiction_holds_if_what_was_told_first_could_not_be_deployed() -> None:
    queue = TopologyQueue(ROOT)
    queue.offer(LinkSet(A, B, Link(1.0), 1))
    queue.offer(LinkSet(A, B, Link(2.0), 2))
    batch = queue.batch()
    assert batch is not None
    with pytest.raises(ConfigurationError):
        queue.offer(LinkSet(A, B, Link(3.0), 2))
    assert len(queue) == 0, "it is not known yet what becomes of the batch"
    queue.put_back(batch.facts)
    assert deployable(queue) == [((A, B), 1)]


def test_a_contradiction_that_a_higher_version_has_settled_is_no_error() -> None:
    queue = TopologyQueue(ROOT)
    queue.offer(LinkSet(A, B, Link(1.0), 1))
    queue.offer(LinkSet(A, B, Link(2.0), 2))
    assert queue.offer(LinkRemoved(A, B, 1)) is Verdict.STALE
    assert deployable(queue) == [((A, B), 2)]


def test_a_contradiction_to_what_is_deployed_changes_nothing() -> None:
    queue = TopologyQueue(ROOT)
    queue.offer(LinkSet(A, B, Link(1.0), 4))
    queue.batch()
    with pytest.raises(ConfigurationError):
        queue.offer(LinkRemoved(A, B, 4))
    assert queue.offer(LinkRemoved(A, B, 3)) is Verdict.STALE
    assert queue.batch() is None


def test_what_comes_back_gives_way_to_what_is_newer() -> None:
    queue = TopologyQueue(ROOT)
    queue.offer(LinkRemoved(A, B, 1))
    queue.offer(LinkRemoved(A, C, 1))
    batch = queue.batch()
    assert batch is not None
    queue.offer(LinkSet(A, B, Link(1.0), 2))
    queue.put_back(batch.facts)
    again = queue.batch()
    assert again is not None
    assert [(fact.subject, fact.version) for fact in again.facts] == [((A, B), 2), ((A, C), 1)]


@pytest.mark.parametrize(
    "event", [SiteRemoved(ROOT, 1), LinkRemoved(A, B, 0), LinkSet(A, A, Link(1.0), 1), SiteMoved(A, B, A, Link(1.0), 1)]
)
def test_what_can_never_be_is_an_error_with_a_remedy(event: SiteRemoved | LinkRemoved | LinkSet | SiteMoved) -> None:
    queue = TopologyQueue(ROOT)
    with pytest.raises(ConfigurationError, match="remedy"):
        queue.offer(event)
    assert queue.batch() is None
