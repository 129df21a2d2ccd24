"""Which replicas are kept, over real routers in memory: what is not wanted any more is stopped; it is remembered."""

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from harness import AT_CLOUD, AT_EDGE1, AT_EDGE2, AT_REGION, EDGE1, GROUPS, OP, Net, keys, migration
from peregrine.control.replicas import Replicas
from peregrine.core.keyspace import group_of, stable_hash
from peregrine.core.messages import KeepReplicas, StopReplicas
from peregrine.core.placement import Placement
from peregrine.errors import PlanError
from peregrine.types import PlaceId, SiteId

NAMES = ("car1", "car2", "van1")


class Deployed:
    """What `Replicas` needs of a deployment, around the machines of `Net`."""

    def __init__(self) -> None:
        self.net = Net(owners=[(keys(*NAMES), AT_EDGE1)])
        self.specs = self.net.specs
        self.placement = Placement(self.net.topology, self.specs, [(OP, keys(*NAMES), AT_EDGE1)])
        manager = SimpleNamespace(coordinator=SimpleNamespace(placement=self.placement))
        self.driver = SimpleNamespace(ask=lambda question, *args: question(manager, *args))
        self.clients = {site: SimpleNamespace(offer=self._offering(site)) for site in self.net.topology.sites}
        self.commands: list[KeepReplicas | StopReplicas] = []
        self.now_ms = 0
        self.net.send(EDGE1, *NAMES)
        self.net.settle()

    def _offering(self, site: SiteId) -> Any:
        def offer(command: KeepReplicas | StopReplicas) -> None:
            self.commands.append(command)
            self.net.step(site, command)

        return offer

    def there(self) -> dict[PlaceId, set[str]]:
        """The keys that have a replica, after a refresh."""
        self.net.settle()
        self.now_ms += 1000
        self.net.tick(self.now_ms)
        self.net.settle()
        found: dict[PlaceId, set[str]] = {}
        for router in self.net.routers.values():
            for _, _, target, image in router.legs.replicas.all():
                found.setdefault(target, set()).add(image.key)
        return found

    def move(self, key: str, to: PlaceId) -> None:
        self.net.begin(migration(keys(key), AT_EDGE1, to, EDGE1))
        self.net.settle()
        self.placement.move(OP, keys(key), AT_EDGE1, to)


@pytest.fixture
def deployed() -> Deployed:
    return Deployed()


@pytest.fixture
def replicas(deployed: Deployed, tmp_path: Path) -> Replicas:
    return again(deployed, tmp_path)


def again(deployed: Any, tmp_path: Path) -> Replicas:
    return Replicas(deployed, tmp_path / "replicas.json")


def test_what_is_wanted_is_kept_and_nothing_else(deployed: Deployed, replicas: Replicas) -> None:
    replicas.keep(OP, {(AT_EDGE1, AT_CLOUD): ["car1", "car2"], (AT_EDGE1, AT_EDGE2): ["van1"]})
    assert deployed.there() == {AT_CLOUD: {"car1", "car2"}, AT_EDGE2: {"van1"}}
    replicas.keep(OP, {(AT_EDGE1, AT_CLOUD): ["car1", "van1"]})
    assert deployed.there() == {AT_CLOUD: {"car1", "van1"}}
    assert replicas.of(OP) == {"car1": [AT_CLOUD], "van1": [AT_CLOUD]}


def test_whole_groups_have_replicas_too(deployed: Deployed, replicas: Replicas) -> None:
    group = group_of(stable_hash("new"), GROUPS)
    deployed.placement.move(OP, keys(*NAMES), AT_EDGE1, AT_CLOUD)
    replicas.keep(OP, {(AT_CLOUD, AT_REGION): [group]})
    assert replicas.of(OP) == {group: [AT_REGION]}


def test_a_replica_whose_key_has_moved_does_not_count(deployed: Deployed, replicas: Replicas) -> None:
    replicas.keep(OP, {(AT_EDGE1, AT_CLOUD): ["car1", "car2"]})
    deployed.there()
    deployed.move("car1", AT_CLOUD)
    assert replicas.of(OP) == {"car2": [AT_CLOUD]}
    assert deployed.there() == {AT_CLOUD: {"car2"}}


def test_replicas_are_stopped_also_by_somebody_who_comes_later(
    deployed: Deployed, replicas: Replicas, tmp_path: Path
) -> None:
    replicas.keep(OP, {(AT_EDGE1, AT_CLOUD): ["car1"], (AT_EDGE1, AT_EDGE2): ["car1"]})
    assert deployed.there() == {AT_CLOUD: {"car1"}, AT_EDGE2: {"car1"}}
    later = again(deployed, tmp_path)
    assert later.of(OP) == {"car1": [AT_CLOUD, AT_EDGE2]}
    later.stop(OP)
    assert deployed.there() == {}
    assert again(deployed, tmp_path).of(OP) == {}
    with pytest.raises(PlanError, match="no replicas of app/count are kept"):
        later.stop(OP)


def test_a_router_that_is_away_can_be_told_again(deployed: Deployed, replicas: Replicas, tmp_path: Path) -> None:
    """What may have been kept is remembered before it is asked for: it can be stopped."""

    def away(command: object) -> None:
        raise OSError("away")

    deployed.clients[EDGE1].offer = away
    with pytest.raises(OSError, match="away"):
        replicas.keep(OP, {(AT_EDGE1, AT_CLOUD): ["car1"]})
    deployed.clients[EDGE1].offer = deployed._offering(EDGE1)
    again(deployed, tmp_path).stop(OP)
    assert [type(each) for each in deployed.commands] == [StopReplicas]
