"""Trains: the same for the same seed, by any stretch; and the oracle by hand."""

import pyarrow as pa
import pytest

from oracles.trains import expected
from peregrine.workloads.generate.trains import PASSENGERS, RING, TRANSFERS, cycle_ms, passengers

TYPES = {"string": pa.string(), "bigint": pa.int64(), "int": pa.int32()}
Row = tuple[str, str, str, int, int, int, int]


def of(*rows: Row) -> dict[str, pa.Table]:
    names = ("train", "line", "station", "coach", "boarding", "alighting", "at_ms")
    return {"passengers": pa.Table.from_pylist([dict(zip(names, row, strict=True)) for row in rows])}


def test_a_seed_gives_the_same_rows_and_another_one_others() -> None:
    assert passengers(500, 3).equals(passengers(500, 3))
    assert not passengers(500, 3).equals(passengers(500, 4))


@pytest.mark.parametrize("more", [{}, {"trains": 3, "coaches": 2}, {"disorder_ms": 90, "start_ms": 1000, "rate": 777}])
def test_stretches_hold_the_rows_of_the_whole(more: dict[str, int]) -> None:
    pieces = pa.concat_tables([passengers(700, 5, **more), passengers(800, 5, first=700, **more)]).to_pandas()
    whole = passengers(1500, 5, **more).to_pandas()
    order = ["sent_us", "train", "coach"]
    assert pieces.sort_values(order, kind="stable").values.tolist() == (
        whole.sort_values(order, kind="stable").values.tolist()
    )


def test_rows_have_the_columns_of_their_schema() -> None:
    wanted = [tuple(column.split()) for column in PASSENGERS.split(", ")]
    fields = list(passengers(5).schema)[: len(wanted)]
    assert [(name, TYPES[kind]) for name, kind in wanted] == [(field.name, field.type) for field in fields]


def test_forty_trains_go_round_the_ring_in_two_directions() -> None:
    made = passengers(480 * 30).to_pandas()
    assert made["train"].nunique() == 40 and (made["train"] == made["source"]).all()
    assert made.groupby("line")["train"].nunique().tolist() == [20, 20]
    assert set(made["station"]) == set(RING) and len(RING) == 27 and set(TRANSFERS) < set(RING)
    for _, rows in made.groupby("train"):
        assert rows["at_ms"].is_monotonic_increasing
        stops = rows["station"][rows["station"] != rows["station"].shift()].map(RING.index)
        step = 1 if rows["line"].iloc[0] == "S41" else -1
        assert len(stops) == 30 and set(stops.diff().dropna() % 27) == {step % 27}


def test_a_cycle_is_as_long_as_the_rate_says_and_half_of_it_is_silent() -> None:
    made = passengers(480 * 10, rate=480, start_ms=5000).to_pandas()
    assert cycle_ms(480) == 1000
    assert made["at_ms"].min() >= 5000 and made["at_ms"].max() < 5000 + 11 * 1000 + 500
    changes = made["station"] != made.groupby("train")["station"].shift()
    silence = made.groupby("train")["at_ms"].diff()
    assert silence[changes].min() >= 500 > 50 > silence[~changes].max()


def test_nobody_alights_who_has_not_boarded_and_no_coach_runs_empty() -> None:
    occupancy = expected("occupancy", {"passengers": passengers(480 * 40)})
    assert min(row[3] for row in occupancy) > 0
    assert max(row[3] for row in occupancy) < 300


def test_the_oracle_follows_the_occupancy_of_each_coach() -> None:
    tables = of(
        ("t1", "S41", "A", 0, 5, 0, 10),
        ("t1", "S41", "A", 1, 2, 0, 11),
        ("t2", "S42", "A", 0, 7, 0, 11),
        ("t1", "S41", "B", 0, 1, 4, 30),
    )
    assert expected("occupancy", tables) == [("t1", 0, 10, 5), ("t1", 0, 30, 2), ("t1", 1, 11, 2), ("t2", 0, 11, 7)]


def test_the_oracle_ends_a_session_a_gap_after_its_last_row() -> None:
    tables = of(
        ("t1", "S41", "A", 0, 5, 0, 100),
        ("t1", "S41", "A", 1, 1, 2, 120),
        ("t1", "S41", "B", 0, 9, 9, 110),
        ("t1", "S41", "A", 0, 3, 1, 90),
        ("t1", "S41", "A", 0, 1, 1, 141),
        ("t2", "S41", "A", 0, 1, 0, 100),
    )
    assert expected("stops", tables, gap_ms=20) == [
        ("t1", "A", 90, 140, 9, 3),
        ("t1", "A", 141, 161, 1, 1),
        ("t1", "B", 110, 130, 9, 9),
        ("t2", "A", 100, 120, 1, 0),
    ]


def test_the_oracle_joins_arrivals_of_both_directions_that_are_close_in_time() -> None:
    tables = of(
        ("t1", "S41", "A", 0, 5, 0, 10),
        ("t1", "S41", "A", 1, 2, 0, 11),
        ("t1", "S41", "X", 0, 1, 0, 100),  # arrives with 7
        ("t1", "S41", "X", 1, 1, 0, 101),
        ("t2", "S42", "X", 0, 3, 0, 95),  # arrives empty: does not count
        ("t2", "S42", "B", 0, 0, 1, 120),
        ("t2", "S42", "X", 0, 4, 0, 130),  # arrives with 2
        ("t3", "S42", "A", 0, 8, 0, 20),
        ("t3", "S42", "X", 0, 1, 0, 131),  # one too late
        ("t4", "S41", "B", 0, 9, 0, 20),
        ("t4", "S41", "X", 0, 1, 0, 160),  # arrives with 9
    )
    assert expected("transfers", tables, within_ms=30, transfers=("X",)) == [
        ("X", "t1", "t2", 100, 130, 7, 2),
        ("X", "t4", "t2", 160, 130, 9, 2),
        ("X", "t4", "t3", 160, 131, 9, 8),
    ]
    assert expected("transfers", tables, within_ms=30, transfers=("A", "B")) == []
