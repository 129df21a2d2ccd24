"""Devices: numbers, chains, and what is sent again (Falcon III-F, router switchover)."""

from harness import EDGE1, EDGE2, OP, keys
from peregrine.core import device_record
from peregrine.core.messages import FromSource
from peregrine.core.rows import FIRST, UNCHAINED, Clock, Rows, rows_of
from peregrine.core.source import Reading, Source
from peregrine.types import OpId, SourceId

OTHER = OpId("app/other")


def source(roaming: bool = False, max_rows: int = 1000) -> Source:
    return Source(SourceId("s"), EDGE1, roaming, max_rows)


def produce(device: Source, *names: str, op: OpId = OP) -> None:
    for key in names:
        device.produce(Reading(op, key, 0, 0, key.encode()))


def sent(batch: FromSource | None) -> list[tuple[str, int, int]]:
    """(key, seq, prev) of all rows of a batch."""
    assert batch is not None
    return [(r.key, r.seq, r.prev) for _, item in batch.items if isinstance(item, Rows) for r in rows_of(item.batch)]


def test_rows_are_numbered_across_keys() -> None:
    device = source()
    produce(device, "car1", "van1", "car1")
    assert [seq for _, seq, _ in sent(device.batch())] == [0, 1, 2]


def test_a_roaming_source_chains_the_rows_of_each_key_of_each_operator() -> None:
    """Falcon III-F: its rows may come by two paths, so each names the one before it."""
    device = source(roaming=True)
    produce(device, "car1", "van1", "car1")
    produce(device, "car1", op=OTHER)
    produce(device, "car1")
    assert sent(device.batch()) == [
        ("car1", 0, FIRST),
        ("van1", 1, FIRST),
        ("car1", 2, 0),
        ("car1", 3, FIRST),
        ("car1", 4, 2),
    ]


def test_a_source_that_stays_needs_no_chain() -> None:
    device = source()
    produce(device, "car1", "car1")
    assert [prev for _, _, prev in sent(device.batch())] == [UNCHAINED, UNCHAINED]


def test_one_batch_is_on_its_way_at_a_time_and_the_next_has_what_came_meanwhile() -> None:
    device = source()
    produce(device, "car1")
    assert device.batch() is not None
    produce(device, "car1", "car1")
    assert device.batch() is None
    device.acked(0)
    assert [seq for _, seq, _ in sent(device.batch())] == [1, 2]


def test_what_is_not_acknowledged_goes_to_the_new_router_after_a_move() -> None:
    """Falcon III-F: the connection to the old router is closed, and nothing may be lost with it."""
    device = source(roaming=True)
    produce(device, "car1", "car1", "car1")
    device.batch()
    device.acked(0)
    device.move(EDGE2)
    assert device.site == EDGE2
    assert sent(device.batch()) == [("car1", 1, 0), ("car1", 2, 1)]


def test_a_refused_batch_is_sent_again_with_what_came_meanwhile() -> None:
    device = source()
    produce(device, "car1")
    device.batch()
    produce(device, "car1")
    device.lost()
    assert [seq for _, seq, _ in sent(device.batch())] == [0, 1]


def test_an_acknowledgement_of_an_older_batch_does_not_release_the_next() -> None:
    device = source(max_rows=2)
    produce(device, "car1", "car1", "car1")
    device.batch()
    device.acked(0)
    assert device.batch() is None
    device.acked(1)
    assert [seq for _, seq, _ in sent(device.batch())] == [2]


def test_batches_are_bounded() -> None:
    device = source(max_rows=2)
    produce(device, "car1", "car1", "car1")
    assert len(sent(device.batch())) == 2
    assert device.backlog_rows == 3


def test_after_a_crash_all_that_is_kept_and_not_acknowledged_is_sent_again() -> None:
    """Falcon III-G: an acknowledgement may not have reached the disk; the router recognises the row by its number."""
    read = [device_record.encode(device_record.Read(Reading(OP, "car1", 0, 0, b""))) for _ in range(2)]
    again = device_record.recover(source(roaming=True), read)
    assert [seq for _, seq, _ in sent(again.batch())] == [0, 1]
    again = device_record.recover(source(roaming=True), [*read, device_record.encode(device_record.Acked(0))])
    assert [seq for _, seq, _ in sent(again.batch())] == [1]


def test_neighbouring_rows_of_one_operator_travel_together_and_in_order_with_the_heartbeats() -> None:
    """Falcon III-B: a heartbeat says how far event time has come, so it must not overtake the rows before it."""
    device = source()
    produce(device, "car1", "car1")
    produce(device, "car1", op=OTHER)
    device.heartbeat(Clock(OP, keys("car1"), SourceId("s"), 10))
    produce(device, "car1", op=OTHER)
    batch = device.batch()
    assert batch is not None
    shapes = [(seq, item.op, len(item) if isinstance(item, Rows) else "beat") for seq, item in batch.items]
    assert shapes == [(1, OP, 2), (2, OTHER, 1), (3, OP, "beat"), (4, OTHER, 1)]


def test_a_heartbeat_of_a_roaming_source_is_in_the_chain_of_every_key_that_it_has_sent_rows_for() -> None:
    """It could overtake rows on another path, and rows it (docs/decisions/0004)."""
    device = source(roaming=True)
    produce(device, "car1", "car2")
    produce(device, "van1", op=OTHER)
    device.heartbeat(Clock(OP, keys("car1", "van1"), SourceId("s"), 10))
    device.heartbeat(Clock(OP, keys("car1", "car2"), SourceId("s"), 11))
    produce(device, "car1", "van1")
    batch = device.batch()
    assert batch is not None
    beats = [(item.seq, item.behind) for _, item in batch.items if isinstance(item, Clock)]
    assert beats == [(3, (("car1", 0),)), (4, (("car1", 3), ("car2", 1)))]
    assert [(row.key, row.prev) for row in rows_of(batch.items[-1][1].batch)] == [("car1", 4), ("van1", FIRST)]  # type: ignore[union-attr]


def test_a_heartbeat_of_a_source_that_stays_needs_no_chain() -> None:
    device = source()
    produce(device, "car1")
    device.heartbeat(Clock(OP, keys("car1"), SourceId("s"), 10))
    batch = device.batch()
    assert batch is not None and batch.items[-1][1] == Clock(OP, keys("car1"), SourceId("s"), 10)
