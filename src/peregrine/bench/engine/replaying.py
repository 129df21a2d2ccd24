"""Cells in which state is made again from the rows that made it, instead of being moved (ISQD 7.1 and 7.2.4).

A join keeps the tuples of two streams, 1 KB each. The device at the edge that has sent them has kept them as well
(upstream backup). When it is asked to, it sends them again, over all sites on the way, to a second join in the cloud,
which has the same code and nothing yet. Rows flow to the first one all the while. The state is available when the
second one has committed the last of the rows that were kept by then.

Replayed rows come in buffers, and a buffer may trigger windows, which were told before: then the join computes what its
key holds once more. `replay best`: no buffer does. `replay average`: every second one. `replay worst`: every one. What
comes out goes to a sink of its own, and nobody takes it for results.

The proof: what came meanwhile is replayed too, and then both joins hold the same, tuple for tuple. A replay that takes
longer than the cut-off is stopped: its duration is at least that, and the proof is of the results that came by then.
"""

import time
from collections.abc import Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from hashlib import shake_128
from typing import Any

import msgspec

from peregrine import proof
from peregrine.bench.engine import traffic as links
from peregrine.bench.engine.definition import Cell, Setting
from peregrine.bench.engine.measured import Measured, of_results
from peregrine.bench.engine.roaming import CLOUD, topology
from peregrine.bench.spark import stream
from peregrine.control.deployment import Deployment
from peregrine.control.local import local
from peregrine.control.traffic import Paced, watched
from peregrine.control.watch import Watch
from peregrine.core.big_map import BigMap
from peregrine.core.keyspace import KeySet
from peregrine.core.operator import Marks, Operator, OpSpec, Out
from peregrine.core.rows import UNCHAINED, Row
from peregrine.errors import PeregrineError
from peregrine.proof import Lines, Proof, States
from peregrine.types import OpId, PlaceId, SiteId, SourceId

EDGE = SiteId("edge1")
JOIN, ANEW, RESULTS, REPLAYED = (OpId(f"replaying/{name}") for name in ("join", "anew", "results", "replayed"))
SENDER, BACKUP = SourceId("sender"), SourceId("backup")
GROUPS = 4
TUPLE_BYTES = 1024
BUFFER_ROWS = 4  # of a key: 4 KB. ISQD's worst case triggers 14,625 windows or more; 16 MB in such buffers, 4,096
TOGETHER = 128  # tuples of one entry: rows one after the other change the same entry, and few chunks are written
EVERY = {"replay best": 0, "replay average": 2, "replay worst": 1}  # which buffers trigger windows; 0: none
CUT_OFF_S = 100.0  # as ISQD has it
BUILD_S = 900.0
PATIENCE_S = 300.0
POLL_S = 0.02
WAITING_ROWS = 20_000  # at the device, if the new place is behind


@dataclass(frozen=True)
class Join:
    """State: [rows, the tuples of both sides]. Tuple n of a key is of the left side if n is even, and n + 1 is the one
    of the right side that belongs to it.
    """

    pairs_to: OpId | None = None  # told of each pair when it is complete; None: all of them have been told before
    windows_to: OpId | None = None
    every: int = 0

    def on_row(self, key: str, value: Any, row: Row, marks: Marks) -> tuple[Any, list[Out]]:
        count, entries = value if value is not None else (0, BigMap())
        number = _number(row.payload)
        name = _entry(number)
        if name in entries:
            entries[name].append(row.payload)
        else:
            entries[name] = [row.payload]
        outs = []
        if self.pairs_to is not None and number % 2:
            left = entries[_entry(number - 1)][number // 2 % TOGETHER]
            outs.append(_out(self.pairs_to, key, key, row, [number // 2, _worth(left) + _worth(row.payload)]))
        if self.windows_to is not None and triggers(count + 1, self.every):
            outs.append(_out(self.windows_to, _windows_of(key), key, row, joined(entries)))
        return [count + 1, entries], outs

    def on_clock(self, key: str, value: Any, marks: Marks, now_ms: int | None) -> tuple[Any, list[Out]]:
        return value, []

    def open_ends(self, value: Any) -> list[int]:
        return []


def triggers(rows: int, every: int) -> bool:
    """Does the buffer that ends with this row of its key trigger windows?"""
    buffers, begun = divmod(rows, BUFFER_ROWS)
    return every > 0 and not begun and buffers % every == 0


def joined(entries: Mapping[str, Sequence[bytes]]) -> list[int]:
    """All of what a key holds, joined: [pairs, what they are worth]."""
    sides: dict[str, dict[int, int]] = {"l": {}, "r": {}}
    for name, tuples in entries.items():
        side = sides[name[0]]
        for each in tuples:
            side[_number(each) // 2] = _worth(each)
    left, right = sides.values()
    both = left.keys() & right.keys()
    return [len(both), sum(left[pair] + right[pair] for pair in both)]


def _number(payload: bytes) -> int:
    return int.from_bytes(payload[:8], "big")


def _worth(payload: bytes) -> int:
    return payload[8]


def _entry(number: int) -> str:
    return f"{'lr'[number % 2]}{number // 2 // TOGETHER}"


def _windows_of(key: str) -> str:
    """Not the key itself: results are told apart by it."""
    return f"windows-of-{key}"


def _out(op: OpId, to: str, key: str, row: Row, told: list[int]) -> Out:
    return Out(op, to, SourceId(f"{row.source}>{key}"), row.seq, row.time_ms, msgspec.msgpack.encode(told))


def specs() -> dict[OpId, OpSpec]:
    found = (
        OpSpec(JOIN, GROUPS, feeds=(RESULTS,)),
        OpSpec(ANEW, GROUPS, feeds=(REPLAYED,)),
        OpSpec(RESULTS, GROUPS, sink=True),
        OpSpec(REPLAYED, GROUPS, sink=True),
    )
    return {spec.op: spec for spec in found}


def operators(every: int) -> dict[OpId, Operator]:
    """Where rows have always gone, and where the state is to be made again."""
    return {JOIN: Join(pairs_to=RESULTS), ANEW: Join(windows_to=REPLAYED, every=every)}


def row_of(nth: int, keys: int) -> Row:
    """Keys take turns. No two tuples are alike."""
    payload = (nth // keys).to_bytes(8, "big") + shake_128(str(nth).encode()).digest(TUPLE_BYTES - 8)
    return Row(f"k{nth % keys}", SENDER, nth, UNCHAINED, 0, 0, payload)


def run_cell(cell: Cell) -> Measured:
    setting = cell.setting
    every = EVERY[setting.mechanism]
    tree = topology([EDGE], setting)
    initial = [(JOIN, KeySet.everything(GROUPS), PlaceId(EDGE))]
    watch = Watch({})
    settings: dict[str, Any] = {"watch": watch.on_news, "keep_journal": True, **setting.hosting}
    with (
        local(tree, specs(), operators(every), initial, **settings) as deployment,
        watched(deployment, watch),
    ):
        upstream = Upstream(deployment, setting, watch)
        upstream.build(setting.parameters["state_bytes"])
        upstream.flow(setting.warm_s)
        calm_ms, begin = watch.now_ms(), links.positions(deployment)
        upstream.flow(setting.calm_s)
        batches = setting.runner == "microbatch"
        trigger_ms = stream.trigger_ms(deployment.host.query, calm_ms) if batches else None
        requested_ms = watch.now_ms()
        available_ms = upstream.replay()
        upstream.flow(setting.settle_s)
        until_ms, end = watch.now_ms(), links.positions(deployment)
        if available_ms is None:
            found = _proved_so_far(deployment, upstream)
        else:
            found = _proved(deployment, upstream, watch, every)
        above = [site for site in tree.sites if site != EDGE]
        on_links = sum(links.row_bytes(deployment, [(begin, end)], site)[0] for site in above)
    more: dict[str, Any] = {"trigger_ms": trigger_ms, "bytes_on_links": on_links, "proof": found}
    if available_ms is None:
        more["trouble"] = f"not there within {CUT_OFF_S:g} s: its duration is at least that"
        available_ms = requested_ms + CUT_OFF_S * 1000
    outputs = watch.outputs(upstream.keys)
    measured = of_results(cell, outputs, calm_ms, requested_ms, available_ms, until_ms, **more)
    assert measured.cost is not None
    return replace(measured, cost=replace(measured.cost, available_ms=available_ms - requested_ms))


class Upstream(Paced):
    """Sends rows to the join at a steady rate, keeps them, and sends them again."""

    def __init__(self, deployment: Deployment, setting: Setting, watch: Watch) -> None:
        super().__init__(setting.rows_per_s, watch)
        self.keys = [f"k{nth}" for nth in range(setting.feed["keys"])]
        self.kept: list[Row] = []
        self._replayed = 0
        self._cloud = deployment.clients[CLOUD]
        for name in (SENDER, BACKUP):
            self.devices[name] = deployment.device(name, EDGE)

    def send_nth(self, nth: int) -> int:
        row = row_of(len(self.kept), len(self.keys))
        self.devices[SENDER].send(JOIN, row.key, row.payload)
        self.kept.append(row)
        return 1

    def inputs(self) -> Mapping[OpId, Sequence[Row]]:
        return {JOIN: self.kept}

    def build(self, state_bytes: int) -> None:
        """Returns when each key holds so much. Of its rows each second one has a result."""
        rows = state_bytes // TUPLE_BYTES * len(self.keys)
        self._watch.on_sent(sum(map(self.send_nth, range(rows))))
        self.flow_until(lambda: self._watch.rows_out >= rows // 2, "the state is built", BUILD_S)

    def replay(self) -> float | None:
        """What is kept by now, while rows flow on: when the new place had all of it; None if not before the cut-off."""
        with ThreadPoolExecutor(1, "replay") as pool:
            again = pool.submit(self._again, CUT_OFF_S)
            self.flow_while(lambda elapsed_s: not again.done())
            return again.result()

    def catch_up(self) -> None:
        """What has come since then, when no more rows come."""
        if self._again(PATIENCE_S) is None:
            raise PeregrineError(f"the new place lacks rows after {PATIENCE_S:g} s", "see the routers' logs")

    def _again(self, patience_s: float) -> float | None:
        deadline_s, upto = time.monotonic() + patience_s, len(self.kept)
        backup = self.devices[BACKUP]
        for row in self.kept[self._replayed : upto]:
            # It would wait for room itself, but not only until the cut-off.
            while backup.backlog_rows >= WAITING_ROWS:
                if time.monotonic() > deadline_s:
                    return None
                time.sleep(POLL_S)
            backup.send(ANEW, row.key, row.payload)
        self._replayed = upto
        while time.monotonic() < deadline_s:
            # A row takes one offset of a log, and no other rows come to that of the cloud.
            if self._cloud.status().commits.get(CLOUD, 0) >= upto:
                return self._watch.now_ms()
            time.sleep(POLL_S)
        return None


# --- the proof ---


def expected(kept: Sequence[Row], every: int) -> tuple[Lines, States]:
    """When all that was kept has been replayed. The new place holds what the old one holds."""
    lines, states = proof.expected(specs(), operators(every), {JOIN: kept})
    anew = {(str(ANEW), key): value for (_, key), value in states.items()}
    return lines | windows(kept, every), states | anew


def windows(kept: Iterable[Row], every: int) -> Lines:
    """What is told of windows: pair by pair, where the join goes through all that it holds again and again."""
    lines: Lines = {}
    so_far: dict[str, tuple[int, int]] = {}  # of each key: its rows, and what its pairs are worth
    lefts: dict[str, int] = {}
    for nth, row in enumerate(kept):
        rows, worth = so_far.get(row.key, (0, 0))
        if rows % 2:
            worth += lefts[row.key] + _worth(row.payload)
        else:
            lefts[row.key] = _worth(row.payload)
        so_far[row.key] = rows + 1, worth
        if triggers(rows + 1, every):
            line = (str(REPLAYED), _windows_of(row.key), f"{BACKUP}>{row.key}")
            lines.setdefault(line, []).append((nth, msgspec.msgpack.encode([(rows + 1) // 2, worth])))
    return lines


def _proved(deployment: Deployment, upstream: Upstream, watch: Watch, every: int) -> Proof:
    """Results, windows and the state of both places. Every row went to both."""
    upstream.catch_up()
    should, should_states = expected(upstream.kept, every)
    _drain(deployment, watch, sum(map(len, should.values())))
    states = proof.values(deployment.states())
    return proof.prove(2 * len(upstream.kept), deployment.result_lines(), should, states, should_states)


def _drain(deployment: Deployment, watch: Watch, results: int) -> None:
    """What is missing after that is lost, and the proof says so."""
    deadline_s = time.monotonic() + PATIENCE_S
    while time.monotonic() < deadline_s:
        if deployment.results_at_rest() is not None and watch.rows_out >= results:
            return
        time.sleep(0.2)


def _proved_so_far(deployment: Deployment, upstream: Upstream) -> Proof:
    """The results of the old place, as many as there are: a batch that is under way may take much longer."""
    should, _ = proof.expected(specs(), operators(0), {JOIN: upstream.kept})
    return so_far(len(upstream.kept), deployment.result_lines(), should)


def so_far(rows_in: int, got: Lines, should: Lines) -> Proof:
    """Of each line of results, what came must be what comes first."""
    mine = {line: told for line, told in got.items() if line[0] == RESULTS}
    first = {line: told[: len(mine.get(line, ()))] for line, told in should.items()}
    return proof.prove(rows_in, mine, first, {}, {})
