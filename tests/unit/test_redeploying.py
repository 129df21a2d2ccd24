"""The manager carries out topology changes: migrations before, rehomings, migrations after, one after the other."""

from managed_railway import CLOUD, COUNT, EDGE1, EDGE2, OTHER, TRAIN, K, Railway, redeployed, wanted
from peregrine.core.attachments import Attachments
from peregrine.core.coordinator import Status, Submit, ToRouter
from peregrine.core.manager import Manager, ManagerEffect
from peregrine.core.messages import Attached, Rehomed, Report
from peregrine.core.placement import Placement
from peregrine.core.reconfigure import Move, Plan
from peregrine.core.redeploying import PutOff, TopologyChanged
from peregrine.core.topology import Link, Site, Topology
from peregrine.plan.redeploy.changes import Changes
from peregrine.plan.redeploy.delta import Context
from peregrine.plan.redeploy.events import LinkRemoved, LinkSet, SiteMoved, SiteRemoved, SiteSet, Station
from peregrine.plan.redeploy.layout import Layout
from peregrine.plan.redeploy.planner import Planner
from peregrine.plan.redeploy.planning import PlannedChanges
from peregrine.plan.redeploy.queue import TopologyQueue
from peregrine.plan.redeploy.world import World
from peregrine.types import MigrationId, PlaceId, SiteId, SourceId


def test_a_train_changes_edges_and_its_keys_follow_it() -> None:
    railway = Railway()
    railway.tell(SiteMoved(TRAIN, EDGE1, EDGE2, Link(1.0), 1))
    effects = railway.obey(railway.tick())
    assert wanted(effects) == ["train: edge1 -> edge2", "k: edge1 -> edge2", "done"]
    assert railway.topology.parent(TRAIN) == EDGE2
    assert railway.owner() == EDGE2
    assert railway.manager.redeploying is not None and railway.manager.redeploying.current is None


def test_what_was_deployed_is_told_with_the_contexts_of_what_it_touched() -> None:
    railway = Railway()
    railway.tell(SiteMoved(TRAIN, EDGE1, EDGE2, Link(1.0), 1))
    (ended,) = redeployed(railway.obey(railway.tick()))
    assert ended.complete and ended.left_out == () and ended.wrong == ()
    assert all(isinstance(each, Context) for each in ended.contexts)
    assert {each.site for each in ended.contexts if isinstance(each, Context)} == {TRAIN, EDGE1, EDGE2}


def test_links_and_hosts_that_change_where_they_are_are_in_the_tree_that_the_manager_has() -> None:
    railway = Railway()
    railway.tell(LinkSet(TRAIN, EDGE1, Link(3.0), 1))
    railway.tell(SiteSet(Station(Site(EDGE2, ("a", "b"))), 1))
    (ended,) = redeployed(railway.obey(railway.tick()))
    assert ended.complete and ended.rehomed == () and ended.wrong == ()
    assert railway.topology.link(TRAIN) == Link(3.0) and railway.topology.places(EDGE2) == ("edge2/a", "edge2/b")
    assert railway.topology == railway.planner.world.topology()


def test_keys_that_have_not_followed_their_site_are_told_as_what_is_wrong() -> None:
    """There is no way back any more: the train is below edge2, rows of k come down to edge1."""
    railway = Railway()
    railway.tell(SiteMoved(TRAIN, EDGE1, EDGE2, Link(1.0), 1))
    railway.tick()
    railway.step(Rehomed(TRAIN, 1))
    (ended,) = redeployed(railway.step(Report(EDGE1, MigrationId("redeploy1-app-after.0.0"), "aborted")))
    assert ended.outcome is Status.DONE and not ended.complete
    assert ended.left_out == ("redeploy1-app-after",) and ended.contexts
    assert ended.wrong == (
        "app/count at edge1 is not above s, which produces for it at train",
        "app/count {k} is not all at edge2",
    )
    assert railway.owner() == EDGE1


def test_a_train_leaves_when_its_source_was_dismissed() -> None:
    railway = Railway()
    railway.tell(SiteRemoved(TRAIN, 1))
    assert wanted(railway.obey(railway.tick())) == ["put off"]
    railway.step(Attached(TRAIN, SourceId("s"), 1, 0, gone=True))
    railway.step(Attached(TRAIN, SourceId("s"), 1, 0))  # said again, by somebody who does not know yet
    assert wanted(railway.obey(railway.tick())) == ["train: edge1 -> None", "done"]
    assert TRAIN not in railway.topology


def test_a_rehoming_is_asked_for_again_until_it_is_reported() -> None:
    railway = Railway()
    railway.tell(SiteMoved(TRAIN, EDGE1, EDGE2, Link(1.0), 1))
    (first,) = [effect for effect in railway.tick() if isinstance(effect, ToRouter)]
    assert first in railway.tick()
    assert railway.topology.parent(TRAIN) == EDGE1


def test_a_site_that_is_to_leave_gives_its_keys_away_first() -> None:
    railway = Railway()
    railway.tell(SiteRemoved(EDGE1, 2))  # waits for what may come with it
    railway.tell(SiteMoved(TRAIN, EDGE1, EDGE2, Link(1.0), 1))
    assert wanted(railway.obey(railway.tick())) == [
        "k: edge1 -> cloud",
        "train: edge1 -> edge2",
        "edge1: cloud -> None",
        "k: cloud -> edge2",
        "done",
    ]
    assert EDGE1 not in railway.topology


def test_a_new_site_joins_and_can_be_a_parent_at_once() -> None:
    railway = Railway()
    edge3 = SiteId("edge3")
    railway.tell(SiteSet(Station(Site(edge3)), 1))
    railway.tell(LinkSet(edge3, CLOUD, Link(1.0), 2))
    railway.tell(SiteMoved(TRAIN, EDGE1, edge3, Link(1.0), 3))
    texts = wanted(railway.obey(railway.tick()))
    assert texts[:2] == ["edge3: None -> cloud", "train: edge1 -> edge3"]
    assert railway.topology.parent(TRAIN) == edge3


def test_a_site_that_is_lost_with_its_sources_is_waited_for() -> None:
    railway = Railway()
    railway.tell(LinkRemoved(TRAIN, EDGE1, 1))
    assert wanted(railway.obey(railway.tick())) == ["put off"]
    assert railway.topology.parent(TRAIN) == EDGE1
    railway.tell(LinkSet(TRAIN, EDGE2, Link(1.0), 2))  # it is heard of again, elsewhere
    assert "train: edge1 -> edge2" in wanted(railway.obey(railway.tick()))


def test_facts_that_contradict_each_other_are_put_off_and_nothing_changes() -> None:
    railway = Railway()
    railway.tell(LinkSet(TRAIN, EDGE2, Link(0.5), 1))
    effects = railway.tell(LinkSet(TRAIN, EDGE2, Link(50.0), 1))
    assert [isinstance(effect, PutOff) for effect in effects] == [True]
    assert "higher version" in str(effects[0].error)  # type: ignore[union-attr]
    assert wanted(railway.obey(railway.tick())) == []
    assert railway.topology.parent(TRAIN) == EDGE1


def test_what_was_told_before_a_contradiction_is_done_also_if_that_had_been_put_off() -> None:
    railway = Railway()
    railway.tell(LinkSet(TRAIN, EDGE1, Link(3.0), 1))
    railway.tell(LinkRemoved(TRAIN, EDGE1, 2))
    assert wanted(railway.obey(railway.tick())) == ["put off"], "the train is in use and has no other link"
    railway.tell(LinkSet(TRAIN, EDGE1, Link(9.0), 2))
    (ended,) = redeployed(railway.obey(railway.tick()))
    assert ended.complete and railway.topology.link(TRAIN) == Link(3.0)


def test_what_is_told_twice_is_done_once() -> None:
    railway = Railway()
    move = SiteMoved(TRAIN, EDGE1, EDGE2, Link(1.0), 1)
    railway.tell(move)
    railway.obey(railway.tick())
    railway.tell(move)
    assert wanted(railway.obey(railway.tick())) == []


def test_a_redeployment_whose_keys_somebody_moves_comes_again() -> None:
    """Nothing has been rehomed when the first migrations cannot begin: the last valid deployment is kept."""
    railway = Railway()
    railway.step(Submit(Plan("mine", ((Move(COUNT, K, PlaceId(EDGE1), PlaceId(CLOUD)),),))))
    railway.tell(SiteMoved(TRAIN, EDGE1, EDGE2, Link(1.0), 1))
    railway.tell(SiteRemoved(EDGE1, 2))
    assert "train: edge1 -> edge2" not in wanted(railway.tick())
    railway.step(Report(EDGE1, MigrationId("mine.0.0"), "done"))
    texts = wanted(railway.obey(railway.tick()))
    assert texts[0] == "train: edge1 -> edge2" and texts[-1] == Status.DONE
    assert EDGE1 not in railway.topology


def test_what_one_application_has_moved_returns_when_another_cannot_move_and_the_facts_come_again() -> None:
    railway = Railway(with_another=True)
    before = railway.topology
    railway.tell(SiteRemoved(EDGE1, 2))
    railway.tell(SiteMoved(TRAIN, EDGE1, EDGE2, Link(1.0), 1))
    assert wanted(railway.tick()) == ["k: edge1 -> cloud", "other k: edge1 -> cloud"]
    assert wanted(railway.step(Report(CLOUD, MigrationId("redeploy1-app-before.0.0"), "done"))) == []
    assert (railway.owner(COUNT), railway.owner(OTHER)) == (CLOUD, EDGE1)

    effects = railway.step(Report(EDGE1, MigrationId("redeploy1-other-before.0.0"), "aborted"))
    assert wanted(effects) == ["k: cloud -> edge1"], "only what has moved, and no site changes its parent"
    assert railway.topology is before

    effects = railway.step(Report(EDGE1, MigrationId("redeploy1-app-before-back.0.0"), "done"))
    assert wanted(effects) == ["aborted", "k: edge1 -> cloud", "other k: edge1 -> cloud"], "and once more"
    (ended,) = redeployed(effects)
    assert ended.left_out == ("redeploy1-other-before",) and ended.rehomed == ended.contexts == ended.wrong == ()
    assert not ended.complete
    assert (railway.owner(COUNT), railway.owner(OTHER)) == (EDGE1, EDGE1) and railway.topology is before

    (ended,) = redeployed(railway.obey(effects[effects.index(ended) :]))[1:]
    assert ended.complete and ended.wrong == ()
    assert EDGE1 not in railway.topology and railway.topology.parent(TRAIN) == EDGE2
    assert (railway.owner(COUNT), railway.owner(OTHER)) == (EDGE2, CLOUD)


def test_what_cannot_return_stays_and_is_told() -> None:
    """Nothing is lost: the keys serve from where they are, and the next redeployment begins there."""
    railway = Railway(with_another=True)
    railway.tell(SiteRemoved(EDGE1, 2))
    railway.tell(SiteMoved(TRAIN, EDGE1, EDGE2, Link(1.0), 1))
    railway.tick()
    railway.step(Report(CLOUD, MigrationId("redeploy1-app-before.0.0"), "done"))
    railway.step(Report(EDGE1, MigrationId("redeploy1-other-before.0.0"), "aborted"))
    effects = railway.step(Report(EDGE1, MigrationId("redeploy1-app-before-back.0.0"), "aborted"))
    (ended,) = redeployed(effects)
    assert ended.outcome is Status.ABORTED and "redeploy1-app-before-back" in ended.left_out
    assert "app/count {k} is not all at edge1" in ended.wrong
    texts = wanted(railway.obey(effects[effects.index(ended) + 1 :]))
    assert texts[0] == "other k: edge1 -> cloud" and texts[-1] == Status.DONE
    assert railway.owner() == CLOUD, "which is above the train wherever it goes"


def test_a_rehoming_waits_for_a_migration_whose_rows_it_would_reorder() -> None:
    """edge1 decides the order of k while it moves up; rows of the train would pass the cloud on their way there."""
    railway = Railway()
    railway.step(Submit(Plan("up", ((Move(COUNT, K, PlaceId(EDGE1), PlaceId(CLOUD)),),))))
    railway.tell(SiteMoved(TRAIN, EDGE1, EDGE2, Link(1.0), 1))
    assert not any(text.startswith("train") for text in wanted(railway.tick()))
    effects = railway.obey(railway.step(Report(CLOUD, MigrationId("up.0.0"), "done")))
    assert "train: edge1 -> edge2" in wanted(effects)


def test_sites_whose_ways_share_a_router_change_their_parents_one_after_the_other() -> None:
    link, edges = Link(1.0), [SiteId(f"e{n}") for n in range(4)]
    below = {SiteId(name): (edges[n], link) for n, name in enumerate(("a", "c", "b"))}
    topology = Topology.tree(CLOUD, dict.fromkeys(edges, (CLOUD, link)) | below)
    changes = Changes()
    planner = Planner(World.of(topology, changes), Layout({}, PlaceId(CLOUD), changes), TopologyQueue(CLOUD))
    manager = Manager(
        Placement(topology, {}), {}, Attachments(), lambda op, keys: (), planning=PlannedChanges(planner, {})
    )
    effects: list[ManagerEffect] = []
    for fact in (
        *(LinkRemoved(SiteId("a"), edges[0], 1), LinkSet(SiteId("a"), edges[1], link, 1)),
        *(LinkRemoved(SiteId("c"), edges[1], 1), LinkSet(SiteId("c"), edges[2], link, 1)),
        SiteMoved(SiteId("b"), edges[2], edges[3], link, 1),
    ):
        effects += manager.step(TopologyChanged(fact))
    assert wanted(effects) == ["a: e0 -> e1", "b: e2 -> e3"]  # they meet at the cloud, and nowhere else
    assert wanted(manager.step(Rehomed(SiteId("a"), 1))) == []
    assert wanted(manager.step(Rehomed(SiteId("b"), 2))) == ["c: e1 -> e2"]
    assert wanted(manager.step(Rehomed(SiteId("c"), 3))) == ["done"]
