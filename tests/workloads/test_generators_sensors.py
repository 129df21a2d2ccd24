"""Observations of sensors: the same for the same seed, by any stretch; and the oracle by hand."""

from hashlib import blake2b

import pyarrow as pa
import pytest

from oracles.sensors import expected, places_in_filter
from peregrine.workloads.generate.sensors import OBSERVATIONS, PLACES, RANGES, observations, places

TYPES = {"string": pa.string(), "bigint": pa.int64(), "double": pa.float64(), "int": pa.int32()}


def of(*rows: tuple[str, int, float | None], quantity: str = "air", known: int = 5) -> dict[str, pa.Table]:
    table = [
        {"sensor": sensor, "quantity": quantity, "observation": number, "value": value}
        for sensor, number, value in rows
    ]
    return {"observations": pa.Table.from_pylist(table), "places": places(known)}


def told(tables: dict[str, pa.Table], **parameters: int) -> list[tuple[object, ...]]:
    return [row[:4] for row in expected("annotated", tables, **parameters)]


def test_a_seed_gives_the_same_observations_and_another_one_others() -> None:
    assert observations(200, 3).equals(observations(200, 3))
    assert not observations(200, 3).equals(observations(200, 4))


@pytest.mark.parametrize("more", [{}, {"skew": 1.2, "sensors": 9}, {"disorder_ms": 30, "start_ms": 1000, "rate": 77}])
def test_stretches_are_pieces_of_the_whole(more: dict[str, int]) -> None:
    whole = observations(500, 5, **more)
    assert pa.concat_tables([observations(210, 5, **more), observations(290, 5, first=210, **more)]).equals(whole)


def test_tables_have_the_columns_of_their_schemas() -> None:
    for ddl, table in ((OBSERVATIONS, observations(50)), (PLACES, places(7))):
        wanted = [tuple(column.split()) for column in ddl.split(", ")]
        assert [(name, TYPES[kind]) for name, kind in wanted] == [
            (field.name, field.type) for field in list(table.schema)[: len(wanted)]
        ]
    assert set(observations(500, sensors=30)["sensor"].to_pylist()) == set(places(30)["sensor"].to_pylist())


def test_a_sensor_sends_through_one_gateway() -> None:
    made = observations(2000, sensors=30, gateways=4, skew=0.7).to_pandas()
    assert set(made["source"]) == {"gateway0", "gateway1", "gateway2", "gateway3"}
    assert (made.groupby("sensor")["source"].nunique() == 1).all()
    assert made["at_ms"].is_monotonic_increasing


def test_values_are_missing_far_off_and_repeated_as_often_as_asked() -> None:
    made = observations(5000, sensors=20, missing=0.1, outliers=0.05, repeats=0.2).to_pandas()
    low, high = (made["quantity"].map({name: bounds[n] for name, bounds in RANGES.items()}) for n in (0, 1))
    assert 0.08 < made["value"].isna().mean() < 0.12
    assert 0.03 < ((made["value"] < low) | (made["value"] > high)).mean() < 0.07
    assert 0.1 < made.duplicated(["sensor", "observation"]).mean() < 0.2
    assert not observations(2000, repeats=0.0).to_pandas().duplicated("observation").any()
    again = made[made.duplicated(["sensor", "observation"], keep=False)].groupby("observation")["value"]
    assert (again.nunique() <= 1).all()


def test_the_oracle_drops_what_is_out_of_range_and_keeps_the_bounds() -> None:
    tables = of(("air-4", 1, 11.9), ("air-4", 2, 12.0), ("air-4", 3, 49.0), ("air-4", 4, 49.1))
    assert told(tables) == [("air-4", 2, 12.0, False), ("air-4", 3, 49.0, False)]


def test_the_oracle_drops_repeats_of_the_same_sensor_only() -> None:
    tables = of(("air-4", 1, 20.0), ("dust-3", 1, 21.0), ("air-4", 1, 20.0), ("air-4", 2, 22.0))
    assert told(tables) == [("air-4", 1, 20.0, False), ("air-4", 2, 22.0, False), ("dust-3", 1, 21.0, False)]


def test_the_oracle_forgets_repeats_when_the_filter_is_full() -> None:
    tables = of(*(("air-4", number, 20.0 + number) for number in (1, 2, 1, 3, 2, 1)))
    # Full with 1 and 2, which the second 1 finds; 3 empties it; then 2 fills it again, and 1 empties it once more.
    assert [row[1] for row in told(tables, capacity=2)] == [1, 1, 2, 2, 3]


def test_the_bits_of_an_observation_follow_from_its_digest() -> None:
    digest = blake2b(b"17", digest_size=16).hexdigest()
    assert digest == "1f749db43a13a74afd40d9b0a4fd3fef"
    a, b = 0x4AA7133AB49D741F, 0xEF3FFDA4B0D940FD
    assert places_in_filter(17, 64, 3) == [a % 64, (a + b) % 64, (a + 2 * b) % 64] == [31, 28, 25]


def test_the_oracle_has_false_positives_where_the_filter_is_small() -> None:
    tables = of(*(("air-4", number, 20.0) for number in range(40)))
    assert len(told(tables)) == 40
    assert 0 < len(told(tables, bits=32)) < 40


def test_the_oracle_predicts_missing_values_from_the_last_good_ones() -> None:
    rows = [("air-4", 1, None), ("air-4", 2, 20.0), ("air-4", 3, 21.0), ("air-4", 4, None), ("air-4", 5, None)]
    more = [("air-4", 6, 25.25), ("air-4", 7, None), ("dust-3", 1, None)]
    assert told(of(*rows, *more), recent=2) == [
        ("air-4", 2, 20.0, False),
        ("air-4", 3, 21.0, False),
        ("air-4", 4, 20.5, True),
        ("air-4", 5, 20.5, True),
        ("air-4", 6, 25.25, False),
        ("air-4", 7, 23.125, True),
    ]


def test_the_oracle_annotates_the_sensors_that_the_table_has() -> None:
    assert expected("annotated", of(("air-4", 1, 20.0), ("air-9", 1, 20.0))) == [
        ("air-4", 1, 20.0, False, "site1", 1, "ppm")
    ]
