"""Applications whose keys hold a given amount of state."""

from peregrine import InMemory
from peregrine.app.logic import Moment
from peregrine.bench.engine import hoard
from peregrine.bench.engine.applications import APPLICATIONS
from peregrine.bench.engine.hoard import Auctions, Hoard, Ring

AT = Moment(time_ms=0)


class Visit:
    def __init__(self, epoch: int = 0, item: str = "") -> None:
        self.epoch = epoch
        self.item = item


def after(logic, *visits):
    state, told = None, []
    for visit in visits:
        state, emits = logic.on_record(("k1",), state, visit, AT)
        told += [emit.record["count"] for emit in emits]
    return state[1], told


def size(entries):
    return sum(len(value) for value in entries.values() if isinstance(value, bytes))


def test_a_key_holds_all_of_its_state_from_its_first_row_on() -> None:
    entries, told = after(Hoard(64 * 1024, 1024), Visit(), Visit())
    assert (size(entries), told) == (64 * 1024, [1, 2])


def test_a_row_with_an_epoch_makes_all_of_it_anew() -> None:
    before, _ = after(Hoard(8 * 1024, 1024), Visit())
    renewed, told = after(Hoard(8 * 1024, 1024), Visit(), Visit(epoch=1))
    assert size(renewed) == size(before) and told == [1, 2]
    assert not {v for v in before.values() if isinstance(v, bytes)} & {
        v for v in renewed.values() if isinstance(v, bytes)
    }


def test_in_a_ring_every_row_takes_the_place_of_one_tuple() -> None:
    logic = Ring(100 * 8, 50 * 8, 8)
    one, _ = after(logic, Visit())
    other, _ = after(logic, *[Visit()] * 51)
    assert size(one) == size(other) == 100 * 8
    assert one["e0"] != other["e0"] and one["e0"][:8] == other["e0"][:8]
    assert one["e1"][8:] == other["e1"][8:] and one["e1"][:8] != other["e1"][:8]


def test_a_person_is_told_of_the_auctions_that_came_and_all_of_them_are_kept() -> None:
    entries, told = after(Auctions(16 * 1024, 1024), Visit(item="x" * 1024), Visit(), Visit(item="y" * 1024), Visit())
    assert told == [1, 2]
    assert (size(entries), entries["m0"]) == (16 * 1024, "x" * 1024 + "y" * 1024)


def test_rows_of_the_generators_and_renewals_are_taken_by_their_applications() -> None:
    for name in ("hoard", "ring", "auctions"):
        application = APPLICATIONS[name]
        test = InMemory(application.app(["visitor0"], {}))
        for stream, table in application.slice(0, 40, 1, 0, {}).items():
            test.send(stream, table.drop_columns(["source", "sent_us"]).to_pylist(), sender="visitor0")
        before = len(test.results("results"))
        test.send(application.renewed_by, [hoard.renewal(application.renewed_by, "k1", 1, 1000)], sender="visitor0")
        assert len(test.results("results")) == before + 1
