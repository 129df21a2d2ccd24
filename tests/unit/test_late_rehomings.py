"""A topology change in which nothing happens holds up what needs the same routers, and nobody else.

cloud over e0 to e5; trains a, b, c below e0, e2, e4, each with a source whose key is at its edge.
"""

import pytest

from managed_railway import managed, redeployed, wanted
from peregrine.core.coordinator import Status, ToRouter
from peregrine.core.keyspace import KeySet
from peregrine.core.manager import ManagerEffect
from peregrine.core.messages import Begin, Rehome, Rehomed, Report, Tick
from peregrine.core.operator import OpSpec
from peregrine.core.redeploying import PutOff, TopologyChanged
from peregrine.core.topology import Link, Site, Topology
from peregrine.plan.redeploy.events import LinkRemoved, LinkSet, SiteMoved, SiteRemoved, SiteSet, Station, TopologyEvent
from peregrine.types import MigrationId, OpId, PlaceId, SiteId, SourceId

GROUPS, PATIENCE_MS = 4, 1000
COUNT, SINK = OpId("app/count"), OpId("app/results")
CLOUD = SiteId("cloud")
E0, E1, E2, E3, E4, E5 = (SiteId(f"e{n}") for n in range(6))
A, B, C = (SiteId(name) for name in "abc")
LINK = Link(1.0)


def key(train: SiteId) -> KeySet:
    return KeySet.of_keys(GROUPS, [train])


class Line:
    """Routers of sites that are `away` do nothing of what they are told."""

    def __init__(self) -> None:
        trains = {A: E0, B: E2, C: E4}
        below = {train: (edge, LINK) for train, edge in trains.items()}
        topology = Topology.tree(CLOUD, dict.fromkeys((E0, E1, E2, E3, E4, E5), (CLOUD, LINK)) | below)
        specs = {COUNT: OpSpec(COUNT, GROUPS, feeds=(SINK,)), SINK: OpSpec(SINK, GROUPS, sink=True)}
        initial = [(COUNT, key(train), PlaceId(edge)) for train, edge in trains.items()]
        sources = {SourceId(f"on {train}"): train for train in trains}
        feeds = {source: ((COUNT, key(train)),) for source, train in sources.items()}
        self.planner, self.manager = managed(topology, specs, initial, sources, feeds, PATIENCE_MS)
        self.away: set[SiteId] = set()
        self.stuck: set[SiteId] = set()  # migrations to these do not end
        self._now_ms = 0

    @property
    def topology(self) -> Topology:
        return self.manager.coordinator.placement.topology

    def owner(self, train: SiteId) -> PlaceId:
        return self.manager.coordinator.placement.owner(COUNT, train)

    def tell(self, *events: TopologyEvent) -> list[ManagerEffect]:
        return [effect for event in events for effect in self._obey(self.manager.step(TopologyChanged(event)))]

    def wait(self, time_ms: int = 2 * PATIENCE_MS) -> list[ManagerEffect]:
        seen: list[ManagerEffect] = []
        for _ in range(0, time_ms, 200):
            self._now_ms += 200
            seen += self._obey(self.manager.step(Tick(self._now_ms)))
        return seen

    def _obey(self, effects: list[ManagerEffect]) -> list[ManagerEffect]:
        seen, queue = list(effects), list(effects)
        while queue:
            more: list[ManagerEffect] = []
            match queue.pop(0):
                case ToRouter(site, Rehome(rehoming)) if site not in self.away:
                    more = self.manager.step(Rehomed(site, rehoming.number))
                case ToRouter(site, Begin(migration)) if migration.target not in self.stuck:
                    more = self.manager.step(Report(site, MigrationId(migration.id), "done"))
            seen += more
            queue += more
        return seen


def moved(train: SiteId, source: SiteId, target: SiteId, version: int = 1) -> SiteMoved:
    return SiteMoved(train, source, target, LINK, version)


def refusals(effects: list[ManagerEffect]) -> list[str]:
    return [effect.error.what for effect in effects if isinstance(effect, PutOff)]


@pytest.fixture
def line() -> Line:
    return Line()


@pytest.fixture
def lost(line: Line) -> Line:
    """Train a is lost on its way from e0 to e1, and another one has waited for it."""
    line.away.add(A)
    line.tell(moved(A, E0, E1))
    line.tell(moved(B, E2, E3))
    line.wait()
    return line


def test_while_nobody_waits_a_change_has_all_the_time_it_needs(line: Line) -> None:
    line.away.add(A)
    line.tell(moved(A, E0, E1))
    assert redeployed(line.wait(10 * PATIENCE_MS)) == []
    line.away.clear()
    (ended,) = redeployed(line.wait())
    assert ended.complete and line.owner(A) == E1


def test_one_that_is_lost_on_its_way_does_not_hold_up_another(line: Line) -> None:
    line.away.add(A)
    line.tell(moved(A, E0, E1))
    assert redeployed(line.tell(moved(B, E2, E3))) == [], "one after the other"
    given_way, done = redeployed(line.wait())
    assert [late.site for late in given_way.late] == [A] and given_way.rehomed == () and not given_way.complete
    assert given_way.left_out == ("redeploy1-app-after",)
    assert done.complete and [each.site for each in done.rehomed] == [B]
    assert line.topology.parent(B) == E3 and line.owner(B) == E3
    assert line.topology.parent(A) == E0 and line.owner(A) == E0, "until it reports"


def test_it_arrives_later_and_its_keys_follow_it(lost: Line) -> None:
    lost.away.clear()
    arrived, mended = redeployed(lost.wait())
    assert [each.site for each in arrived.rehomed] == [A] and arrived.late == ()
    assert lost.topology.parent(A) == E1
    assert mended.complete and lost.owner(A) == E1
    assert lost.manager.idle
    assert lost.topology == lost.planner.world.topology()


@pytest.mark.parametrize("target", [E0, E1])
def test_what_has_to_go_by_the_same_routers_waits_with_the_reason(lost: Line, target: SiteId) -> None:
    told = refusals(lost.tell(moved(C, E4, target)) + lost.wait())
    assert (
        f"c cannot change its parent: rehoming 1 of a from e0 to e1, by cloud, is not over, and needs {target}" in told
    )
    assert lost.topology.parent(C) == E4
    lost.away.clear()
    lost.wait()
    assert lost.topology.parent(C) == target and lost.owner(C) == target


def test_where_it_goes_next_is_considered_when_it_has_arrived(lost: Line) -> None:
    assert refusals(lost.tell(moved(A, E1, E5, 2)) + lost.wait())
    lost.away.clear()
    assert "a: e1 -> e5" in wanted(lost.wait())
    assert lost.topology.parent(A) == E5 and lost.owner(A) == E5


def test_others_go_on_again_and_again(lost: Line) -> None:
    for version, (source, target) in enumerate([(E3, E2), (E2, E5), (E5, E3)], start=2):
        (ended,) = redeployed(lost.tell(moved(B, source, target, version)))
        assert ended.complete and lost.owner(B) == target
    lost.away.clear()
    lost.wait()
    assert lost.topology == lost.planner.world.topology()


def test_a_site_that_never_joins_holds_up_nobody(line: Line) -> None:
    new = SiteId("new")
    line.away.add(new)
    line.tell(SiteSet(Station(Site(new)), 1), LinkSet(new, E1, LINK, 2))
    line.wait(400)
    line.tell(moved(A, E0, E1))
    line.wait()
    assert line.topology.parent(A) == E1, "who joins only learns and teaches the way"
    assert new not in line.topology
    assert refusals(line.tell(LinkSet(E1, E2, Link(0.1), 3), LinkSet(E1, CLOUD, Link(50.0), 4)) + line.wait())
    assert line.topology.parent(E1) == CLOUD, "below which it is about to be"
    line.away.clear()
    line.wait()
    assert line.topology.parent(new) == E1 and line.topology.parent(E1) == E2


def test_keys_that_do_not_arrive_hold_up_nobody(line: Line) -> None:
    line.stuck.add(E1)
    line.tell(moved(A, E0, E1))
    line.tell(moved(B, E2, E3))
    given_way, done = redeployed(line.wait())
    assert given_way.late == () and given_way.left_out == ("redeploy1-app-after",) and line.topology.parent(A) == E1
    assert done.complete and line.owner(B) == E3
    line.stuck.clear()
    line.wait()
    assert line.owner(A) == E1 and line.manager.idle


def test_who_changes_edges_in_the_same_change_gets_its_keys(line: Line) -> None:
    """Nobody has told anything else: what is done already is worth letting go."""
    line.away.add(A)
    line.tell(LinkRemoved(A, E0, 1), LinkSet(A, E1, LINK, 2), LinkRemoved(B, E2, 1), LinkSet(B, E3, LINK, 2))
    given_way, mended = redeployed(line.wait(3 * PATIENCE_MS))
    assert [each.site for each in given_way.rehomed] == [B] and [each.site for each in given_way.late] == [A]
    assert mended.complete and line.owner(B) == E3 and line.owner(A) == E0


def test_a_site_whose_keys_cannot_leave_holds_up_nobody(line: Line) -> None:
    line.stuck.add(CLOUD)
    line.tell(SiteRemoved(E0, 2), moved(A, E0, E1))
    line.wait()
    assert line.topology.parent(A) == E0, "its key goes to the cloud first"
    told = line.tell(moved(B, E2, E3)) + line.wait(4 * PATIENCE_MS)
    taken_back, given_way, mended = redeployed(told)
    assert taken_back.outcome is Status.ABORTED and taken_back.left_out == ("redeploy1-app-before",)
    assert [each.site for each in given_way.late] == [A], "it would disturb the plan that goes on"
    assert mended.complete and line.topology.parent(B) == E3 and line.owner(B) == E3
    assert "a plan that runs moves keys to or from e0" in refusals(told)
    assert E0 in line.topology
    line.stuck.clear()
    line.wait()
    assert E0 not in line.topology and line.topology.parent(A) == E1 and line.owner(A) == CLOUD
    assert line.manager.idle
