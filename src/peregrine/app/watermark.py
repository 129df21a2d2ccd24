"""How far event time has come for a key: as far as the slowest of its sources says.

A source that says nothing for too long is given up, so that one lost device does not keep all windows open; it counts
again as soon as it says something. Clock ticks in the log decide when that happens, so a replay decides the same.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from itertools import repeat

from peregrine.app.logic import NEVER
from peregrine.types import SourceId

Heard = dict[str, list[int]]  # source -> [its mark, the tick at which that was first seen]


@dataclass(frozen=True)
class Watermark:
    sources: tuple[SourceId, ...] | None = None  # whose marks count; None: all that the key has heard of
    delay_ms: int = 0  # how much older than a row those behind it may be
    lost_after_ms: int | None = None

    def of(self, marks: Mapping[str, int]) -> int:
        if self.sources is None:
            return min(marks.values()) - self.delay_ms if marks else NEVER
        lowest = min(map(marks.get, self.sources, repeat(NEVER)), default=NEVER)
        return lowest - self.delay_ms if lowest != NEVER else NEVER

    def held_back_by(self, marks: Mapping[str, int], watermark_ms: int) -> str | None:
        """The source that has come no further than this watermark."""
        mark = watermark_ms + self.delay_ms
        return next((each for each in self.sources or marks if marks.get(each) == mark), None)

    def without_lost(self, marks: Mapping[str, int], heard: Heard, now_ms: int) -> int:
        """As `of`, at a tick, without the sources that have been silent for too long. Remembers in `heard`."""
        assert self.lost_after_ms is not None
        present: dict[str, int] = {}
        for source in self.sources if self.sources is not None else sorted(marks):
            mark = marks.get(source, NEVER)
            before = heard.get(source)
            if before is None or before[0] != mark:
                heard[source] = [mark, now_ms]
            elif now_ms - before[1] >= self.lost_after_ms:
                continue
            present[source] = mark
        if not present:  # nobody is left to wait for: what is there is all there is
            present = {source: mark for source, (mark, _) in heard.items() if mark != NEVER}
            highest = max(present.values(), default=NEVER)
            return highest - self.delay_ms if highest != NEVER else NEVER
        lowest = min(present.values())
        return lowest - self.delay_ms if lowest != NEVER else NEVER
