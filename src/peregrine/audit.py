"""What the journals of a finished run tell beside its results: who emitted for a key, and what is left or lost.

Pure. A router is a function of its journal, so stepping through it once more shows every effect that the router had.
The journals of a deployment have no common clock: emissions are laid along the order in which results landed, and those
to other operators along their numbers.
Operators are expected to name the key for which they emit at the end of an output's source, behind a `>`; without it,
the key of the output is taken for it. DataFrame operators, which emit for many keys at once, name their place there.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from itertools import groupby
from pathlib import Path

from peregrine.core import journal
from peregrine.core.intake import Intake, RouterConfig
from peregrine.core.messages import Begin, DeadLetter, Deliver, Effect, Emitted, Event, FromSource, Report, Together
from peregrine.core.migrate import Migration
from peregrine.core.placement import Initial
from peregrine.core.router import Router
from peregrine.core.rows import Clock, Rows, rows_of
from peregrine.errors import ConfigurationError, PeregrineError
from peregrine.log.record_log import RecordLog
from peregrine.types import MigrationId, OpId, PlaceId, SiteId

Line = tuple[OpId, str, str]  # (operator that takes it, key, source)


@dataclass
class Audit:
    """What was seen in the journals of all sites."""

    emitted: dict[Line, dict[int, tuple[OpId, PlaceId]]] = field(default_factory=dict)  # seq -> by which op, where
    entered: dict[Line, set[int]] = field(default_factory=dict)  # what sources gave to a sink, past all operators
    landed: dict[Line, list[int]] = field(default_factory=dict)
    sinks: set[OpId] = field(default_factory=set)
    places: set[str] = field(default_factory=set)
    begun: dict[MigrationId, tuple[int, Migration]] = field(default_factory=dict)
    done: set[MigrationId] = field(default_factory=set)
    violations: list[str] = field(default_factory=list)

    def read(self, config: RouterConfig, events: Iterable[Event]) -> None:
        """All events of one site, from the first on."""
        # A door of its own for what sources give: a batch may come again, numbered otherwise.
        router = Router(config)
        door = Intake(config, router.ways)
        self.sinks |= {op for op, spec in config.operators.items() if spec.sink}
        joined = config.site not in config.topology  # later, without a host
        self.places |= set() if joined else set(config.topology.places(config.site))
        for event in events:
            for each in event.events if isinstance(event, Together) else (event,):
                match each:
                    case Begin(migration):
                        self.begun.setdefault(migration.id, (router.now_ms, migration))
                    case FromSource():
                        self._enter(door.from_source(each))
            try:
                effects = router.step(event)
            except PeregrineError:
                continue  # refused then, and refused again
            for effect in effects:
                self._note(config.site, effect)
        self.violations += [f"left behind at {config.site}: {left}" for left in router.leftovers()]

    def _enter(self, items: Iterable[Rows | Clock]) -> None:
        for given in items:
            if isinstance(given, Rows) and given.op in self.sinks:
                for row in rows_of(given.batch):
                    self.entered.setdefault((given.op, row.key, row.source), set()).add(row.seq)

    def _note(self, site: SiteId, effect: Effect) -> None:
        match effect:
            case Emitted(place, op, rows):
                for row in rows_of(rows.batch):
                    line = self.emitted.setdefault((rows.op, row.key, row.source), {})
                    if row.seq in line:
                        first = line[row.seq][1]
                        self.violations.append(f"{rows.op} {row.key} {row.seq} was emitted at {first} and at {place}")
                    line[row.seq] = op, place
            case Deliver(_, rows):
                for row in rows_of(rows.batch):
                    self.landed.setdefault((rows.op, row.key, row.source), []).append(row.seq)
            case DeadLetter(_, reason):
                self.violations.append(f"dead letter at {site}: {reason}")
            case Report(_, migration, "done"):
                self.done.add(migration)

    def found(self, home: PlaceId, initial: Initial = ()) -> list[str]:
        """All that is wrong. `home` is where keys are that `initial` does not place."""
        moves = [migration for _, migration in sorted(self.begun.values(), key=lambda begun: begun[0])]
        found = list(self.violations)
        for line in sorted(self.landed.keys() | self.emitted.keys() | self.entered.keys()):
            emitted, name = self.emitted.get(line, {}), " ".join(line)
            seqs = self.landed.get(line, [] if line[0] in self.sinks else sorted(emitted))
            by = [emitted[seq] for seq in seqs if seq in emitted]
            landed, known = set(seqs), emitted.keys() | self.entered.get(line, set())
            for wrong, count in (
                ("were emitted by nobody", len(landed - known)),
                ("landed more than once", len(seqs) - len(landed)),
                ("have not landed", len(known - landed)),
            ):
                if count:
                    found.append(f"{count} results of {name} {wrong}")
            for op in sorted({op for op, _ in by}):
                places = [place for place, _ in groupby(place for of, place in by if of == op)]
                key = line[2].rpartition(">")[2] if ">" in line[2] else line[1]
                path = [PlaceId(key)] if key in self.places else self._path(op, key, home, initial, moves)
                rest = iter(path)
                if not all(place in rest for place in places):
                    found.append(f"{op} {key} was at {', '.join(path)} but emitted at {', '.join(places)}")
        return found

    def _path(self, op: OpId, key: str, home: PlaceId, initial: Initial, moves: list[Migration]) -> list[PlaceId]:
        owner = next((place for o, keys, place in initial if o == op and key in keys), home)
        mine = [move for move in moves if move.op == op and key in move.keys and move.id in self.done]
        return [owner, *(move.target for move in mine)]


def audit(
    configs: Mapping[SiteId, RouterConfig], journals: Mapping[SiteId, Path], home: PlaceId, initial: Initial = ()
) -> list[str]:
    """Of routers that have ended, with journals from which nothing has been cut off."""
    seen = Audit()
    for site, config in configs.items():
        seen.read(config, _events(journals[site]))
    return seen.found(home, initial)


def _events(directory: Path) -> Iterable[Event]:
    records = RecordLog(directory)
    try:
        position = records.first
        if position:
            raise ConfigurationError(
                f"the journal {directory} begins at {position}: a snapshot has cut off what was before",
                "run with keep_journal=True",
            )
        while found := records.read(position):
            for at, raw in found:
                yield journal.decode(raw)
                position = at + 1
    finally:
        records.close()
