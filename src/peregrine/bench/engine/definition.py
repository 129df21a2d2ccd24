"""An experiment as a file says it, and the cells that it stands for.

    title = "..."                   [base]              # of every cell; what is not said is in `Setting`
    figure = "Falcon, figure 10"    app = "tm"
    shows = "..."                   rows_per_s = 1500
    expect = "..."                  [sweep]             # what differs from cell to cell
    mechanisms = ["live", "pause"]  setting = "round_trip_ms"
    measures = ["jitter_ms"]        [quick]             # and [full]: how much of it
                                    values = [20, 320]

A file is checked whole when it is loaded: every mistake has its place. Pure, but for reading the files.
"""

import hashlib
import math
import re
import tomllib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any, Literal

import msgspec

from peregrine.bench.engine.applications import APPLICATIONS
from peregrine.bench.peers.catalogue import RUNS
from peregrine.core.mechanisms import MECHANISMS
from peregrine.errors import ConfigurationError, UnknownName
from peregrine.plan.adaptive import strategy_of
from peregrine.types import Runner
from peregrine.workloads.generate.ring_line import Shape

EXPERIMENTS = Path(__file__).parent.parent / "experiments"
FORMAT = 2  # of the Parquet files: another number, and all cells are run again
SIZES = ("quick", "full")
MEASURES = {
    "disruption_ms": "disruption (ms)",
    "jitter_ms": "peak latency jitter (ms)",
    "jitter_p99_ms": "99th percentile of jitter (ms)",
    "freeze_ms": "freeze (ms)",
    "duration_ms": "reconfiguration duration (ms)",
    "state_movement_ms": "state movement (ms)",
    "available_ms": "until the state is available (ms)",
    "bytes_moved": "bytes moved by the plan",
    "bytes_on_links": "bytes of state on links, calm included",
    "row_bytes_on_links": "bytes of rows on links while a source drives",
    "row_bytes_in_calm": "bytes of as many rows on links in the calm",
    "row_bytes_up": "bytes of rows on their way up to a key",
    "row_bytes_down": "bytes of rows on their way down to a key, copies included",
    "given_up": "second legs given up",
    "trigger_ms": "time of a batch before the plan (ms)",
    "max_rows_per_s": "rows/s at saturation",
    "dip": "dip of the throughput at the switch (share)",
    "dip_before": "dip of the throughput while the new query is started (share)",
    "handover": "worst hand-over (share of a round trip and a trigger interval)",
    "deployment_ms": "until a topology change is deployed (ms)",
    "event_time_ms": "event-time latency while the topology changes (ms)",
    "downtime_ms": "without any result, longer than in the calm (ms)",
    "late": "results later than agreed",
    "recovery_ms": "from the first to the last late result (ms)",
    "per_month": "what a month would cost, computed ($)",
}
BY_STRATEGY = "by-strategy"
DRIVES = ("drive", "pass", "ping-pong", "ping-pong-late")
BEGINNINGS = ("warm", "cold")
RENTS = ("cloud", "edge", "hourly")
DEPLOYMENTS = ("incremental", "holistic concurrent", "holistic serial")
REPLAYS = ("replay best", "replay average", "replay worst")  # beside mechanisms: engine/replaying.py
CASE = "case"
_BYTES = ("bytes", "KiB", "MiB", "GiB", "TiB")
# Replicas cost what comes next something; a restart leaves Spark cold.
_LAST = {BY_STRATEGY: 1, "replica": 2, "restart": 3}
# What a mechanism needs to be what it is.
_STRATEGIES = {"progressive": "by-arrival, chunks:4", "replica": "by-arrival, ratio:1"}

Count = Annotated[int, msgspec.Meta(ge=1)]
Positive = Annotated[float, msgspec.Meta(gt=0)]
Share = Annotated[float, msgspec.Meta(ge=0, le=1)]


class _Struct(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    pass


class Setting(_Struct, frozen=True):
    """All that decides what one cell does."""

    app: str = "tm"
    parameters: dict[str, Any] = {}  # of the application; what is not said is in the catalogue
    feed: dict[str, Any] = {}  # of the generator of its rows
    rows_per_s: Count = 1500
    preload_rows: int = 0  # as fast as they are taken, before the clock starts: so that keys have state
    edges: Count = 1
    levels: Annotated[int, msgspec.Meta(ge=2, le=18)] = 2  # of sites
    way: Literal["straight", "hop by hop"] = "straight"  # of state over several levels: whole at each of them, or not
    devices: Count | None = None  # at the last edges, one at each; else at all of them
    round_trip_ms: Annotated[float, msgspec.Meta(ge=0)] = 80
    bandwidth_mbps: Positive = 1000
    hosts: Annotated[list[Count], msgspec.Meta(min_length=2)] | None = None  # instead: from so many hosts to so many
    share: Share = 0.5  # of the keys that move
    move_keys: int = 0  # so many instead of a share
    by: str = ""  # what is named: keys, or groups where new keys keep coming; else as the catalogue says
    mechanism: str = "live"  # or "by-strategy": what the strategy amounts to; or a replay
    strategy: str = "by-arrival"  # order, chunks and replicas (plan/strategy.py)
    chunk_keys: int = 0  # and no more than so many in a chunk; 0: as the strategy says
    planned: bool = False  # by `Running.plan`, so that what it predicts is held against what comes
    runner: Runner = "microbatch"  # of all hosts
    trigger_ms: Annotated[int, msgspec.Meta(ge=0)] = 0  # how often a batch begins; 0: when the last one has ended
    trains: Count = 1  # sites that go from edge to edge, each with a source for all applications
    apps: Count = 1  # of a railway
    shape: Shape = "star"  # of a railway
    stateful: bool = False  # what an application knows of a train is at the edge above it, and follows
    filters: bool = False  # the same of an operator without state, which picks what the application wants of a train
    at_once: Count = 1  # so many trains go on
    changes_s: Positive = 10  # for so long,
    change_every_s: Positive = 1  # so often
    agreed_ms: Positive = 1000  # a result that comes later is late
    nearer: bool = False  # the next operator comes to where the first one is, instead of the first to a new edge
    warm_s: Positive = 3
    calm_s: Positive = 2.5
    settle_s: Positive = 1.5

    def times_told(self, elapsed_s: float) -> int:
        """How often trains have gone on by then."""
        return int(min(elapsed_s, self.changes_s) / self.change_every_s) + 1

    @property
    def hosting(self) -> dict[str, Any]:
        """How hosts run, as `local` and `run` want it."""
        return {"runner": self.runner, "trigger_ms": self.trigger_ms}


class Variant(_Struct, frozen=True):
    """One line of a picture: how it is done."""

    name: str
    mechanism: str
    strategy: str = ""  # else that of the mechanism
    way: str = ""  # else straight


class Sweep(_Struct, frozen=True):
    """Which setting differs; a dot leads into `parameters` and `feed`. `case`: several at once, see `cases`."""

    setting: str
    label: str = ""


class Without(_Struct, frozen=True):
    """Variants that would take too long at these values."""

    variants: list[str]
    values: list[Any]


class Size(_Struct, frozen=True):
    values: list[Any] = []
    repetitions: Count = 1
    repeat: dict[str, Count] = {}  # some variants more often: a peak is a noisy figure, the median of three less so
    base: dict[str, Any] = {}
    without: list[Without] = []


class Point(_Struct, frozen=True):
    """What the paper says of a system that works like one of our variants; a range where it gives no number."""

    system: str
    variant: str
    measure: str
    low: float
    high: float | None = None
    x: float | str | None = None  # None: whatever x is
    said: str = ""  # the paper's words, or how the number follows from them


class Definition(_Struct, frozen=True):
    name: str
    title: str
    figure: str
    shows: str
    expect: str
    measures: Annotated[list[str], msgspec.Meta(min_length=1)]
    sweep: Sweep
    quick: Size
    full: Size
    # peers: other systems too; roaming: a car drives; warming: a DataFrame operator moves; railway: sites move. Then
    # variants name runs, how it drives, how it begins, or what is deployed anew, instead of mechanisms. spreading: an
    # operator comes to one more edge; renting: what a month costs, by where the work is done.
    kind: Literal["mechanisms", "peers", "roaming", "warming", "railway", "spreading", "renting"] = "mechanisms"
    base: dict[str, Any] = {}
    mechanisms: list[str] = []
    variants: list[Variant] = []
    cases: dict[str, dict[str, Any]] = {}
    reuse: bool = True  # one deployment for all variants of a value that leave nothing behind
    extrapolate: list[float] = []  # values beyond this machine, to which a straight line is drawn and marked as such
    missing: str = ""  # what of the paper's experiment this one does not do
    points: list[Point] = []


class Cell(msgspec.Struct, frozen=True):
    experiment: str
    variant: str
    x: float  # the value of the sweep, or its number where values are names
    x_label: str
    repetition: int
    setting: Setting

    @property
    def digest(self) -> str:
        said = msgspec.json.encode([FORMAT, self], order="deterministic")
        return hashlib.sha256(said).hexdigest()[:16]

    @property
    def name(self) -> str:
        return f"{self.variant}, {self.x_label}" + (f", again {self.repetition}" if self.repetition else "")


def load_all(folder: Path = EXPERIMENTS) -> dict[str, Definition]:
    """By name, and figure 8 before figure 10."""

    def order(path: Path) -> list[str]:
        return [part.zfill(4) if part.isdigit() else part for part in re.split(r"(\d+)", path.stem)]

    return {path.stem: load(path) for path in sorted(folder.glob("*.toml"), key=order)}


def load(path: Path) -> Definition:
    try:
        raw = {"name": path.stem, **tomllib.loads(path.read_text("utf-8"))}
    except (OSError, UnicodeDecodeError, tomllib.TOMLDecodeError) as error:
        raise ConfigurationError(f"the experiment {path}: {error}", "write a TOML file") from error
    try:
        found = msgspec.convert(raw, Definition)
    except msgspec.ValidationError as error:
        raise ConfigurationError(f"{path.name}: {error}", "see peregrine/bench/engine/definition.py") from error
    _check(found, path.name)
    return found


def variants_of(definition: Definition) -> list[Variant]:
    return [*(Variant(name=name, mechanism=name) for name in definition.mechanisms), *definition.variants]


def cells(definition: Definition, size: str) -> list[Cell]:
    """Those of one value of the sweep stand together, in an order in which one disturbs the next the least."""
    wanted: Size = getattr(definition, size)
    found = []
    for nth, value in enumerate(wanted.values):
        x = float(nth) if isinstance(value, str | list) else float(value)
        left_out = {name for each in wanted.without if value in each.values for name in each.variants}
        for variant in sorted(variants_of(definition), key=lambda each: _LAST.get(each.mechanism, 0)):
            times = 0 if variant.name in left_out else wanted.repeat.get(variant.name, wanted.repetitions)
            for repetition in range(times):
                setting = _setting(definition, wanted, variant, value)
                found.append(Cell(definition.name, variant.name, x, label(definition, value), repetition, setting))
    return found


def _setting(definition: Definition, size: Size, variant: Variant, value: Any) -> Setting:
    case = definition.cases[value] if definition.sweep.setting == CASE else {}
    said: dict[str, Any] = {**definition.base, **size.base, **case, "mechanism": variant.mechanism}
    for name in ("parameters", "feed"):
        said[name] = {**definition.base.get(name, {}), **size.base.get(name, {}), **case.get(name, {})}
    if strategy := variant.strategy or _STRATEGIES.get(variant.mechanism):
        said["strategy"] = strategy
    if variant.way:
        said["way"] = variant.way
    into, _, inner = definition.sweep.setting.partition(".")
    if inner:
        said[into][inner] = value
    elif into != CASE:
        said[into] = value
    return msgspec.convert(said, Setting)


def label(definition: Definition, value: Any) -> str:
    """As people read it."""
    if isinstance(value, str):
        return value
    if isinstance(value, list):
        return " → ".join(map(str, value))
    if definition.sweep.setting.endswith("_bytes"):
        power = min(int(math.log(value, 1024)), len(_BYTES) - 1)
        return f"{value / 1024**power:g} {_BYTES[power]}"
    return f"{value:,g}" if value < 1e6 else f"{value:,.0f}"


# --- mistakes ---


def _check(definition: Definition, file: str) -> None:
    sizes: list[Size] = [getattr(definition, size) for size in SIZES]
    named = [name for size in sizes for each in size.without for name in each.variants]
    named += [name for size in sizes for name in size.repeat]
    for kind, names, known in (
        ("measure", [*definition.measures, *(each.measure for each in definition.points)], list(MEASURES)),
        ("mechanism", [each.mechanism for each in variants_of(definition)], _ways(definition)),
        (
            "variant",
            [*(each.variant for each in definition.points), *named],
            [each.name for each in variants_of(definition)],
        ),
    ):
        _check_names(kind, names, known, file)
    if not variants_of(definition):
        raise ConfigurationError(f"{file}: neither mechanisms nor variants", "name at least one mechanism")
    for size in SIZES:
        if not getattr(definition, size).values:
            raise ConfigurationError(f"{file}: [{size}] has no values", f"list values of {definition.sweep.setting}")
        try:
            found = cells(definition, size)
        except (msgspec.ValidationError, KeyError, TypeError, ValueError) as error:
            raise ConfigurationError(
                f"{file}: [{size}] with sweep {definition.sweep.setting!r}: {error}",
                f"settings are {', '.join(Setting.__struct_fields__)}",
            ) from error
        _check_names("application", [each.setting.app for each in found], list(APPLICATIONS), file)
        _check_names("way to name keys", [each.setting.by for each in found], ["", "keys", "groups"], file)
        for each in found:
            APPLICATIONS[each.setting.app].check(each.setting.parameters, each.setting.feed, file)
            strategy_of(each.setting.strategy)
            if (each.setting.devices or 1) > each.setting.edges and definition.kind != "renting":
                raise ConfigurationError(f"{file}: more devices than edges", "there is one at an edge, or none")
            if each.setting.nearer and (len(APPLICATIONS[each.setting.app].operators) < 2 or each.setting.edges > 1):
                raise ConfigurationError(
                    f"{file}: no operator comes nearer", "name one edge, and an app with two that move"
                )
            if each.setting.planned and (each.setting.hosts or len(APPLICATIONS[each.setting.app].operators) > 1):
                raise ConfigurationError(f"{file}: several moves planned at once", "plan one operator, without hosts")


def _ways(definition: Definition) -> list[str]:
    known: Mapping[str, Sequence[str]] = {
        "peers": [*RUNS],
        "roaming": DRIVES,
        "warming": BEGINNINGS,
        "railway": DEPLOYMENTS,
        "renting": RENTS,
    }
    return list(known.get(definition.kind, [*MECHANISMS, BY_STRATEGY, *REPLAYS]))


def _check_names(kind: str, names: Sequence[str], known: list[str], file: str) -> None:
    for name in names:
        if name not in known:
            raise UnknownName(f"{kind} in {file}", name, known)
