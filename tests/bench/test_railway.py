"""Trains that change stations: which changes count as carried out, and when."""

from dataclasses import replace

import msgspec

from peregrine.bench.engine.analysis import carried_out
from peregrine.bench.engine.check import Verdict, check, load
from peregrine.bench.engine.definition import Setting
from peregrine.bench.engine.railway import Counting, Railway, applications, initial_places
from peregrine.core.coordinator import Status
from peregrine.core.redeploying import Redeployed
from peregrine.core.rehoming import Rehoming
from peregrine.core.rows import UNCHAINED, Row
from peregrine.plan.redeploy.events import SiteMoved
from peregrine.types import OpId, SiteId, SourceId


def test_a_change_is_carried_out_when_its_train_is_at_the_station_that_was_told() -> None:
    railway = Railway(Setting(trains=1, edges=4, apps=2, change_every_s=0.1))
    (first,) = railway.leave(now_ms=100.0)
    assert first.site == "train0" and first.source == railway.ring.topology().parent(first.site)
    railway.redeployed(redeployed(first, target="elsewhere"), 150.0)
    assert railway.open_changes == 1 and railway.latencies_ms == []
    railway.redeployed(redeployed(first), 160.0)
    assert railway.open_changes == 0 and railway.latencies_ms == [60.0]


def test_a_train_that_went_on_before_it_was_deployed_is_deployed_once() -> None:
    railway = Railway(Setting(trains=1, edges=4, apps=1, change_every_s=0.1))
    _, (two,) = railway.leave(0.0), railway.leave(100.0)
    railway.redeployed(redeployed(two), 250.0)
    assert railway.latencies_ms == [250.0, 150.0] and not railway.open_changes


def test_a_change_that_left_keys_behind_is_not_carried_out_and_fails_the_rule() -> None:
    setting = Setting(trains=2, edges=4, apps=1, changes_s=0.1, change_every_s=0.1, stateful=True)
    railway = Railway(setting)
    (one,), (two,) = railway.leave(0.0), railway.leave(100.0)
    railway.redeployed(redeployed(one, number=1), 150.0)
    assert verdict(setting, railway) is Verdict.FAIL, "the other one has not come"
    railway.redeployed(redeployed(two, number=2, left_out=("redeploy-2-after-0",)), 250.0)
    assert railway.open_changes == 0, "both trains are there"
    assert railway.latencies_ms == [150.0] and railway.left_behind == 1
    assert verdict(setting, railway) is Verdict.FAIL


def test_with_all_keys_where_their_trains_are_the_rule_holds() -> None:
    setting = Setting(trains=2, edges=4, apps=1, changes_s=0.1, change_every_s=0.1, stateful=True)
    railway = Railway(setting)
    for number in (1, 2):
        (event,) = railway.leave(100.0 * number)
        railway.redeployed(redeployed(event, number), 100.0 * number + 50.0)
    assert verdict(setting, railway) is Verdict.PASS


def test_a_train_that_was_late_has_left_its_keys_behind_if_its_redeployment_had() -> None:
    """The second word of a redeployment says where the train is, not that its keys have followed."""
    railway = Railway(Setting(trains=1, edges=4, apps=1, change_every_s=0.1, stateful=True))
    (event,) = railway.leave(0.0)
    first = redeployed(event, left_out=("redeploy-1-after-0",))
    railway.redeployed(replace(first, rehomed=(), late=first.rehomed), 100.0)
    assert railway.open_changes == 1
    railway.redeployed(redeployed(event), 200.0)
    assert railway.open_changes == 0 and railway.latencies_ms == [] and railway.left_behind == 1


def redeployed(
    event: SiteMoved, number: int = 1, left_out: tuple[str, ...] = (), target: str | None = None
) -> Redeployed:
    station = SiteId(target) if target is not None else event.target
    went = Rehoming(event.site, event.source, station, meets=SiteId("cloud"))
    return Redeployed(number, Status.DONE, (went,), left_out)


def verdict(setting: Setting, railway: Railway) -> Verdict:
    """Of the rule of isqd-10b, on what the cell would have found."""
    share = carried_out(len(railway.latencies_ms), msgspec.json.encode(setting).decode())
    cell = {"experiment": "isqd-10b", "variant": "incremental", "x": 0.25, "x_label": "0.25", "runs": 1}
    (rule,) = (each for each in load() if each.experiment == "isqd-10b" and each.measure == "carried_out")
    return check([rule], [{**cell, "carried_out": share}])[0].verdict


def test_several_trains_go_on_at_once() -> None:
    railway = Railway(Setting(trains=4, edges=4, at_once=3))
    assert len({event.site for event in railway.leave(0.0)}) == 3 == railway.open_changes


def test_reports_are_counted_and_summed_for_each_train() -> None:
    count = Counting(OpId("app0/results"))
    value, outs = None, []
    for seq, number in enumerate((3, 4)):
        row = Row("train1", SourceId("train1"), seq, UNCHAINED, 0, 0, number.to_bytes(2, "big"))
        value, outs = count.on_row("train1", value, row, {})
    assert value == [2, 7]
    assert [(out.op, out.key, out.seq) for out in outs] == [("app0/results", "train1", 1)]


def test_the_share_of_changes_that_were_carried_out_is_of_all_that_were_told() -> None:
    setting = Setting(trains=4, edges=4, changes_s=120, change_every_s=0.1, at_once=2)
    said = msgspec.json.encode(setting).decode()
    told = int(setting.changes_s / setting.change_every_s) + 1  # `Trains.changing` tells the first at once
    assert carried_out(2 * told, said) == 1
    assert carried_out(told, said) == 0.5
    assert carried_out(None, said) is None


def test_filters_are_at_the_stations_and_pass_on_three_reports_of_four() -> None:
    railway = Railway(Setting(trains=2, edges=2, apps=1, filters=True))
    specs, operators = applications(railway)
    (wanted,), (count,) = railway.fed, railway.apps
    assert specs[wanted].stateless and specs[wanted].feeds == (count,)
    stations = {railway.ring.topology().parent(train) for train in railway.trains}
    assert {(op, site) for op, _, site in initial_places(railway)} == {(wanted, site) for site in stations}
    passed = []
    for seq in range(8):
        row = Row("no1", SourceId("train1"), seq, UNCHAINED, 0, 0, seq.to_bytes(2, "big"))
        value, outs = operators[wanted].on_row("no1", None, row, {})
        assert value is None
        passed += [(out.op, out.seq) for out in outs]
    assert passed == [(count, seq) for seq in (1, 2, 3, 5, 6, 7)]
