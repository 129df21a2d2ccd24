"""A continuous host in the simulator: entries are applied one by one as they come, and committed epochs later.

A process of the host that dies loses what it has in memory. One that is only thought dead goes on beside the next one,
and may even be the one that is asked for what is to be committed: all of them apply the same log.
"""

from collections.abc import Sequence
from functools import partial
from typing import Any

from peregrine.core.host import GroupEntry, Output, by_group, work_off
from peregrine.core.large import Spill
from peregrine.core.messages import Ahead
from peregrine.core.outgoing import outgoing
from peregrine.core.rows import length
from peregrine.core.shard import Applied, Shard, Unit, is_awaited
from peregrine.errors import MissingChunk
from peregrine.sim.machines import RETRY_MS, SimHost
from peregrine.types import OpId

SILENT = 0.05  # how often a task finds that its process does not answer
GRACE_MS = 400.0  # in which nothing is collected that was touched
AWAITED_MS = 100.0  # for so long it is told how far it is, when keys have come
_LATELY = OpId(""), 0
ZOMBIE = 0.4  # how often one that is thought dead is not


class Process:
    """Begins with what is committed."""

    def __init__(self, host: "ContinuousHost") -> None:
        self._host = host
        self._busy = False
        self.handing_over = False  # what it has in memory is ahead of what its router has accepted
        self.running = True
        self.position = host.committed
        self._units: dict[OpId, Unit] = {}
        self._awaited_until_ms = -1.0

    def unit(self, op: OpId) -> Unit:
        if op not in self._units:
            committed = self._host.shards.get(op, Shard())
            loaded = Shard(max(committed.upto, self.position), committed.groups, committed.refs)
            self._units[op] = Unit(loaded, lambda *of: self._apply(op, *of))
        return self._units[op]

    def _apply(self, op: OpId, group: int, before: bytes, entries: Sequence[tuple[int, GroupEntry]]) -> Applied:
        host = self._host
        spill = Spill(host.chunks, host.sizes)
        outputs, after = work_off(host.operators[op], before, entries, host.chunk_bytes, spill)
        host.touch(spill.needed)
        return Applied(outputs, after, spill)

    def wake(self) -> None:
        host = self._host
        if self.running and not self._busy and host.log.end > self.position:
            self._busy = True
            host.world.after(host.world.rng.uniform(0.1, 3.0) * host.slowness, self._step)

    def _step(self) -> None:
        host, rng = self._host, self._host.world.rng
        if self.position < host.log.first:
            self.running = False  # others have gone on, and what it would read next is cut off: it is refused
        if not self.running:
            return
        entries = host.log.read(self.position, rng.choice((1, 1, 1, 8)))
        end = entries[-1][0] + length(entries[-1][1])
        parts = list(by_group(entries, host.groups).items())
        rng.shuffle(parts)
        of_groups: dict[OpId, list[tuple[int, list[Output]]]] = {}
        try:
            for (op, group), part in parts:
                fresh = [each for each in part if each[0] >= self.unit(op).upto]
                if fresh:
                    of_groups.setdefault(op, []).append((group, self.unit(op).apply(group, fresh)))
        except MissingChunk:  # it was too slow, and others have gone on: the committed state has all that it needs
            self.running = False
            return
        outputs = [event for op, mine in of_groups.items() for event in outgoing(host.place, op, mine)]
        waiting = set(range(len(outputs)))
        self.handing_over = True

        def accepted(i: int) -> None:
            if outputs and i not in waiting:
                return  # a repeat
            waiting.discard(i)
            host.handed_over(bool(outputs))
            if not waiting and self.running and self.position < end:
                self.position = end
                for unit in self._units.values():
                    unit.upto = max(unit.upto, end)
                self._busy = self.handing_over = False
                if is_awaited(entries):
                    self._awaited_until_ms = host.world.now_ms + AWAITED_MS
                if host.world.now_ms <= self._awaited_until_ms:
                    host.router.offer(Ahead(host.place, end), lambda: None)
                self.wake()

        def hand_over() -> bool:
            if not self.running or not waiting:
                return False
            for i in sorted(waiting):
                host.router.offer(outputs[i], partial(accepted, i))
            return True

        if not outputs:
            accepted(0)
        elif hand_over():
            host.world.every(RETRY_MS, hand_over)

    def take(self, held: dict[OpId, int]) -> dict[OpId, Shard]:
        return {op: unit.take(held.get(op, 0)) for op, unit in self._units.items()}


class ContinuousHost(SimHost):
    def __init__(self, *given: Any) -> None:
        super().__init__(*given)
        self.shards: dict[OpId, Shard] = {}  # committed
        self._process = Process(self)
        self.zombies: list[Process] = []
        self._touched: dict[bytes, float] = {}

    def wake(self) -> None:
        for process in (self._process, *self.zombies):
            process.wake()
        if self.up and not self._busy and self.log.end > self.committed:
            self._busy = True
            epoch = self._epoch
            self.world.after(self.world.rng.uniform(5.0, 80.0) * self.slowness, lambda: self._attach(epoch))

    def _attach(self, epoch: int) -> None:
        """A task: it asks a process that runs, also one that was given up, and waits until that is far enough."""
        if epoch != self._epoch:
            return
        rng, end = self.world.rng, self.log.end
        if rng.random() < SILENT:
            self._give_up()
        if self._process in self.zombies or not self._process.running:
            self._process = Process(self)
            self._process.wake()
        process = rng.choice([self._process, self._process, *(each for each in self.zombies if each.running)])

        def take() -> bool:
            if epoch != self._epoch or not process.running:
                if epoch == self._epoch:
                    self._busy = False
                    self.wake()
                return False
            if process.position < end or process.handing_over:
                return True
            first = self.committed
            held = {op: max(shard.upto, first) for op, shard in self.shards.items()}
            taken = process.take(held)
            if not self._keep(taken):
                process.running = False  # it has had this in memory for too long
                return take()
            self.world.after(rng.uniform(0.5, 40.0) * self.slowness, lambda: self._store(epoch, taken, end))
            return False

        self.world.every(2.0, take)

    def _store(self, epoch: int, taken: dict[OpId, Shard], end: int) -> None:
        if epoch != self._epoch or self.committed >= end:
            return
        for op, shard in taken.items():
            if shard.groups:
                self.shards.setdefault(op, Shard(0, {}, {})).take_over(shard)
                self.states.update({(op, group): blob for group, blob in shard.groups.items()})
        self._commit(epoch, {}, end)

    def touch(self, names: set[bytes]) -> None:
        """What was touched lately is not collected, whoever needs it (net/chunk_collector.py)."""
        self._touched.update(dict.fromkeys(names, self.world.now_ms))
        self.references[_LATELY] = {
            name for name, at_ms in self._touched.items() if at_ms > self.world.now_ms - GRACE_MS
        }

    def _keep(self, taken: dict[OpId, Shard]) -> bool:
        """What the committed state needs, and the one that is about to be, if all of it is there."""
        needed = {name for shard in taken.values() for group in shard.groups for name in shard.chunks(group)}
        if not all(map(self.chunks.has, needed)):
            return False
        for op, shard in taken.items():
            committed = self.shards.get(op, Shard())
            for group in shard.groups:
                self.references[op, -1 - group] = committed.chunks(group) | shard.chunks(group)
        return True

    def handed_over(self, outputs: bool) -> None:
        if self.doomed is not None and outputs:
            self.world.after(0.0, self.doomed)
            self.doomed = None

    def crash(self) -> None:
        super().crash()
        self._give_up()

    def _give_up(self) -> None:
        if self.world.rng.random() < ZOMBIE:
            self.zombies.append(self._process)
        else:
            self._process.running = False

    def restart(self) -> None:
        self._process = Process(self)
        super().restart()
