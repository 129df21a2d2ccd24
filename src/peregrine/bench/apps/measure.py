"""One application, or one set of operators: made ready, checked, and measured several times."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from peregrine import App, InMemory
from peregrine.app.compile import compile_app
from peregrine.bench.apps.cases import Case
from peregrine.bench.apps.feed import Sent, Tables, feed, records_of, senders_of
from peregrine.bench.apps.host import Run, run
from peregrine.core.operator import Operator, OpSpec
from peregrine.types import OpId

BATCH_ROWS = 5000
OTHER_BATCH_ROWS = 700  # of the run that does not count: the same must come out
CHECKED_ROWS = 600  # as many records are sent one by one to the application in memory


@dataclass
class Ready:
    """What can be measured."""

    name: str
    specs: Mapping[OpId, OpSpec]
    operators: Mapping[OpId, Operator]
    steps: Sequence[Sequence[Sent]]
    said: str = ""
    silent: bool = False  # nothing comes out, on purpose
    wrong: list[str] = field(default_factory=list)


@dataclass(frozen=True)
class Measured:
    """The fastest of several runs: whatever else runs on the machine only makes them slower."""

    name: str
    said: str
    best: Run
    wrong: tuple[str, ...]


def ready(name: str, case: Case, rows: int) -> Ready:
    tables = case.tables(max(rows // case.fewer, 1))
    compiled = compile_app(case.app(senders_of(tables)))
    found = Ready(name, compiled.specs, compiled.operators, feed(compiled, tables), case.said)
    found.wrong += disagreements(case)
    return found


def disagreements(case: Case) -> list[str]:
    """Where the results of some records are not those of the application in memory, to which they go one by one."""
    tables = case.tables(CHECKED_ROWS // case.fewer)
    app = case.app(senders_of(tables))
    compiled = compile_app(app)
    found = run(compiled.specs, compiled.operators, feed(compiled, tables), BATCH_ROWS)
    memory = _in_memory(app, tables)
    wrong = []
    for name, (op, schema) in compiled.results.items():
        mine = sorted(payload for result, _, payload in found.results if result == op)
        if mine != sorted(map(schema.encode, memory.results(name))):
            wrong.append(f"{name}: {len(mine)} results, {len(memory.results(name))} in memory, and they differ")
    return wrong


def _in_memory(app: App, tables: Tables) -> InMemory:
    memory = InMemory(app)
    for source, sender, record in records_of(memory.compiled, tables):
        memory.send(source, record, sender)
    memory.finish()
    return memory


def measure(these: Sequence[Ready], repeats: int) -> list[Measured]:
    """In turns, so that a machine that is busy for a while is so for all of them."""
    first = [run(each.specs, each.operators, each.steps, OTHER_BATCH_ROWS) for each in these]
    runs: list[list[Run]] = [[] for _ in these]
    for _ in range(repeats):
        for nth, each in enumerate(these):
            runs[nth].append(run(each.specs, each.operators, each.steps, BATCH_ROWS))
    found = []
    for each, other, mine in zip(these, first, runs, strict=True):
        wrong = list(each.wrong)
        if any(one.results != other.results for one in mine):
            wrong.append("results depend on how batches were cut")
        if bool(other.results) is each.silent:
            wrong.append(f"{len(other.results)} results came out")
        best = min(mine, key=lambda one: one.seconds)
        found.append(Measured(each.name, each.said, best, tuple(wrong)))
    return found
