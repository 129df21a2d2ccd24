import dataclasses
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq
import pytest
from made_cells import MACHINE, definition, measured

from peregrine.bench.engine import roaming, warming
from peregrine.bench.engine.definition import MEASURES, Setting, cells
from peregrine.bench.engine.measured import Roamed
from peregrine.bench.engine.roaming import Stay
from peregrine.bench.engine.store import Store
from peregrine.bench.engine.traffic import RowBytes
from peregrine.control.watch import Journey, Watch
from peregrine.core.keyspace import KeySet
from peregrine.core.migrate import Migration
from peregrine.types import MigrationId, PlaceId, SiteId
from peregrine.workloads import tm

EDGES = [SiteId(f"edge{nth}") for nth in range(1, 7)]
MIGRATION = Migration(
    MigrationId("roam0-up.0.0"),
    tm.MOV_AVG,
    KeySet.of_keys(tm.GROUPS, ["car0"]),
    PlaceId(EDGES[0]),
    PlaceId(EDGES[1]),
    anchor=EDGES[1],
    mechanism="live",
    gate=roaming.CLOUD,
    store=roaming.CLOUD,
)


@pytest.mark.parametrize("levels", [2, 3, 4])
def test_every_edge_is_so_many_levels_below_the_cloud_and_as_far_away(levels: int) -> None:
    tree = roaming.topology(EDGES, Setting(levels=levels, round_trip_ms=80))
    for edge in EDGES:
        path = tree.path(edge, roaming.CLOUD)
        assert len(path) == levels
        assert sum(tree.link(site).latency_ms for site in path[:-1]) == pytest.approx(40)


def test_a_car_stays_everywhere_or_at_the_last_edge_or_turns_round_before_its_key_could_follow() -> None:
    one, two, three = EDGES[:3]
    assert list(roaming.stops("drive", [one, two, three])) == [(two, Stay.FOR_GOOD), (three, Stay.FOR_GOOD)]
    assert list(roaming.stops("pass", [one, two, three])) == [(two, Stay.SHORT), (three, Stay.FOR_GOOD)]
    turns = list(roaming.stops("ping-pong", [one, two]))
    assert turns[:2] == [(two, Stay.SHORT), (one, Stay.SHORT)] and turns[-1] == (two, Stay.FOR_GOOD)
    assert [stay for _, stay in turns].count(Stay.FOR_GOOD) == 1


def test_a_late_ping_pong_turns_round_when_its_key_is_on_the_way_down() -> None:
    *turns, last = roaming.stops("ping-pong-late", EDGES[:2])
    assert turns == [(edge, Stay.TILL_IT_COMES) for edge in (EDGES[1], EDGES[0])] * 2
    assert last == (EDGES[1], Stay.FOR_GOOD)


def test_a_drive_is_held_against_as_many_rows_of_the_calm_and_second_legs_that_were_given_up_are_counted() -> None:
    watch = Watch({"car0": EDGES[0]})
    for leg, end in (("roam0-up", "done"), ("roam1-down", "aborted"), ("roam2-down", "done")):
        migration = dataclasses.replace(MIGRATION, id=MigrationId(f"{leg}.0.0"))
        watch.journeys[migration.id] = Journey(migration, {"begun": 0.0, end: 1.0})
    found = roaming.roamed_of(RowBytes(every=1000), RowBytes(every=3000, up=800, down=200), 2.5, watch)
    assert found == Roamed(
        row_bytes_on_links=3000, row_bytes_in_calm=2500, row_bytes_up=800, row_bytes_down=200, given_up=1
    )


def test_what_a_drive_put_on_links_is_stored_as_measures_of_the_report(tmp_path: Path) -> None:
    roamed = Roamed(3000, 2500, 800, 200, 1)
    cell = cells(definition(tmp_path), "quick")[0]
    store = Store(tmp_path / "out", "quick")
    store.keep(dataclasses.replace(measured(cell), roamed=roamed), MACHINE)
    (row,) = pq.read_table(store.files("summary")[0]).to_pylist()
    figures = dataclasses.asdict(roamed)
    assert {name: row[name] for name in figures} == figures
    assert figures.keys() <= MEASURES.keys()


def test_a_dip_is_what_is_missing_in_the_worst_second_beyond_that_of_the_calm() -> None:
    calm = np.arange(0, 5000, 10.0)
    assert warming.dip(np.concatenate([calm, np.arange(5000, 9000, 10.0)]), (0, 5000), (5000, 9000)) == 0
    silent = np.concatenate([calm, np.arange(7000, 9000, 10.0)])
    assert warming.dip(silent, (0, 5000), (5000, 9000)) == 1
    half = np.concatenate([calm, np.arange(5000, 9000, 20.0)])
    assert warming.dip(half, (0, 5000), (5000, 9000)) == pytest.approx(0.5)
    assert warming.dip(half, (0, 5000), (5000, 5900)) is None, "less than a second"
