"""State made again from its rows: which buffers trigger windows, what the join holds and tells, what is proved."""

from types import SimpleNamespace

import msgspec
import pytest

from peregrine import proof
from peregrine.bench.engine import replaying
from peregrine.bench.engine.definition import REPLAYS, SIZES, cells, load_all
from peregrine.bench.engine.replaying import (
    ANEW,
    BACKUP,
    BUFFER_ROWS,
    EVERY,
    JOIN,
    REPLAYED,
    RESULTS,
    TOGETHER,
    TUPLE_BYTES,
    Join,
    row_of,
    triggers,
)
from peregrine.bench.engine.roaming import CLOUD
from peregrine.bench.engine.runner import groups
from peregrine.control.watch import Watch
from peregrine.core.rows import UNCHAINED, Row

ISQD = load_all()["isqd-12"]
ROWS = [row_of(nth, 2) for nth in range(2 * (2 * TOGETHER + 6))]  # two keys, more than one entry of each side


def replayed(rows: list[Row]) -> list[Row]:
    return [Row(row.key, BACKUP, nth, UNCHAINED, 0, 0, row.payload) for nth, row in enumerate(rows)]


def run(rows: list[Row], every: int) -> tuple[proof.Lines, proof.States]:
    """Both joins in memory, the second after the first."""
    inputs = {JOIN: rows, ANEW: replayed(rows)}
    return proof.expected(replaying.specs(), replaying.operators(every), inputs)


@pytest.mark.parametrize(
    ("way", "buffers"), [("replay best", []), ("replay average", [2, 4, 6]), ("replay worst", [1, 2, 3, 4, 5, 6])]
)
def test_no_buffer_triggers_windows_or_every_second_one_or_every_one(way: str, buffers: list[int]) -> None:
    found = [rows for rows in range(1, 6 * BUFFER_ROWS + 2) if triggers(rows, EVERY[way])]
    assert found == [nth * BUFFER_ROWS for nth in buffers]


def test_every_way_to_replay_has_its_buffers() -> None:
    assert tuple(EVERY) == REPLAYS


def test_a_join_holds_the_tuples_of_both_sides_and_tells_each_pair_when_it_is_complete() -> None:
    join, value, told = Join(pairs_to=RESULTS), None, []
    mine = [row for row in ROWS if row.key == "k0"]
    for row in mine:
        value, outs = join.on_row("k0", value, row, {})
        told += [msgspec.msgpack.decode(out.payload) for out in outs]
    count, entries = value
    assert count == len(mine)
    assert sorted(each for tuples in entries.values() for each in tuples) == sorted(row.payload for row in mine)
    assert all(len(row.payload) == TUPLE_BYTES for row in mine)
    pairs = list(zip(mine[::2], mine[1::2], strict=True))
    assert told == [[nth, left.payload[8] + right.payload[8]] for nth, (left, right) in enumerate(pairs)]


def test_a_window_joins_all_that_its_key_holds() -> None:
    left, other, right = ((n).to_bytes(8, "big") + bytes([10 * n]) for n in (0, 2, 3))
    assert replaying.joined({"l0": [left, other], "r0": [right]}) == [1, 50]
    assert replaying.joined({"l0": [left]}) == [0, 0]


@pytest.mark.parametrize("every", [0, 1, 2])
def test_a_replay_gives_the_new_place_what_the_old_one_holds_and_tells_of_windows_elsewhere(every: int) -> None:
    lines, states = run(ROWS, every)
    for key in ("k0", "k1"):
        assert states[JOIN, key] == states[ANEW, key]
    assert replaying.expected(ROWS, every) == (lines, states)
    windows = {line: told for line, told in lines.items() if line[0] == REPLAYED}
    assert bool(windows) == bool(every)
    assert not {key for _, key, _ in windows} & {"k0", "k1"}


def test_a_row_that_was_replayed_twice_or_not_at_all_shows() -> None:
    should, should_states = replaying.expected(ROWS, 1)
    for wrong in (ROWS[:-1], [*ROWS[:-2], ROWS[-2], ROWS[-2]]):
        inputs = {JOIN: ROWS, ANEW: replayed(wrong)}
        got, states = proof.expected(replaying.specs(), replaying.operators(1), inputs)
        assert not proof.prove(2 * len(ROWS), got, should, states, should_states).holds


def test_of_a_replay_that_was_stopped_the_results_so_far_must_come_first_and_once() -> None:
    should, _ = proof.expected(replaying.specs(), replaying.operators(1), {JOIN: ROWS})
    half = {line: told[: len(told) // 2] for line, told in should.items()}
    windows = replaying.windows(ROWS, 1)
    assert replaying.so_far(len(ROWS), half | windows, should).holds
    with_a_gap = {line: [told[0], *told[2:]] for line, told in should.items()}
    assert replaying.so_far(len(ROWS), with_a_gap, should).lost
    twice = {line: [*told, told[-1]] for line, told in half.items()}
    assert replaying.so_far(len(ROWS), twice, should).repeated


class Link:
    """A device and a router's client in one: what is sent is committed at once, or never."""

    def __init__(self, takes: bool = True) -> None:
        self.sent: list[tuple[str, str, bytes]] = []
        self.backlog_rows = 0 if takes else replaying.WAITING_ROWS

    def send(self, op: str, key: str, payload: bytes) -> None:
        self.sent.append((op, key, payload))

    def status(self) -> SimpleNamespace:
        return SimpleNamespace(commits={CLOUD: len(self.sent)})


def upstream(to_the_old: Link, to_the_new: Link) -> replaying.Upstream:
    links = {replaying.SENDER: to_the_old, BACKUP: to_the_new}
    deployment = SimpleNamespace(clients={CLOUD: to_the_new}, device=lambda name, site: links[name])
    found = replaying.Upstream(deployment, cells(ISQD, "quick")[0].setting, Watch({}))  # type: ignore[arg-type]
    for nth in range(10):
        found.send_nth(nth)
    return found


def test_what_is_kept_is_replayed_once_and_what_came_meanwhile_later() -> None:
    old, new = Link(), Link()
    backup = upstream(old, new)
    assert backup.replay() is not None
    backup.send_nth(0)
    backup.catch_up()
    assert new.sent == [(ANEW, key, payload) for _, key, payload in old.sent]


def test_a_replay_that_takes_too_long_is_stopped(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(replaying, "CUT_OFF_S", 0.05)
    assert upstream(Link(), Link(takes=False)).replay() is None


def test_replays_stand_beside_what_moves_state_in_deployments_of_their_own() -> None:
    found = cells(ISQD, "quick")
    first = [cell for cell in found if cell.x_label == "4 MiB"]
    assert {cell.setting.mechanism for cell in first} == {"live", *REPLAYS}
    together = [[cell.variant for cell in group] for group in groups(ISQD, first)]
    assert ["streamed", "hop by hop"] in together
    assert all(len(group) == 1 for group in together if group[0].startswith("replayed"))


@pytest.mark.parametrize("size", SIZES)
def test_the_number_of_sites_between_the_ends_is_what_the_axis_says(size: str) -> None:
    for cell in cells(load_all()["isqd-12h"], size):
        tree = replaying.topology([replaying.EDGE], cell.setting)
        assert len(tree.path(replaying.EDGE, CLOUD)) - 2 == int(cell.x_label)
