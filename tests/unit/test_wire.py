"""Bytes between routers and in journals: what does not decode is refused before anybody has acted on it."""

import numpy as np
import pytest

from harness import CLOUD, EDGE1, OP, Net, keys, row, rows
from peregrine.core import journal, wire
from peregrine.core.keyspace import KeySet
from peregrine.core.mechanisms.program import On
from peregrine.core.messages import (
    Abort,
    Ahead,
    Attach,
    Begin,
    ChunksHere,
    Committed,
    FromGroups,
    FromHost,
    FromLink,
    FromSource,
    Query,
    SetOwner,
    Tick,
)
from peregrine.core.migrate import Migration, Role
from peregrine.core.rows import (
    ChunksTaken,
    Clock,
    DropKeys,
    ForgetSent,
    KeyImage,
    Marker,
    Rows,
    StateRows,
    TakeSnapshot,
)
from peregrine.errors import CorruptMarker
from peregrine.types import MigrationId, PlaceId, SiteId, SourceId

K = keys("car1", "car2")
MIGRATION = Migration(
    MigrationId("m"), OP, K, PlaceId("cloud"), PlaceId("edge1"), EDGE1, "live", gate=CLOUD, store=CLOUD
)
MARKER = Marker(On.RECONFIG, Role.SOURCE, MIGRATION, K)
STATE = StateRows(OP, PlaceId("edge1"), EDGE1, K, (), MIGRATION)
IMAGE = KeyImage("car1", 3, b"books", (b"name",), (), (b"name", b"more"), spilled=True)
STORED = StateRows(OP, PlaceId("edge1"), EDGE1, K, (IMAGE,), None, static=True, origin=CLOUD, pin=4)
TAKEN = ChunksTaken(CLOUD, 4)
CLOCK = Clock(OP, K, SourceId("s"), 1000, gate=MigrationId("m"))
PASSED_ON = Clock(OP, K, SourceId("app/before/s"), 1000, part=KeySet.parse(8, "g:1-3,-car1"))
ROWS = Rows(OP, rows(row("car1", 0), row("car2", 1)).batch, stamp=MigrationId("m"), dest=EDGE1, muted=True)


@pytest.mark.parametrize("item", [MARKER, STATE, STORED, TAKEN, CLOCK, PASSED_ON], ids=lambda item: type(item).__name__)
def test_what_travels_comes_back_as_it_was(item: object) -> None:
    assert wire.decode_item(wire.encode(item)) == item  # type: ignore[arg-type]


def test_rows_come_back_with_their_flags() -> None:
    back = wire.decode_item(wire.encode(ROWS))
    assert isinstance(back, Rows) and back.batch.equals(ROWS.batch)
    assert (back.stamp, back.dest, back.muted, back.gate) == ("m", EDGE1, True, None)


@pytest.mark.parametrize("at", [0, 1, 4, 5, 20, -1])
def test_a_byte_that_changed_on_the_way_is_noticed(at: int) -> None:
    message = bytearray(wire.encode(MARKER))
    message[at] ^= 0x40
    with pytest.raises(CorruptMarker, match="cannot be read") as error:
        wire.decode_item(bytes(message))
    assert "repeat it" in error.value.remedy


def test_a_control_row_does_not_travel_and_a_marker_does_not_lie_in_a_log() -> None:
    drop = DropKeys(OP, 0, K, MIGRATION)
    assert wire.decode_entry(wire.encode(drop)) == drop
    with pytest.raises(CorruptMarker, match="does not travel"):
        wire.decode_item(wire.encode(drop))
    with pytest.raises(CorruptMarker, match="does not lie in the log"):
        wire.decode_entry(wire.encode(MARKER))


@pytest.mark.parametrize(
    "wrong",
    [
        {"mechanism": "teleport"},
        {"op": "app/nobody"},
        {"source": PlaceId("mars")},
    ],
    ids=["mechanism", "operator", "site"],
)
def test_a_marker_that_names_what_does_not_exist_changes_nothing(wrong: dict[str, str]) -> None:
    from dataclasses import replace

    net = Net()
    router = net.routers[CLOUD]
    bad = Marker(On.RECONFIG, Role.SOURCE, replace(MIGRATION, **wrong), K)  # type: ignore[arg-type]
    with pytest.raises(CorruptMarker) as error:
        router.step(FromLink(EDGE1, 0, (rows(row("car1", 0)), bad)))
    assert next(iter(wrong.values())) in error.value.what and error.value.remedy
    assert router.acked_link(EDGE1) == -1 and not router.ends and not router.leftovers()


EVENTS = [
    FromSource(SourceId("s"), ((3, CLOCK),)),
    FromLink(SiteId("edge1"), 7, (MARKER, STATE)),
    FromHost(PlaceId("cloud"), OP, 2, ()),
    FromGroups(PlaceId("cloud"), OP, ((2, 1),), np.array([7], np.int64), rows(row("car1", 0))),
    Committed(PlaceId("cloud"), 12),
    Ahead(PlaceId("cloud"), 12),
    ChunksHere(3, 1 << 33),
    Attach(SourceId("s"), 3),
    Tick(5),
    SetOwner(OP, K, PlaceId("edge1")),
    Begin(MIGRATION),
    Abort(MIGRATION),
    Query(MIGRATION),
]


@pytest.mark.parametrize("event", EVENTS, ids=lambda event: type(event).__name__)
def test_an_event_comes_back_from_the_journal_as_it_went_in(event: object) -> None:
    assert journal.decode(journal.encode(event)) == event  # type: ignore[arg-type]


@pytest.mark.parametrize(("groups", "offsets"), [(((2, 2),), [7]), (((2, 1),), [7, 8]), (((2, 0), (3, 1)), [7])])
def test_outputs_of_groups_that_do_not_add_up_are_refused(
    groups: tuple[tuple[int, int], ...], offsets: list[int]
) -> None:
    wrong = FromGroups(PlaceId("cloud"), OP, groups, np.array(offsets, np.int64), rows(row("car1", 0)))
    with pytest.raises(CorruptMarker, match="cannot be read"):
        journal.decode(journal.encode(wrong))


def test_a_journal_of_something_else_is_refused() -> None:
    with pytest.raises(CorruptMarker, match="cannot be read"):
        journal.decode(b"\xff\x00nonsense")


def test_entries_for_the_host_come_back_too() -> None:
    for entry in (
        TakeSnapshot(OP, 1, K, PlaceId("edge1"), EDGE1, MIGRATION, drop=True),
        ForgetSent(OP, 1, K, PlaceId("edge1")),
    ):
        assert wire.decode_entry(wire.encode(entry)) == entry
