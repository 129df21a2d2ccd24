"""What a host is made of, each part by itself and without a session."""

from pathlib import Path
from typing import Any

import pytest

from harness import OP, SINK
from peregrine.errors import ConfigurationError, ProtocolError, Unauthorized, UnknownName, Unreachable
from peregrine.net import protocol
from peregrine.sim.operators import Ledger
from peregrine.spark import served, worker
from peregrine.types import OpId, PlaceId

NEEDS = "pyspark is not installed: pip install --editable '.[spark]'"


def test_a_router_that_is_away_for_a_moment_is_waited_for() -> None:
    answers: list[Any] = [Unreachable("nobody", "wait"), Unreachable("nobody", "wait"), 7]

    def call() -> int:
        answer = answers.pop(0)
        if isinstance(answer, Exception):
            raise answer
        return int(answer)

    assert worker.patiently(call, 5.0) == 7
    answers[:] = [Unauthorized("no", "another token"), 7]
    with pytest.raises(Unauthorized):
        worker.patiently(call, 5.0)
    answers[:] = [Unreachable("nobody", "wait"), 7]
    with pytest.raises(Unreachable):
        worker.patiently(call, -1.0)


def test_a_log_that_lacks_rows_stops_the_host() -> None:
    pytest.importorskip("pyspark", reason=NEEDS)
    from peregrine.spark import source

    stretch = source.Stretch(PlaceId("cloud"), "address", 10, 20)

    def table(*offsets: int) -> Any:
        columns = [["cloud"], ["op"], [0], [0], [b""], [b""]]
        whole = [[*column] * len(offsets) for column in columns]
        whole[3] = list(offsets)
        return protocol.pa.table(whole, schema=protocol.SLICE_SCHEMA)

    source._check(stretch, 10, table(12, 10), 20)
    for at, offsets, after in ((10, (12,), 20), (10, (), 10), (15, (15,), 21)):
        with pytest.raises(ProtocolError, match="lost or cut off"):
            source._check(stretch, at, table(*offsets), after)


def test_all_that_a_batch_reads_is_of_one_shard_or_of_as_many_as_there_are(monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("pyspark", reason=NEEDS)
    from peregrine.spark import source

    def read_log(place: str, address: str, at: int, max_rows: int) -> Any:
        columns = [[place] * 3, ["one", "one", "other"], [0, 1, 0], [at] * 3, [b""] * 3, [b""] * 3]
        return protocol.pa.table(columns, schema=protocol.SLICE_SCHEMA), at + max_rows

    def shards(number: int, *lengths: int) -> list[int]:
        reader = source.LogReader({"served": "s", "token_file": "t", "shards": str(number)})
        monkeypatch.setattr(reader, "_read_log", read_log)
        stretches = [source.Stretch(PlaceId(f"place{n}"), "x:1", 0, length) for n, length in enumerate(lengths)]
        batches = list(reader.read(source.Stretches(stretches)))
        assert all(batch.schema.equals(source.ARROW) for batch in batches)
        return [shard for batch in batches for shard in batch.column(source.KEY).to_pylist()]

    assert shards(1, 10, 10) == [0] * 6
    assert shards(2, 10, source.AT_ONCE_ROWS) == [0, 1, 0] * 2


def test_a_place_that_the_checkpoint_does_not_know_begins_at_its_start_and_one_that_left_keeps_its_offset(
    tmp_path: Path,
) -> None:
    pytest.importorskip("pyspark", reason=NEEDS)
    from peregrine.spark import source

    served.publish(tmp_path / "served", {PlaceId(name): served.Served("x:1") for name in ("a", "b")})
    reader = source.LogReader({"served": str(tmp_path / "served"), "token_file": "t", "start": '{"b": 5}'})
    assert reader.initialOffset() == {"a": 0, "b": 5}
    parts = reader.partitions({"a": 3, "gone": 9}, {"a": 3, "b": 8, "gone": 9})
    assert [(part.place, part.start, part.end) for part in parts[0].stretches] == [("b", 5, 8)]  # type: ignore[attr-defined]


def test_places_that_are_behind_share_the_rows_of_a_batch(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("pyspark", reason=NEEDS)
    from peregrine.spark import source

    served.publish(tmp_path / "served", {PlaceId(name): served.Served("x:1") for name in ("a", "b", "c")})
    reader = source.LogReader({"served": str(tmp_path / "served"), "token_file": "t"})
    monkeypatch.setattr(reader, "_ends", lambda *_, **__: ({"a": 1000, "b": 1000, "c": 7}, set()))
    monkeypatch.setattr(reader, "_read_log", lambda place, address, at, max_rows: (None, at + max_rows))
    limit = source.ReadMaxRows(100)
    assert reader.latestOffset({"a": 0, "b": 40, "c": 7}, limit) == {"a": 50, "b": 90, "c": 7}, "c has nothing new"
    assert reader.latestOffset({"a": 995, "b": 1000, "c": 7}, limit) == {"a": 1000, "b": 1000, "c": 7}


def test_a_registry_names_what_it_has_and_notices_a_replacement(tmp_path: Path) -> None:
    pytest.importorskip("pyspark", reason=NEEDS)
    from peregrine.spark import registry

    file = tmp_path / "operators"
    with pytest.raises(ConfigurationError, match="publish the operators first"):
        registry.operator_of(str(file), OP)
    registry.publish(file, {OP: Ledger(SINK)})
    assert registry.operator_of(str(file), OP) == Ledger(SINK)
    assert registry.operator_of(str(file), OP) is registry.operator_of(str(file), OP)
    with pytest.raises(UnknownName, match=OP):
        registry.operator_of(str(file), OpId("app/other"))
    registry.publish(file, {OP: Ledger(SINK, running=False)})
    assert registry.operator_of(str(file), OP) == Ledger(SINK, running=False)
    assert file.stat().st_mode & 0o077 == 0
    registry.publish(file, {OpId("app/other"): Ledger(SINK)}, withdrawn=[OP])
    with pytest.raises(UnknownName, match="app/other"):
        registry.operator_of(str(file), OP)


def test_places_that_a_host_serves_come_and_go(tmp_path: Path) -> None:
    file, a, b = tmp_path / "served", PlaceId("a"), PlaceId("b")
    with pytest.raises(ConfigurationError, match="publish the places"):
        served.served_by(str(file))
    with pytest.raises(ConfigurationError, match="at least one place"):
        served.publish(file, {})
    served.publish(file, {a: served.Served("x:1")})
    assert served.served_by(str(file)) == {a: served.Served("x:1")}
    served.publish(file, {a: served.Served("x:1"), b: served.Served("y:2", "chunks")})
    assert served.served_by(str(file))[b].chunks == "chunks"
    served.publish(file, {b: served.Served("y:2")})
    assert set(served.served_by(str(file))) == {b}
    file.write_text("{")
    with pytest.raises(ConfigurationError, match="again"):
        served.served_by(str(file))
