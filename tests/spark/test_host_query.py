"""A host on Spark does what `core.host.apply` does on the same log, also when it is stopped in the middle."""

import time
from collections import Counter
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import msgspec
from pyspark_operators import Picky

from harness import CLOUD, OP, SINK, keys, migration
from peregrine.core.host import apply, by_group
from peregrine.core.log import MemoryLog
from peregrine.core.messages import Begin, FromHost, SetOwner
from peregrine.core.operator import Operator
from peregrine.core.rows import Marker, Row, Rows, StateRows, rows_of
from peregrine.core.state import decode
from peregrine.core.wire import encode
from peregrine.sim.operators import Ledger
from peregrine.types import OpId, PlaceId

A, B = PlaceId("cloud/a"), PlaceId("cloud/b")
GROUPS = {OP: 4, SINK: 4}
Make = Callable[[Mapping[OpId, Operator]], Any]


def test_states_and_outputs_are_those_of_a_pure_run_and_a_key_moves_live(bench: Make) -> None:
    at = bench({OP: Ledger(SINK)})
    at.feed(700)
    at.start()
    at.settled()
    for _ in range(10):
        at.feed(30)
    at.router.step(Begin(migration(keys("k3", "k4"), A, B, CLOUD, gate=CLOUD)))
    for _ in range(10):
        at.feed(30)
    at.until(lambda: "done" in statuses(at))
    at.feed(300)
    at.settled()
    states = stored(at)
    for place, log in at.router.logs.items():
        outputs, expected = pure_run(log, at.config.chunk_bytes)
        assert {(op, group): state for (p, op, group), state in states.items() if p == place} == expected
        assert flat(event for event in at.router.offered if event.place == place) == outputs
    assert [r.seq for r in at.router.results if r.key == "k3"] == list(range(3, 1600, 10))
    assert at.router.audit() == []
    assert key_count(states, A) == 8 and key_count(states, B) == 2


def test_a_query_that_is_stopped_and_started_again_gives_each_output_once(bench: Make) -> None:
    at = bench({OP: Ledger(SINK)})
    at.feed(600)
    at.start()
    at.settled()
    at.feed(2000)
    at.until(lambda: len(at.router.results) > 600)
    at.stop()
    forget_last_commit(at.config.checkpoint)
    before = len(at.router.offered)
    at.feed(100)
    at.start()
    at.settled()
    counts = Counter(r.seq for r in at.router.results)
    assert counts == dict.fromkeys(range(2700), 1)
    for key in range(10):
        assert [r.seq for r in at.router.results if r.key == f"k{key}"] == list(range(key, 2700, 10))
    again = [offset for event in at.router.offered[before:] for e in event.emissions for offset in e.offsets.tolist()]
    assert min(again) < 2600, "the batch whose commit was lost is applied again"
    assert {(op, g): s for (_, op, g), s in stored(at).items()} == pure_run(at.router.logs[A], 1 << 16)[1]
    assert at.router.audit() == []


def test_outputs_go_to_all_places_at_once_and_a_batch_is_committed_when_the_last_has_them(bench: Make) -> None:
    at = bench({OP: Ledger(SINK)})
    at.router.step(SetOwner(OP, keys("k3", "k4"), B))
    at.feed(100)
    at.start()
    at.settled()
    commits, had = dict(at.router.router.commits), len(at.router.results)
    at.router.away.add(A)
    try:
        at.feed(100)
        at.until(lambda: len(at.router.results) > had)
        assert {r.key for r in at.router.results[had:]} == {"k3", "k4"}, "the other place does not wait"
        time.sleep(0.5)  # for a commit that must not come
        assert dict(at.router.router.commits) == commits
    finally:
        at.router.away.clear()
    at.settled()
    assert Counter(r.seq for r in at.router.results) == dict.fromkeys(range(200), 1)


def test_a_row_that_an_operator_refuses_becomes_a_dead_letter_and_the_stream_goes_on(bench: Make) -> None:
    at = bench({OP: Picky(SINK, refuses=b"k7#17")})
    at.feed(100)
    at.start()
    at.settled()
    assert sorted(r.seq for r in at.router.results) == [seq for seq in range(100) if seq != 17]
    (letter,) = at.router.dead
    (told,) = rows_of(letter.rows.batch)
    failure = msgspec.json.decode(told.payload)
    assert (failure["op"], failure["key"], failure["place"], failure["position"]) == (OP, "k7", A, 17)
    assert failure["reason"].startswith("ValueError: not this one")
    assert Counter(r.payload for r in at.router.results)[b"10"] == 9
    assert at.router.audit() == [f"dead letter at {CLOUD}: {letter.reason}"]


def test_an_operator_is_replaced_while_its_host_runs(bench: Make) -> None:
    from peregrine.spark import registry

    at = bench({OP: Picky(SINK, refuses=b"")})
    at.feed(50)
    at.start()
    at.settled()
    registry.publish(at.registry, {OP: Picky(SINK, refuses=b"", step=100)})
    at.feed(10)
    at.settled()
    assert {r.payload for r in at.router.results[-10:]} == {b"105"}
    assert at.router.audit() == []


def pure_run(log: MemoryLog, chunk_bytes: int) -> tuple[Counter[Any], dict[tuple[OpId, int], bytes]]:
    states: dict[tuple[OpId, int], bytes] = {}
    outputs: list[FromHost] = []
    for (op, group), part in by_group(log.read(0, 1 << 40), GROUPS).items():
        emissions, states[op, group] = apply(Ledger(SINK), b"", part, chunk_bytes)
        outputs.append(FromHost(A, op, group, tuple(emissions)))
    return flat(outputs), {at: state for at, state in states.items() if state}


def flat(events: Any) -> Counter[Any]:
    """Every output with its group and offset, however they were cut."""
    found: Counter[Any] = Counter()
    for event in events:
        for emission in event.emissions:
            parts: list[Any] = rows_of(emission.item.batch) if isinstance(emission.item, Rows) else [emission.item]
            for offset, part in zip(emission.offsets.tolist(), parts, strict=True):
                assert isinstance(emission.item, Rows | Marker | StateRows)
                # Not by `repr`: sets have no order.
                found[event.op, event.group, offset, repr(part) if isinstance(part, Row) else encode(part)] += 1
    return found


def statuses(at: Any) -> list[str]:
    return [report.status for report in at.router.reports]


def stored(at: Any) -> dict[tuple[PlaceId, OpId, int], bytes]:
    from peregrine.spark import host

    return host.states(at.spark, at.config.checkpoint)


def key_count(states: Mapping[tuple[PlaceId, OpId, int], bytes], place: PlaceId) -> int:
    return sum(len(decode(state)) for (p, _, _), state in states.items() if p == place)


def forget_last_commit(checkpoint: Path) -> None:
    """As if the host had died after its router accepted the outputs and before Spark committed the batch."""
    commits = sorted((each for each in (checkpoint / "commits").iterdir() if each.name.isdigit()), key=_number)
    offsets = sorted((each for each in (checkpoint / "offsets").iterdir() if each.name.isdigit()), key=_number)
    if commits[-1].name == offsets[-1].name:
        commits[-1].unlink()
        (checkpoint / "commits" / f".{commits[-1].name}.crc").unlink(missing_ok=True)


def _number(file: Path) -> int:
    return int(file.name)
