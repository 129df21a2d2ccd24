"""Trains that change stations: which changes count as carried out, and when."""

from peregrine.bench.engine.definition import Setting
from peregrine.bench.engine.railway import Counting, Railway
from peregrine.core.rows import UNCHAINED, Row
from peregrine.types import OpId, SiteId, SourceId


def test_a_change_is_carried_out_when_its_train_is_at_the_station_that_was_told() -> None:
    railway = Railway(Setting(trains=1, edges=4, apps=2, change_every_s=0.1))
    (first,) = railway.leave(now_ms=100.0)
    assert first.site == "train0" and first.source == railway.ring.topology().parent(first.site)
    railway.arrived(first.site, SiteId("elsewhere"), 150.0)
    assert railway.open_changes == 1 and railway.latencies_ms == []
    railway.arrived(first.site, first.target, 160.0)
    assert railway.open_changes == 0 and railway.latencies_ms == [60.0]


def test_a_train_that_went_on_before_it_was_deployed_is_deployed_once() -> None:
    railway = Railway(Setting(trains=1, edges=4, apps=1, change_every_s=0.1))
    (one,), (two,) = railway.leave(0.0), railway.leave(100.0)
    railway.arrived(one.site, two.target, 250.0)
    assert railway.latencies_ms == [250.0, 150.0] and not railway.open_changes


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
