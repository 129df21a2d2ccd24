"""A run as a text that a person can read: who is where, who sends what, and what happens when.

Each line is one of the `SENTENCES` below; a name is declared before it is used. Nothing is carried out here: `parse`
gives a `Script`, and `sim/retelling.py` runs it. What follows a line `---` is the story that the run should tell.
"""

import re
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from itertools import pairwise
from pathlib import Path

from peregrine.core import reconfigure
from peregrine.core.coordinator import Cancel, Submit
from peregrine.core.keyspace import KeySet
from peregrine.core.mechanisms import MECHANISMS
from peregrine.core.messages import KeepReplicas, StopReplicas
from peregrine.core.operator import Operator, OpSpec
from peregrine.core.placement import Placement
from peregrine.core.reconfigure import Move, Plan, Stage
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


@dataclass(frozen=True)
class Script:
    scenario: Scenario
    commands: tuple[tuple[float, Submit | Cancel], ...]
    replicas: tuple[tuple[float, KeepReplicas | StopReplicas], ...]
    head: str  # the text up to and with the fold
    expected: str  # the text behind it


def load(path: Path) -> Script:
    try:
        text = path.read_text()
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigurationError(f"cannot read {path}: {error}", "give the path of a scenario file") from error
    return parse(text, str(path))


def parse(text: str, file: str) -> Script:
    head, _, expected = text.partition(f"\n{FOLD}\n")
    reader = _Reader()
    lines = [*head.rstrip().splitlines(), FOLD]
    for number, line in enumerate(lines, start=1):
        sentence = line.partition("#")[0].strip()
        try:
            if sentence == FOLD:
                scenario = reader.scenario()
            elif sentence:
                reader.read(sentence)
        except ConfigurationError as error:
            raise ConfigurationError(f"{file}, line {number}: {error.what}", error.remedy) from error
    return Script(scenario, tuple(reader.commands), tuple(reader.replicas), "\n".join(lines) + "\n", expected)


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
    replicas: list[tuple[float, KeepReplicas | StopReplicas]] = field(default_factory=list)

    def read(self, sentence: str) -> None:
        for form, act in SENTENCES.items():
            if found := re.fullmatch(_pattern(form), " ".join(sentence.split())):
                return act(self, **found.groupdict())
        raise ConfigurationError(f"cannot read {sentence!r}", "\n    ".join(["write one of these:", *SENTENCES]))

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
        self.hosts[site] = tuple((hosts or "").split())

    def use(self, name: str) -> None:
        if name not in APPS:
            raise UnknownName("application", name, list(APPS))
        if self.app is not None:
            raise ConfigurationError(f"a second application {name!r}", "keep one: a scenario is about one idea")
        if self.root is None:
            raise ConfigurationError("no site yet", "write: site cloud")
        self.app = name
        self.topology = Topology.tree(self.root, self.parents, self.hosts)
        self.specs = _specs(name)
        self.first = next(iter(self.specs))  # the operator to which sources send
        self.placement = Placement(self.topology, self.specs)

    def dwell(self, ms: str) -> None:
        self.dwell_ms = int(ms)

    def sends(self, source: str, site: str, rows: str, keys: str, every: str, start: str) -> None:
        at, id, names = self._site(site), SourceId(source), tuple(keys.split(","))
        if id in self.sources:
            raise ConfigurationError(f"source {source!r} is there already", "give every source its own name")
        op = self.first
        for key in names:
            self.placement.check_above(op, self.placement.owner(op, key), [(id, at)])
        keyset = KeySet.of_keys(GROUPS, names)
        sends: list[tuple[float, Reading | Beat]] = []
        for i, t in enumerate(range(int(start), int(start) + int(rows) * int(every), int(every))):
            sends.append((t, Reading(op, names[i % len(names)], t, t, b"%d" % i)))
            if self.app == "win" and i % BEAT_ROWS == BEAT_ROWS - 1:
                sends.append((t, Beat(op, keyset, t)))
        if self.app == "win":
            sends.append((sends[-1][0] + 1, Beat(op, keyset, END_OF_TIME_MS)))
        self.keys_of_source[id] = names
        self.sources[id] = SourceScript(id, at, self.app == "roam", tuple(sends))

    def place(self, op: str, keys: str, place: str) -> None:
        what, where, to = self._op(op), KeySet.parse(GROUPS, keys), self._place(place)
        producers = [(id, s.site) for id, s in self.sources.items() if any(k in where for k in self.keys_of_source[id])]
        self.placement.check_above(what, to, producers if what == self.first else [])
        self.placement.move(what, where, self.topology.main_place(self.topology.root), to)
        self.initial.append((what, where, to))

    def keep(self, at: str | None, op: str, keys: str, source: str, target: str, often: str | None) -> None:
        where = self._place(source), self._place(target)
        keep = KeepReplicas(self._op(op), KeySet.parse(GROUPS, keys), *where)
        self.replicas.append((float(at or 0), replace(keep, every_ms=int(often)) if often else keep))

    def stop(self, at: str, op: str, keys: str, source: str, target: str) -> None:
        where = self._place(source), self._place(target)
        self.replicas.append((float(at), StopReplicas(self._op(op), KeySet.parse(GROUPS, keys), *where)))

    # --- what happens when ---

    def migrate(
        self, at: str, mechanism: str, op: str, keys: str, path: str,
        anchor: str | None, chunks: str | None, n: str | None,
    ) -> None:  # fmt: skip
        """More than two places are several legs, one after the other; `below` is for `shed`."""
        if mechanism not in MECHANISMS:
            raise UnknownName("mechanism", mechanism, list(MECHANISMS))
        what, moved = self._op(op), KeySet.parse(GROUPS, keys)
        places = [self._place(place.strip()) for place in path.split("->")]
        over = self._site(anchor) if anchor else None
        stages: tuple[Stage, ...] = tuple((Move(what, moved, *leg, over),) for leg in pairwise(places))
        if chunks is not None:
            stages = reconfigure.in_chunks(stages, reconfigure.even_chunks(moved, int(chunks)))
        id = f"plan{1 + sum(isinstance(command, Submit) for _, command in self.commands)}"
        self.commands.append((float(at), Submit(Plan(id, stages, mechanism, shed_below=int(n or 0)))))

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
        self.topology.link(self._site(site))
        self.faults.append(Fault(float(at), "link", site, float(ms)))

    def slow(self, at: str, place: str, ms: str) -> None:
        self.faults.append(Fault(float(at), "slow", self._place(place), float(ms)))

    # --- all of it ---

    def scenario(self) -> Scenario:
        self._application()
        if not self.sources:
            raise ConfigurationError("nobody sends", "write: car1 at edge1 sends 9 rows of car1 every 10 ms from 0")
        used = [MECHANISMS[command.plan.mechanism] for _, command in self.commands if isinstance(command, Submit)]
        ordered, lossless = all(m.ordered for m in used), all(m.lossless for m in used)
        return Scenario(
            seed=0,
            topology=self.topology,
            specs=self.specs,
            operators=self._operators(ordered),
            initial=tuple(self.initial),
            sources=tuple(self.sources.values()),
            keys_of={self.first: tuple(sorted({key for keys in self.keys_of_source.values() for key in keys}))},
            feeds={id: ((self.first, KeySet.of_keys(GROUPS, keys)),) for id, keys in self.keys_of_source.items()},
            faults=tuple(sorted(self.faults, key=lambda fault: fault.at_ms)),
            dwell_ms=self.dwell_ms,
            ordered=ordered,
            lossless=lossless,
        )

    def _operators(self, ordered: bool) -> dict[OpId, Operator]:
        match list(self.specs):
            case [track, sink] if self.app == "roam":
                return {track: Ledger(sink, running=ordered)}
            case [clean, total, sink]:
                return {clean: Clean(total), total: Ledger(sink) if ordered else Tally(sink)}
            case [count, sink]:
                return {count: Tumbling(sink, count, WINDOW_MS, self._sources_of)}
        raise AssertionError(f"an application without operators: {self.app}")

    def _sources_of(self, key: str) -> tuple[str, ...]:
        return tuple(source for source, keys in self.keys_of_source.items() if key in keys)

    # --- names ---

    def _application(self) -> None:
        if self.app is None:
            raise ConfigurationError("no application yet", f"after the sites, write: app {'|'.join(APPS)}")

    def _site(self, name: str) -> SiteId:
        self._application()
        return self.topology.site(SiteId(name)).id

    def _place(self, name: str) -> PlaceId:
        self._application()
        return self.topology.place(name)

    def _op(self, name: str) -> OpId:
        self._application()
        if name not in self.placement.operators:
            raise UnknownName("operator", name, list(self.placement.operators))
        return OpId(name)

    def _source(self, name: str) -> SourceId:
        if name not in self.sources:
            raise UnknownName("source", name, list(self.sources))
        return SourceId(name)


# What a line may say. In [brackets] is what may be left out.
SENTENCES: dict[str, Callable[..., None]] = {
    "site <name>[ under <parent>, <latency> ms[, <mbps> mbps]][, hosts <hosts>]": _Reader.site,
    "app <name>": _Reader.use,
    "dwell <ms> ms": _Reader.dwell,
    "<source> at <site> sends <rows> rows of <keys> every <every> ms from <start>": _Reader.sends,
    "place <op> <keys> at <place>": _Reader.place,
    "[at <at> ]replicas of <op> <keys> <source> -> <target>[ every <often> ms]": _Reader.keep,
    "at <at> stop replicas of <op> <keys> <source> -> <target>": _Reader.stop,
    "at <at> migrate <mechanism> <op> <keys> <path>[ anchor <anchor>][ chunks <chunks>][ below <n>]": _Reader.migrate,
    "at <at> cancel[ <plan>]": _Reader.cancel,
    "at <at> <source> moves to <site>": _Reader.move,
    "at <at> crash <kind> <name> for <ms>": _Reader.crash,
    "at <at> crash manager for <ms>": _Reader.crash_manager,
    "at <at> break link <site> for <ms>": _Reader.break_link,
    "at <at> slow <place> for <ms>": _Reader.slow,
}
_NAME = r"[^\s,]+"
_NUMBERS = ("at", "ms", "latency", "mbps", "start", "chunks", "n")
_WORDS = dict.fromkeys(_NUMBERS, "[0-9]+") | {
    "rows": "[1-9][0-9]*",
    "every": "[1-9][0-9]*",
    "often": "[1-9][0-9]*",
    "keys": r"\S+",
    "path": r"\S+(?: -> \S+)+",
    "hosts": r"\w+(?: \w+)*",
    "kind": "router|host|source",
}


def _pattern(form: str) -> str:
    optional = form.replace("[", "(?:").replace("]", ")?")
    return re.sub(r"<(\w+)>", lambda name: f"(?P{name[0]}{_WORDS.get(name[1], _NAME)})", optional)


def _specs(app: str) -> dict[OpId, OpSpec]:
    """The operators of an application in the order in which rows pass them, and the sink where they end."""
    sink = OpId(f"{app}/results")
    track, clean, total, count = OpId("roam/track"), OpId("plain/clean"), OpId("plain/sum"), OpId("win/count")
    specs = {
        "roam": [OpSpec(track, GROUPS, roaming=True, feeds=(sink,))],
        "plain": [OpSpec(clean, GROUPS, stateless=True, feeds=(total,)), OpSpec(total, GROUPS, feeds=(sink,))],
        "win": [OpSpec(count, GROUPS, windowed=True, feeds=(sink,))],
    }[app]
    return {spec.op: spec for spec in [*specs, OpSpec(sink, GROUPS, sink=True)]}
