"""What a run at scale is measured by: every row's result once and in order, every key's state whole, and how quick.

The audit knows nothing of routers and migrations: it sees rows when they are produced, results when they are delivered
and states when all is over.
"""

from array import array
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from peregrine.core.rows import Rows


@dataclass(frozen=True, slots=True)
class Latency:
    rows: int
    mean_ms: float
    p50_ms: float
    p99_ms: float
    max_ms: float

    @classmethod
    def of(cls, samples_ms: "array[float]") -> "Latency":
        if not samples_ms:
            return cls(0, 0.0, 0.0, 0.0, 0.0)
        p50, p99 = np.percentile(samples_ms, (50, 99)).tolist()
        numbers = (float(np.mean(samples_ms)), p50, p99, max(samples_ms))
        return cls(len(samples_ms), *(round(number, 2) for number in numbers))

    def __str__(self) -> str:
        return f"{self.mean_ms:.1f} / {self.p50_ms:.1f} / {self.p99_ms:.1f} / {self.max_ms:.1f} ms"


@dataclass(frozen=True, slots=True)
class Traffic:
    """Bytes per link, of links of one kind."""

    links: int
    mean_bytes: float
    max_bytes: int

    @classmethod
    def of(cls, sizes: list[int]) -> "Traffic":
        return cls(len(sizes), round(sum(sizes) / max(len(sizes), 1), 1), max(sizes, default=0))

    def __str__(self) -> str:
        return f"{_bytes(self.mean_bytes)} / {_bytes(self.max_bytes)}"


@dataclass(frozen=True, slots=True)
class Cost:
    """What the run cost the machine that simulated it: the only part that differs from run to run."""

    setup_s: float
    wall_s: float  # with the setup
    events_per_s: float
    peak_memory_mb: float  # of the process, so of everything it did before as well


@dataclass(frozen=True, slots=True)
class ScaleReport:
    edges: int
    regions: int
    sites: int
    keys: int
    sources: int
    mobile_sources: int
    virtual_s: float
    rows_in: int
    keys_with_rows: int
    results_out: int
    lost: int
    repeated: int
    out_of_order: int
    wrong_states: int
    unfinished: tuple[str, ...]  # what was still under way or left behind when the run ended
    steady: Latency
    in_motion: Latency
    edge_up: Traffic
    edge_down: Traffic
    region_up: Traffic
    region_down: Traffic
    legs_up: int
    legs_down: int
    cancelled: int
    state_bytes_moved: int
    sources_moved: int
    events: int
    cost: Cost

    @property
    def passed(self) -> bool:
        return not (self.lost or self.repeated or self.out_of_order or self.wrong_states or self.unfinished)

    def as_dict(self) -> dict[str, Any]:
        return {"passed": self.passed, **asdict(self), "unfinished": list(self.unfinished)}

    def table(self) -> list[tuple[str, str]]:
        mobile = f"{self.mobile_sources:,} of {self.sources:,} sources, {self.sources_moved:,} moves"
        return [
            ("sites", f"{self.sites:,} (1 cloud, {self.regions:,} regions, {self.edges:,} edges)"),
            ("keys", f"{self.keys:,}, {self.keys_with_rows:,} of them with rows"),
            ("sources that roam", mobile),
            ("virtual time", f"{self.virtual_s:.1f} s"),
            ("rows in", f"{self.rows_in:,}"),
            ("results out (one per row)", f"{self.results_out:,}"),
            ("lost / repeated / out of order", f"{self.lost:,} / {self.repeated:,} / {self.out_of_order:,}"),
            ("keys with a wrong state", f"{self.wrong_states:,}"),
            ("unfinished", "; ".join(self.unfinished) or "nothing"),
            ("latency mean / p50 / p99 / max", str(self.steady)),
            ("  of keys in motion", f"{self.in_motion} ({self.in_motion.rows:,} rows)"),
            ("bytes per link mean / max: edge to region", str(self.edge_up)),
            ("  region to edge", str(self.edge_down)),
            ("  region to cloud", str(self.region_up)),
            ("  cloud to region", str(self.region_down)),
            ("migrations up / down / cancelled", f"{self.legs_up:,} / {self.legs_down:,} / {self.cancelled:,}"),
            ("state moved", _bytes(self.state_bytes_moved)),
            ("simulated events", f"{self.events:,} ({self.cost.events_per_s:,.0f} per second)"),
            ("took", f"{self.cost.wall_s:.1f} s, of which {self.cost.setup_s:.1f} s to set up"),
            ("peak memory", f"{self.cost.peak_memory_mb:,.0f} MB"),
        ]


class Audit:
    """Compares what was delivered with what was produced, for each key and source."""

    def __init__(self) -> None:
        self.rows_in = 0
        self.results_out = 0
        self.repeated = 0
        self.out_of_order = 0
        self.steady_ms = array("d")
        self.in_motion_ms = array("d")
        self.rows_of: dict[str, int] = {}  # key -> rows produced
        self._open: dict[tuple[str, str], list[int]] = {}  # (key, source) -> rows whose result has not come
        self._left_ms: dict[str, float] = {}  # key -> when its source left
        self._settled_ms: dict[str, float] = {}  # key -> when it had followed

    def produced(self, key: str, source: str, seq: int) -> None:
        self.rows_in += 1
        self.rows_of[key] = self.rows_of.get(key, 0) + 1
        self._open.setdefault((key, source), []).append(seq)

    def left(self, key: str, now_ms: float) -> None:
        """The source of a key has moved: its rows are in motion from here on."""
        if key not in self._left_ms or self._settled_ms.pop(key, None) is not None:
            self._left_ms[key] = now_ms

    def settled(self, key: str, now_ms: float) -> None:
        self._settled_ms[key] = now_ms

    def delivered(self, rows: Rows, now_ms: float) -> None:
        keys, sources, seqs, created = (rows.batch.column(i).to_pylist() for i in (0, 2, 3, 6))
        self.results_out += len(keys)
        for key, source, seq, created_ms in zip(keys, sources, seqs, created, strict=True):
            self._tick_off((key, source), seq)
            in_motion = self._in_motion(key, created_ms) if key in self._left_ms else False
            (self.in_motion_ms if in_motion else self.steady_ms).append(now_ms - created_ms)

    def _tick_off(self, at: tuple[str, str], seq: int) -> None:
        waiting = self._open.get(at, [])
        if seq not in waiting:
            self.repeated += 1
            return
        if waiting[0] != seq:
            self.out_of_order += 1
        waiting.remove(seq)
        if not waiting:
            del self._open[at]

    def _in_motion(self, key: str, created_ms: float) -> bool:
        return self._left_ms[key] <= created_ms <= self._settled_ms.get(key, created_ms)

    @property
    def lost(self) -> int:
        return sum(map(len, self._open.values()))

    def wrong_counts(self, found: Mapping[str, int]) -> int:
        """`found`: how many rows the state of each key has seen."""
        return sum(found.get(key, 0) != rows for key, rows in self.rows_of.items())


def _bytes(size: float) -> str:
    for unit in ("B", "kB", "MB"):
        if size < 1000:
            return f"{size:,.0f} {unit}" if unit == "B" else f"{size:,.1f} {unit}"
        size /= 1000
    return f"{size:,.1f} GB"
