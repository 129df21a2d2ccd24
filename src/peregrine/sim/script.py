"""A run as a text that a person can read: who is where, who sends what, and what happens when.

Each line is one sentence of `GRAMMAR`; a name is declared before it is used. Nothing is left to chance here, and
nothing is carried out: `parse` gives a `Script`, and `sim/retelling.py` runs it. Whatever follows a line `---` is the
story that the run is expected to tell.
"""

import re
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import NoReturn

from peregrine.core import reconfigure
from peregrine.core.coordinator import Cancel, Submit
from peregrine.core.keyspace import KeySet
from peregrine.core.mechanisms import MECHANISMS
from peregrine.core.messages import KeepReplicas
from peregrine.core.operator import Operator, OpSpec
from peregrine.core.placement import Placement
from peregrine.core.reconfigure import Move, Plan
from peregrine.core.source import Reading
from peregrine.core.topology import Link, Topology
from peregrine.errors import ConfigurationError, UnknownName
from peregrine.sim.operators import Clean, Ledger, Tally, Tumbling
from peregrine.sim.scenario import END_OF_TIME_MS, WINDOW_MS, Beat, Fault, Scenario, SourceScript
from peregrine.types import OpId, PlaceId, SiteId, SourceId

FOLD = "---"
GROUPS = 8
BEAT_ROWS = 5  # so many rows of a windowed application, then a watermark
APPS = ("roam", "plain", "win")

GRAMMAR = """
site NAME [under NAME, N ms[, N mbps]] [, hosts NAME ...]
app NAME
dwell N ms
SOURCE at SITE sends N rows of KEYS every N ms from N
place OPERATOR KEYS at PLACE
replicas of OPERATOR KEYS PLACE -> PLACE
at N migrate MECHANISM OPERATOR KEYS PLACE -> PLACE [-> PLACE ...] [anchor SITE] [chunks N] [lag N] [below N]
at N cancel [PLAN]
at N SOURCE moves to SITE
at N crash router|host|source NAME for N
at N crash manager for N
at N break link SITE for N
at N slow PLACE for N
""".strip().splitlines()


@dataclass(frozen=True)
class Script:
    scenario: Scenario
    commands: tuple[tuple[float, Submit | Cancel], ...]
    replicas: tuple[KeepReplicas, ...]
    head: str  # the text up to and with the fold
    expected: str  # the text behind it


def load(path: Path) -> Script:
    try:
        text = path.read_text()
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigurationError(f"cannot read {path}: {error}", "give the path of a scenario file") from error
    return parse(text, str(path))


def parse(text: str, file: str) -> Script:
    head, fold, expected = text.partition(f"\n{FOLD}\n")
    reader = _Reader()
    number = 0
    try:
        for number, line in enumerate(head.splitlines(), start=1):
            sentence = line.partition("#")[0].strip()
            if sentence:
                reader.read(sentence)
        number = head.count("\n") + 1
        scenario = reader.scenario()
    except ConfigurationError as error:
        raise ConfigurationError(f"{file}, line {number}: {error.what}", error.remedy) from error
    return Script(scenario, tuple(reader.commands), tuple(reader.replicas), f"{head}\n{FOLD}\n", expected if fold else "")


@dataclass
class _Reader:
    parents: dict[SiteId, tuple[SiteId, Link]] = field(default_factory=dict)
    hosts: dict[SiteId, tuple[str, ...]] = field(default_factory=dict)
    root: SiteId | None = None
    app: str | None = None
    dwell_ms: int = 300
    keys_of_source: dict[SourceId, tuple[str, ...]] = field(default_factory=dict)
    sources: dict[SourceId, SourceScript] = field(default_factory=dict)
    initial: list[tuple[OpId, KeySet, PlaceId]] = field(default_factory=list)
    faults: list[Fault] = field(default_factory=list)
    commands: list[tuple[float, Submit | Cancel]] = field(default_factory=list)
    replicas: list[KeepReplicas] = field(default_factory=list)

    def read(self, sentence: str) -> None:
        for pattern, act in SENTENCES:
            if found := pattern.fullmatch(sentence):
                act(self, **found.groupdict())
                return
        raise ConfigurationError(f"cannot read {sentence!r}", "\n          ".join(["write one of:", *GRAMMAR]))

    # --- who is where ---

    def site(self, name: str, parent: str | None, latency: str | None, mbps: str | None, hosts: str | None) -> None:
        site = SiteId(name)
        if self.app is not None:
            raise ConfigurationError(f"site {name!r} comes after the application", "declare all sites first")
        if site == self.root or site in self.parents:
            raise ConfigurationError(f"site {name!r} is there already", "give every site its own name")
        if parent is None and self.root is not None:
            raise ConfigurationError(f"a second root {name!r}", f"write: site {name} under {self.root}, 10 ms")
        if parent is None:
            self.root = site
        elif parent != self.root and parent not in self.parents:
            raise UnknownName("site", parent, [*([self.root] if self.root else []), *self.parents])
        else:
            self.parents[site] = (SiteId(parent), Link(float(latency or 0), float(mbps or 10)))
        if hosts:
            self.hosts[site] = tuple(hosts.split())

    def use(self, name: str) -> None:
        if name not in APPS:
            raise UnknownName("application", name, list(APPS))
        if self.app is not None:
            raise ConfigurationError(f"a second application {name!r}", "keep one: a scenario is about one idea")
        self.app = name
        self.topology = self._topology()
        self.specs = _specs(name)
        self.placement = Placement(self.topology, self.specs)

    def dwell(self, ms: str) -> None:
        self.dwell_ms = int(ms)

    def sends(self, source: str, site: str, rows: str, keys: str, every: str, start: str) -> None:
        self._application()
        at, id, names = self._site(site), SourceId(source), tuple(keys.split(","))
        if id in self.sources:
            raise ConfigurationError(f"source {source!r} is there already", "give every source its own name")
        op = next(iter(self.specs))
        sends: list[tuple[float, Reading | Beat]] = []
        for i in range(int(rows)):
            t = float(start) + i * float(every)
            sends.append((t, Reading(op, names[i % len(names)], int(t), int(t), b"%d" % i)))
            if self.app == "win" and i % BEAT_ROWS == BEAT_ROWS - 1:
                sends.append((t, Beat(op, KeySet.of_keys(GROUPS, names), int(t))))
        if self.app == "win":
            sends.append((float(start) + int(rows) * float(every), Beat(op, KeySet.of_keys(GROUPS, names), END_OF_TIME_MS)))
        self.keys_of_source[id] = names
        self.sources[id] = SourceScript(id, at, self.app == "roam", tuple(sends))

    def place(self, op: str, keys: str, place: str) -> None:
        what, where, to = self._op(op), KeySet.parse(GROUPS, keys), self._place(place)
        producers = [(id, s.site) for id, s in self.sources.items() if any(k in where for k in self.keys_of_source[id])]
        self.placement.check_above(what, to, producers if what == next(iter(self.specs)) else [])
        self.placement.move(what, where, self.topology.main_place(self.topology.root), to)
        self.initial.append((what, where, to))

    def keep(self, op: str, keys: str, source: str, target: str) -> None:
        where = self._place(source), self._place(target)
        self.replicas.append(KeepReplicas(self._op(op), KeySet.parse(GROUPS, keys), *where))

    # --- what happens when ---

    def migrate(
        self, at: str, mechanism: str, op: str, keys: str, path: str,
        anchor: str | None, chunks: str | None, lag: str | None, below: str | None,
    ) -> None:  # fmt: skip
        if mechanism not in MECHANISMS:
            raise UnknownName("mechanism", mechanism, list(MECHANISMS))
        what, moved = self._op(op), KeySet.parse(GROUPS, keys)
        places = [self._place(place.strip()) for place in path.split("->")]
        over = self._site(anchor) if anchor else None
        legs = zip(places, places[1:], strict=False)
        stages = tuple((Move(what, moved, source, target, over),) for source, target in legs)
        if chunks is not None:
            stages = reconfigure.in_chunks(stages, reconfigure.even_chunks(moved, int(chunks)))
        id = f"plan{1 + sum(isinstance(command, Submit) for _, command in self.commands)}"
        self.commands.append((float(at), Submit(Plan(id, stages, mechanism, int(lag or 0), int(below or 0)))))

    def cancel(self, at: str, plan: str | None) -> None:
        plans = [command.plan.id for _, command in self.commands if isinstance(command, Submit)]
        if not plans or plan not in (None, *plans):
            raise UnknownName("plan", plan or "(the last)", plans)
        self.commands.append((float(at), Cancel(plan or plans[-1])))

    def move(self, at: str, source: str, site: str) -> None:
        script = self.sources[self._source(source)]
        if not script.roaming:
            raise ConfigurationError(f"the sources of {self.app} stay where they are", "write: app roam")
        moves = (*script.moves, (float(at), self._site(site)))
        self.sources[script.id] = SourceScript(script.id, script.site, True, script.sends, moves)

    def crash(self, at: str, kind: str, name: str, ms: str) -> None:
        known: dict[str, Callable[[str], str]] = {"router": self._site, "host": self._place, "source": self._source}
        self.faults.append(Fault(float(at), kind, known[kind](name), float(ms)))

    def crash_manager(self, at: str, ms: str) -> None:
        self.faults.append(Fault(float(at), "manager", "manager", float(ms)))

    def break_link(self, at: str, site: str, ms: str) -> None:
        self._application()
        self.topology.link(SiteId(site))
        self.faults.append(Fault(float(at), "link", site, float(ms)))

    def slow(self, at: str, place: str, ms: str) -> None:
        self.faults.append(Fault(float(at), "slow", self._place(place), float(ms)))
