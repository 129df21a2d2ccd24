"""The machine loses power: the journal is whole, and the logs of effects may have lost what they had not synced.

Copies of a directory are damaged as a disk would do it: what was synced at the last snapshot is there, of the rest any
part may be missing, also an earlier page and not a later one.
"""

import random
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from msgspec.structs import replace
from real_sites import GROUPS, OP, OPERATORS

from peregrine.core.keyspace import KeySet
from peregrine.core.messages import FromSource, SetOwner
from peregrine.core.rows import UNCHAINED, Row, Rows, batch_of
from peregrine.core.topology import Link, Topology
from peregrine.errors import CorruptLog
from peregrine.net.settings import RouterSettings
from peregrine.net.stepper import Stepper
from peregrine.net.store import Store
from peregrine.types import OpId, PlaceId, SiteId, SourceId

CLOUD, EDGE = SiteId("cloud"), SiteId("edge")
LOGS = ("hosts/cloud", "out/edge", "results", "dead")
PAGE = 4096
# An operator (or none) and a key for each of the logs: here, at the edge, a sink, nobody.
ROADS = ((OP, "here"), (OP, "there"), (OPERATORS[1].op, "k"), (OpId("app/nobody"), "k"))
Contents = dict[str, list[tuple[int, bytes]]]


def rows(nth: int) -> FromSource:
    op, key = ROADS[nth % len(ROADS)]
    given = [Row(key, SourceId("s"), 10 * nth + i, UNCHAINED, 0, 0, b"%d" % nth * 80) for i in range(10)]
    return FromSource(SourceId("s"), ((10 * nth + 9, Rows(op, batch_of(given))),))


class Before:
    """A router that has stopped: its directory, what was synced at its snapshot, and what its logs held."""

    def __init__(self, directory: Path, snapshot: bool = True) -> None:
        topology = Topology.tree(CLOUD, {EDGE: (CLOUD, Link(0.0, 1.0))})
        self.settings = RouterSettings.of(
            CLOUD, topology, OPERATORS, directory, directory / "token", tick_ms=3_600_000, snapshot_mb=1.0
        )
        stepper = Stepper(self.settings, Store(self.settings), lambda error: None)
        stepper.start()
        stepper.offer(SetOwner(OP, KeySet.of_keys(GROUPS, ["there"]), PlaceId(EDGE)))
        for nth in range(120):
            stepper.offer(rows(nth))
        self.synced: dict[str, int] = {}  # bytes of each file
        if snapshot:
            stepper.ask(stepper.snapshot)
            paths = [path for name in LOGS for path in files(directory, name)]
            self.synced = {str(path.relative_to(directory)): path.stat().st_size for path in paths}
        for nth in range(120, 240):
            stepper.offer(rows(nth))
        stepper.stop()
        stepper.store.close()
        with Opened(self.settings) as opened:
            self.contents = opened.contents()
        assert all(self.contents.values())


class Opened:
    """A router that has recovered."""

    def __init__(self, settings: RouterSettings) -> None:
        self.store = Store(settings)
        try:
            self.stepper = Stepper(settings, self.store, lambda error: None)
        except BaseException:
            self.store.close()
            raise
        self.stepper.start()

    def contents(self) -> Contents:
        found: Contents = {}
        for name in LOGS:
            log, records = self.store._logs[name], []
            position = log.first
            while some := log.read(position):
                records += some
                position = some[-1][0] + 1
            found[name] = records
        return found

    def __enter__(self) -> "Opened":
        return self

    def __exit__(self, *exc: object) -> None:
        self.stepper.stop()
        self.store.close()


def files(directory: Path, log: str) -> list[Path]:
    return sorted((directory / log).glob("*.log"))


def tear(path: Path, synced: int, rng: random.Random) -> None:
    """What had not been synced ends somewhere."""
    with open(path, "r+b") as file:
        file.truncate(rng.randint(synced, path.stat().st_size))


def blank(path: Path, synced: int, rng: random.Random) -> None:
    """The file has grown, and its last pages were not written."""
    size = path.stat().st_size
    at = rng.randint(synced, size)
    with open(path, "r+b") as file:
        file.seek(at)
        file.write(bytes(size - at))


def hole(path: Path, synced: int, rng: random.Random) -> None:
    """A page in the middle was not written, and those behind it were."""
    at = rng.randint(synced, max(path.stat().st_size - PAGE, synced))
    with open(path, "r+b") as file:
        file.seek(at)
        file.write(bytes(min(PAGE, path.stat().st_size - at)))


@pytest.fixture(scope="module")
def before(tmp_path_factory: pytest.TempPathFactory) -> Before:
    return Before(tmp_path_factory.mktemp("power") / "cloud")


@pytest.fixture
def copy(before: Before, tmp_path: Path) -> Iterator[Callable[[], RouterSettings]]:
    made: list[Path] = []

    def again() -> RouterSettings:
        made.append(tmp_path / f"copy{len(made)}")
        shutil.copytree(before.settings.directory, made[-1])
        return replace(before.settings, directory=str(made[-1]))

    yield again


@pytest.mark.parametrize("damage", [tear, blank, hole])
def test_what_the_logs_lost_since_the_snapshot_is_made_again_from_the_journal(
    before: Before, copy: Callable[[], RouterSettings], damage: Callable[[Path, int, random.Random], None]
) -> None:
    shortened = 0
    for seed in range(12):
        settings, rng = copy(), random.Random(seed)
        for name in LOGS:
            path = files(Path(settings.directory), name)[-1]  # a segment is synced before the next one begins
            synced = before.synced.get(str(path.relative_to(settings.directory)), 0)
            damage(path, synced, rng)
        with Opened(settings) as opened:
            shortened += len(opened.store.recovered)
            assert opened.contents() == before.contents, f"seed {seed}"
            end = opened.store.results.end
            for nth in range(240, 244):
                opened.stepper.offer(rows(nth))
            assert opened.store.results.end == end + 10
    assert shortened > 12  # most cuts are in the middle of a record


def test_logs_that_are_gone_are_made_again_if_nothing_was_cut_yet(tmp_path: Path) -> None:
    made = Before(tmp_path / "cloud", snapshot=False)
    for name in LOGS:
        shutil.rmtree(tmp_path / "cloud" / name)
    with Opened(made.settings) as opened:
        assert opened.contents() == made.contents


@pytest.mark.parametrize("name", LOGS)
def test_a_log_that_lost_what_had_been_synced_is_refused(
    before: Before, copy: Callable[[], RouterSettings], name: str
) -> None:
    for seed in range(5):
        settings = copy()
        synced = {file: size for file, size in before.synced.items() if file.startswith(name)}
        last = max(synced)
        for path in files(Path(settings.directory), name):
            if str(path.relative_to(settings.directory)) > last:
                path.unlink()
        with open(Path(settings.directory) / last, "r+b") as file:
            file.truncate(random.Random(seed).randrange(synced[last]))
        with pytest.raises(CorruptLog, match="at the last snapshot it ended at") as caught:
            Opened(settings)
        assert "copy" in caught.value.remedy
    settings = copy()
    shutil.rmtree(Path(settings.directory) / name)
    with pytest.raises(CorruptLog, match="at the last snapshot it ended at"):
        Opened(settings)


def test_a_journal_that_knows_less_than_the_logs_is_refused(copy: Callable[[], RouterSettings]) -> None:
    settings = copy()
    *_, path, last = files(Path(settings.directory), "journal")
    last.unlink()
    with open(path, "r+b") as file:
        file.truncate(path.stat().st_size - 1)
    with pytest.raises(CorruptLog, match="the journal has lost events"):
        Opened(settings)


def test_a_journal_that_does_not_reach_the_snapshot_is_refused(copy: Callable[[], RouterSettings]) -> None:
    settings = copy()
    first, *later = files(Path(settings.directory), "journal")
    for path in later:
        path.unlink()
    first.write_bytes(b"")
    with pytest.raises(CorruptLog, match=r"and the snapshot in .* was taken at"):
        Opened(settings)


def test_a_journal_without_the_snapshot_behind_which_it_was_cut_is_refused(copy: Callable[[], RouterSettings]) -> None:
    settings = copy()
    assert int(files(Path(settings.directory), "journal")[0].stem) > 0
    (Path(settings.directory) / "snapshot").unlink()
    with pytest.raises(CorruptLog, match="taken at 0"):
        Opened(settings)
