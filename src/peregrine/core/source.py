"""A device that produces rows: it numbers them, keeps what is not acknowledged, and resends after a move or a crash.

One batch is on its way at a time; what is produced meanwhile makes the next batch larger. A router therefore sees a
source's rows without gaps, and can recognise repeats by one number (Falcon III-F, router switchover).
"""

from collections import deque
from collections.abc import Iterable
from dataclasses import dataclass, replace

from peregrine.core.messages import FromSource
from peregrine.core.rows import FIRST, UNCHAINED, Clock, Row, Rows, batch_of
from peregrine.types import OpId, SiteId, SourceId


@dataclass(frozen=True, slots=True)
class Reading:
    """What a sensor says: a row without its header."""

    op: OpId
    key: str
    time_ms: int
    created_ms: int
    payload: bytes


Kept = tuple[int, OpId, Row] | tuple[int, OpId, Clock]


class Source:
    def __init__(self, id: SourceId, site: SiteId, roaming: bool = False, max_rows: int = 1000) -> None:
        self.id = id
        self.site = site
        self.roaming = roaming
        self.moves = 0  # tells which of two sites it has connected to later
        self._max_rows = max_rows
        self._next_seq = 0
        self._last_of_key: dict[tuple[OpId, str], int] = {}
        self._kept: deque[Kept] = deque()  # durable on the device
        self._on_its_way: int | None = None  # last seq of the batch that waits for its acknowledgement

    def produce(self, reading: Reading) -> None:
        seq = self._take_seq()
        prev = UNCHAINED
        if self.roaming:
            prev = self._last_of_key.get((reading.op, reading.key), FIRST)
            self._last_of_key[reading.op, reading.key] = seq
        row = Row(reading.key, self.id, seq, prev, reading.time_ms, reading.created_ms, reading.payload)
        self._kept.append((seq, reading.op, row))

    def heartbeat(self, clock: Clock) -> None:
        """Quiet sources say how far their event time is; one that roams says behind which rows (decision 0004)."""
        seq = self._take_seq()
        if self.roaming:
            mine = [key for op, key in self._last_of_key if op == clock.op and key in clock.keys]
            clock = replace(clock, seq=seq, behind=tuple((key, self._last_of_key[clock.op, key]) for key in mine))
            self._last_of_key.update(((clock.op, key), seq) for key in mine)
        self._kept.append((seq, clock.op, clock))

    def batch(self) -> FromSource | None:
        """The next batch to send to the router of `site`, unless one is on its way."""
        if self._on_its_way is not None or not self._kept:
            return None
        kept = [self._kept[i] for i in range(min(self._max_rows, len(self._kept)))]
        self._on_its_way = kept[-1][0]
        return FromSource(self.id, tuple(_packed(kept)))

    def acked(self, seq: int) -> None:
        while self._kept and self._kept[0][0] <= seq:
            self._kept.popleft()
        if self._on_its_way is not None and seq >= self._on_its_way:
            self._on_its_way = None

    def lost(self) -> None:
        """No answer, or a refusal (back-pressure): send again what was not acknowledged."""
        self._on_its_way = None

    def move(self, site: SiteId) -> None:
        """Connected elsewhere: whatever the old router did not acknowledge goes to the new one."""
        self.site = site
        self.moves += 1
        self._on_its_way = None

    @property
    def kept(self) -> deque[Kept]:
        """What is not acknowledged yet; a device has this on its disk."""
        return self._kept

    @property
    def next_seq(self) -> int:
        """How many rows and heartbeats it has numbered so far."""
        return self._next_seq

    @property
    def backlog_rows(self) -> int:
        return len(self._kept)

    def _take_seq(self) -> int:
        self._next_seq += 1
        return self._next_seq - 1


def _packed(kept: Iterable[Kept]) -> Iterable[tuple[int, Rows | Clock]]:
    """Neighbouring rows of one operator become one batch."""
    rows: list[Row] = []
    op: OpId | None = None
    for seq, of, what in kept:
        if rows and op is not None and (isinstance(what, Clock) or of != op):
            yield rows[-1].seq, Rows(op, batch_of(rows))
            rows = []
        if isinstance(what, Clock):
            yield seq, what
        else:
            op = of
            rows.append(what)
    if rows and op is not None:
        yield rows[-1].seq, Rows(op, batch_of(rows))
