"""Keeping replicas fresh, one refresh at a time, and giving them up (Spacker III-B; Falcon's hot backups)."""

from dataclasses import replace

import pytest

from harness import (
    AT_CLOUD,
    AT_EDGE1,
    AT_EDGE2,
    AT_REGION,
    CLOUD,
    EDGE1,
    EDGE2,
    GROUPS,
    OP,
    REGION,
    Net,
    keys,
    migration,
    tree,
)
from peregrine.core import journal, replicating
from peregrine.core.admission import admit
from peregrine.core.keyspace import KeySet
from peregrine.core.messages import KeepReplicas, StopReplicas
from peregrine.core.router import Router
from peregrine.core.rows import TakeSnapshot
from peregrine.errors import ConfigurationError, UnknownName
from peregrine.types import PlaceId, SiteId

KEYS = keys("car1", "van1")
KEEP = KeepReplicas(OP, KEYS, AT_EDGE1, AT_CLOUD, 1)
STOP = StopReplicas(OP, KEYS, AT_EDGE1, AT_CLOUD)


def kept(net: Net | None = None, keep: KeepReplicas = KEEP) -> Net:
    """Both keys have a replica at the cloud."""
    net = net or Net(owners=[(KEYS, AT_EDGE1)], chunk_bytes=8)
    net.send(EDGE1, "car1", "van1")
    net.step(EDGE1, keep)
    net.tick(1)
    net.settle()
    assert replicas(net) == ["car1", "van1"]
    return net


def replicas(net: Net, site: SiteId = CLOUD, source: PlaceId = AT_EDGE1) -> list[str]:
    return sorted(image.key for _, of, _, image in net.routers[site].legs.replicas.all() if of == source)


def asked(net: Net, place: PlaceId = AT_EDGE1) -> list[KeySet]:
    entries = [entry for _, entry in net.logs[place].read(0, 1 << 30)]
    return [entry.keys for entry in entries if isinstance(entry, TakeSnapshot) and entry.migration is None]


def test_where_nothing_comes_nothing_is_asked() -> None:
    net = kept()
    ends = dict(net.routers[EDGE1].ends)
    for now_ms in range(1000, 5000, 100):
        net.tick(now_ms)
    assert net.routers[EDGE1].ends == ends
    assert not any(net.links.values())


def test_only_keys_for_which_rows_came_are_asked_for() -> None:
    net = kept()
    net.send(EDGE1, "car1")
    net.tick(1000)
    assert asked(net)[-1] == keys("car1")
    net.settle()
    assert replicas(net) == ["car1", "van1"]


def test_of_very_many_keys_all_are_asked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(replicating, "MOST_NAMED", 1)
    net = kept()
    before = len(asked(net))
    net.send(EDGE1, "car1", "car1")
    net.send(EDGE1, "van1")
    net.send(EDGE1, "car1")
    net.tick(1000)
    assert sorted(key for each in asked(net)[before:] for key in each.plus) == ["car1", "van1"]


def test_a_key_whose_state_did_not_change_is_not_sent() -> None:
    """It was touched, so the host is asked; it knows better."""
    net = Net(owners=[(KEYS, AT_EDGE1)])
    net.step(EDGE1, KEEP)
    net.tick(1)
    net.settle()
    assert len(asked(net)) == len(KEYS.touched_groups())  # none of the keys had any state yet
    assert replicas(net) == []
    assert not any(net.links.values())


def test_a_refresh_comes_not_before_its_time() -> None:
    net = kept(keep=replace(KEEP, every_ms=500))
    for now_ms, count in ((400, 0), (501, 1), (900, 0), (1001, 1)):
        before = len(asked(net))
        net.send(EDGE1, "car1")
        net.settle()
        net.tick(now_ms)
        net.settle()
        assert len(asked(net)) - before == count, now_ms


def test_the_next_refresh_waits_until_the_last_is_applied_where_it_went() -> None:
    net = kept()
    net.send(EDGE1, "car1")
    net.tick(1000)
    count = len(asked(net))
    net.send(EDGE1, "car1", "van1")
    net.tick(1100)
    assert len(asked(net)) == count  # the host has not come to it
    net.work(AT_EDGE1)
    net.tick(1200)
    assert len(asked(net)) == count  # it is on its way
    net.drain(EDGE1, REGION)
    net.drain(REGION, CLOUD)
    net.tick(1300)
    assert len(asked(net)) == count  # applied, but not heard of
    assert net.routers[EDGE1].legs.replicating.stale() == 1
    net.settle()
    net.tick(1400)
    assert asked(net)[count:] == [KEYS]
    net.settle()
    assert net.routers[EDGE1].legs.replicating.stale() == 0


def test_a_slow_target_does_not_hold_up_another() -> None:
    net = kept()
    net.step(EDGE1, replace(KEEP, target=AT_EDGE2))
    net.tick(1000)
    net.work(AT_EDGE1)
    net.drain(EDGE1, REGION)
    net.send(EDGE1, "car1")
    net.tick(1100)
    assert asked(net)[-1] == keys("car1")
    net.settle()
    net.tick(1200)
    net.settle()
    assert replicas(net, EDGE2) == replicas(net, CLOUD) == ["car1", "van1"]


def test_replicas_that_are_stopped_are_dropped_and_not_refreshed() -> None:
    net = kept()
    net.step(EDGE1, replace(STOP, keys=keys("van1")))
    net.send(EDGE1, "car1", "van1")
    net.settle()
    assert replicas(net) == ["car1"]
    net.tick(1000)
    assert asked(net)[-1] == keys("car1")
    net.step(EDGE1, STOP)
    net.step(EDGE1, STOP)  # said twice: nothing more to stop
    net.send(EDGE1, "car1")
    net.settle()
    count = len(asked(net))
    net.tick(2000)
    assert replicas(net) == [] and len(asked(net)) == count
    assert not any(net.links.values())


def test_a_stop_reaches_the_target_behind_a_refresh_that_is_still_in_the_log() -> None:
    """Else the replica would come after it, and stay for ever."""
    net = kept()
    net.send(EDGE1, "car1")
    net.tick(1000)
    net.step(EDGE1, STOP)
    assert net.link(EDGE1, REGION) == []
    net.settle()
    assert replicas(net) == []


def test_what_is_kept_again_is_sent_whole() -> None:
    """The old place must not believe that what was given up is still there."""
    net = kept()
    net.step(EDGE1, STOP)
    net.step(EDGE1, KEEP)
    net.tick(1000)
    assert len(asked(net)) == 1  # not before the target was told
    net.settle()
    net.tick(1100)
    net.settle()
    assert replicas(net) == ["car1", "van1"]
    net.begin(migration(KEYS, AT_EDGE1, AT_CLOUD, EDGE1, "replica"))
    net.settle()
    assert net.reports[-1].moved.reload == 2


@pytest.mark.parametrize("mechanism", ["replica", "live"])
def test_a_key_that_moved_has_used_up_its_replica(mechanism: str) -> None:
    net = kept()
    net.begin(migration(keys("car1"), AT_EDGE1, AT_CLOUD, EDGE1, mechanism))
    net.settle()
    assert net.whereabouts("car1") == [AT_CLOUD] and replicas(net) == ["van1"]
    net.begin(migration(keys("car1"), AT_CLOUD, AT_EDGE1, EDGE1, id="back"))
    net.settle()
    net.send(EDGE1, "car1")
    net.settle()
    net.tick(1000)
    net.settle()
    assert net.whereabouts("car1") == [AT_EDGE1] and replicas(net) == ["van1"]
    net.step(EDGE1, KEEP)
    net.tick(1100)
    net.settle()
    assert replicas(net) == ["car1", "van1"]


def test_replicas_of_a_key_that_went_elsewhere_are_given_up() -> None:
    net = kept()
    net.send(EDGE1, "car1")
    net.tick(1000)  # a refresh is still in the log when the key leaves
    net.begin(migration(keys("car1"), AT_EDGE1, AT_REGION, EDGE1))
    net.settle()
    assert net.whereabouts("car1") == [AT_REGION]
    assert replicas(net) == ["van1"]


def test_a_replica_of_the_last_place_is_not_taken_for_one_of_the_next() -> None:
    """The old place is slow: what it gives up is heard of when the next place has sent its own replica already."""
    net = kept()
    net.begin(migration(keys("car1"), AT_EDGE1, AT_REGION, EDGE1, "pause"))
    net.drain(EDGE1, REGION)
    batch = net.compute(AT_EDGE1)
    assert batch is not None
    net.hand_over(batch)  # the state has left, and is not committed
    net.drain(EDGE1, REGION)
    net.step(REGION, KeepReplicas(OP, keys("car1"), AT_REGION, AT_CLOUD, 1))
    net.work(AT_REGION)
    net.tick(1000, REGION)
    net.work(AT_REGION)
    net.drain(REGION, CLOUD)
    assert replicas(net, source=AT_REGION) == ["car1"]
    net.commit(batch)
    net.settle()
    assert replicas(net) == ["van1"] and replicas(net, source=AT_REGION) == ["car1"]
    net.send(EDGE1, "car1")
    net.begin(migration(keys("car1"), AT_REGION, AT_CLOUD, REGION, "replica", id="on"))
    net.settle()
    assert net.whereabouts("car1") == [AT_CLOUD]
    assert net.landed("car1") == [0, 2]


def test_replicas_between_hosts_of_one_site() -> None:
    """Spacker's replicas are between the hosts of one cluster."""
    one, two = PlaceId("edge1/h1"), PlaceId("edge1/h2")
    net = Net(tree({"edge1": ("h1", "h2")}), owners=[(KEYS, one)], chunk_bytes=8)
    net.send(EDGE1, "car1", "van1")
    net.step(EDGE1, KeepReplicas(OP, KEYS, one, two, 1))
    net.tick(1)
    net.settle()
    assert replicas(net, EDGE1, one) == ["car1", "van1"]
    net.send(EDGE1, "car1")
    net.tick(1000)
    net.settle()
    net.begin(migration(keys("car1"), one, two, EDGE1, "replica"))
    net.settle()
    assert net.whereabouts("car1") == [two] and net.reports[-1].moved.reload == 1
    net.step(EDGE1, StopReplicas(OP, KEYS, one, two))
    net.settle()
    assert replicas(net, EDGE1, one) == []


def test_a_router_that_comes_back_keeps_and_stops_as_before() -> None:
    net = kept()
    net.send(EDGE1, "car1")
    net.tick(1000)
    net.step(EDGE1, replace(STOP, keys=keys("van1")))
    again = Router(net.configs[EDGE1])
    for event, effects in zip(net.journals[EDGE1], net.effects[EDGE1], strict=True):
        assert repr(again.step(journal.decode(journal.encode(event)))) == repr(effects)


@pytest.mark.parametrize("command", [KEEP, STOP], ids=["keep", "stop"])
@pytest.mark.parametrize(
    ("wrong", "error"),
    [
        ({"op": "app/cuont"}, UnknownName),
        ({"keys": KeySet.everything(GROUPS + 1)}, ConfigurationError),
        ({"source": AT_EDGE2}, UnknownName),  # not a place of this router
        ({"target": PlaceId("edge9")}, UnknownName),
        ({"target": AT_EDGE1}, ConfigurationError),
    ],
)
def test_a_command_that_makes_no_sense_is_refused(
    command: KeepReplicas | StopReplicas, wrong: dict[str, object], error: type[ConfigurationError]
) -> None:
    router = Net().routers[EDGE1]
    admit(router, command)
    with pytest.raises(error):
        admit(router, replace(command, **wrong))  # type: ignore[arg-type]
