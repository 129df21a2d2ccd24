"""Runs seeds, one or many, and says of each what happened as a small value that can be compared.

A seed gives the same run on every machine, in every process and for every PYTHONHASHSEED: the digest covers everything
that a run came to, so one comparison shows it. Whatever a seed raises is a finding about that seed, never the end of
the search.
"""

import signal
import traceback
from collections import Counter
from collections.abc import Callable, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from concurrent.futures.process import BrokenProcessPool
from dataclasses import dataclass, field
from hashlib import blake2b
from itertools import islice
from multiprocessing import get_context
from multiprocessing.synchronize import Event

from peregrine.errors import PeregrineError
from peregrine.sim.checkers import check, results, states
from peregrine.sim.scenario import Options, draw
from peregrine.sim.simulation import Simulation

CHUNK_SEEDS = 4
TRACEBACK_LINES = 6
CANCELLED = "cancelled"  # the name under which a run counts plans that were taken back


@dataclass(frozen=True)
class SeedResult:
    seed: int
    rows: int  # results of the undisturbed run
    migrations: dict[str, int]  # by mechanism, those that ended
    cancelled: int
    refused: int
    crashes: int
    events: int  # of both runs
    violations: tuple[str, ...]
    digest: str
    rehomed: int = 0  # sites that joined, changed their parents or left
    put_off: int = 0  # changes of the topology that could not be deployed when they came
    late: int = 0  # sites that were still on their way to a new parent when the next change began
    detours: int = 0  # links that were lost while somebody changed parents by way of them, and gone round
    amiss: int = 0  # operators with keys that are not above their producers in the end, and of which that was told


@dataclass(frozen=True)
class Played:
    """One seed with everything about it. What raised an error is there as far as it came."""

    result: SeedResult
    run: Simulation
    reference: Simulation


@dataclass
class Totals:
    """The sum of many results, in whatever order they come."""

    runs: int = 0
    rows: int = 0
    migrations: Counter[str] = field(default_factory=Counter)
    cancelled: int = 0
    refused: int = 0
    crashes: int = 0
    events: int = 0
    rehomed: int = 0
    put_off: int = 0
    late: int = 0
    detours: int = 0
    amiss: int = 0
    violating: list[SeedResult] = field(default_factory=list)

    def add(self, result: SeedResult) -> None:
        self.runs += 1
        self.rows += result.rows
        self.migrations.update(result.migrations)
        self.cancelled += result.cancelled
        self.refused += result.refused
        self.crashes += result.crashes
        self.events += result.events
        self.rehomed += result.rehomed
        self.put_off += result.put_off
        self.late += result.late
        self.detours += result.detours
        self.amiss += result.amiss
        if result.violations:
            self.violating.append(result)


def run_seed(seed: int, options: Options) -> SeedResult:
    try:
        return play(seed, options).result
    except Exception as error:  # not even its scenario could be built
        return SeedResult(seed, 0, {}, 0, 0, 0, 0, (_finding(error),), "")


def play(seed: int, options: Options) -> Played:
    """Run a seed and its reference, and compare them."""
    scenario = draw(seed, options)
    run, reference = Simulation(scenario), Simulation(scenario.reference())
    try:
        reference.run()
        run.run()
        violations = [str(violation) for violation in check(run, reference)]
        if not reference.observed.finished:
            violations.append("the reference ends: a run without any change did not come to rest")
    except Exception as error:
        violations = [_finding(error)]
    ended = run.observed.ended
    result = SeedResult(
        seed=seed,
        rows=sum(len(line) for line in results(reference).values()),
        migrations={name: count for name, count in sorted(ended.items()) if name != CANCELLED},
        cancelled=ended[CANCELLED],
        refused=run.observed.refused,
        crashes=run.observed.crashes,
        events=run.world.events + reference.world.events,
        violations=tuple(violations),
        digest=digest(run),
        rehomed=run.observed.rehomed,
        put_off=run.observed.put_off,
        late=run.observed.late,
        detours=run.observed.detours,
        amiss=run.observed.amiss,
    )
    return Played(result, run, reference)


def run_many(seeds: Sequence[int], options: Options, processes: int, on_result: Callable[[SeedResult], None]) -> None:
    """Results come in the order in which they are ready. Ctrl-C ends the workers after the seed that each is at."""
    if processes <= 1 or len(seeds) <= CHUNK_SEEDS:
        for seed in seeds:
            on_result(run_seed(seed, options))
        return
    # Spawned, not forked: a progress bar's thread must not be copied in the middle of what it does.
    context = get_context("spawn")
    stop = context.Event()
    workers = min(processes, -(-len(seeds) // CHUNK_SEEDS))
    try:
        with ProcessPoolExecutor(workers, context, _become_worker, (stop,)) as pool:
            try:
                _feed(pool, 2 * workers, seeds, options, on_result)
            finally:
                stop.set()
                pool.shutdown(wait=True, cancel_futures=True)
    except BrokenProcessPool as error:
        raise PeregrineError(
            "a worker process was killed, perhaps because memory ran out", "use fewer workers: --processes 1"
        ) from error


def digest(run: Simulation) -> str:
    """Of the results in their order, the states of all keys, and the story with its times."""
    found, twice = states(run)
    parts = (sorted(results(run).items()), sorted(found.items()), twice, run.world.story)
    return blake2b(repr(parts).encode(), digest_size=16).hexdigest()


def _feed(
    pool: ProcessPoolExecutor,
    ahead: int,
    seeds: Sequence[int],
    options: Options,
    on_result: Callable[[SeedResult], None],
) -> None:
    """Keep as many chunks under way as the workers need, however many seeds there are."""
    chunks = iter([seeds[i : i + CHUNK_SEEDS] for i in range(0, len(seeds), CHUNK_SEEDS)])
    under_way: set[Future[list[SeedResult]]] = set()
    while True:
        under_way |= {pool.submit(_run_chunk, chunk, options) for chunk in islice(chunks, ahead - len(under_way))}
        if not under_way:
            return
        ready, under_way = wait(under_way, return_when=FIRST_COMPLETED)
        for future in ready:
            for result in future.result():
                on_result(result)


_stop: Event | None = None  # in a worker: the parent wants to end


def _become_worker(stop: Event) -> None:
    global _stop
    _stop = stop
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C reaches the whole group: only the parent answers it


def _run_chunk(seeds: Sequence[int], options: Options) -> list[SeedResult]:
    assert _stop is not None
    done = []
    for seed in seeds:
        if _stop.is_set():
            break
        done.append(run_seed(seed, options))
    return done


def _finding(error: Exception) -> str:
    last = "".join(traceback.format_tb(error.__traceback__)).splitlines()[-TRACEBACK_LINES:]
    story = getattr(error, "__notes__", [])  # of the migration or site (core/trail.py)
    return "\n".join([f"raised {type(error).__name__}: {error}", *last, *story])
