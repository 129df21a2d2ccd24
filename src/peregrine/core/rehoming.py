"""A site changes its parent: who takes part, and what the routers tell each other about it (docs/decisions/0022).

Site C, with all below it, goes from parent P to parent Q; M is where the two ways meet. The old branch is P up to below
M, the new branch Q up to below M. A site that is new has no P, one that leaves has no Q; then M is the root.

These messages travel in the streams that they speak of, behind the rows that went before. The rest of an item's way is
in `core/rows.py`, what routers do about it in `core/rehomings.py`.
"""

from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING

from peregrine.core.claims import Claims
from peregrine.core.migrate import Migration
from peregrine.types import SiteId

if TYPE_CHECKING:
    from peregrine.core.rows import Item


@dataclass(frozen=True, slots=True)
class Rehoming:
    site: SiteId
    source: SiteId | None  # the old parent
    target: SiteId | None  # the new one
    meets: SiteId
    number: int = 0  # given when it is carried out, each higher than the last: the session of the new link

    def __str__(self) -> str:
        nth = f" {self.number}" if self.number else ""
        return f"rehoming{nth} of {self.site} from {self.source or 'nowhere'} to {self.target or 'nowhere'}"


@dataclass(frozen=True, slots=True)
class Join:
    """C to M. The new branch learns who is below C, and which keys."""

    rehoming: Rehoming
    mark: int  # the last item that C has of P
    sites: tuple[SiteId, ...]  # C, and all below it
    keys: Claims
    gates: tuple[Migration, ...] = ()  # that run into C's subtree, and whose gate has not opened yet

    @property
    def dest(self) -> SiteId:
        return self.rehoming.meets


@dataclass(frozen=True, slots=True)
class Detach:
    """M to P. The old branch learns that these sites and keys are above now."""

    rehoming: Rehoming
    mark: int
    sites: tuple[SiteId, ...]
    keys: Claims

    @property
    def dest(self) -> SiteId:
        assert self.rehoming.source is not None
        return self.rehoming.source


@dataclass(frozen=True, slots=True)
class Returned:
    """P to C, past what is held for C: an item that C does not have."""

    rehoming: Rehoming
    item: "Item"

    @property
    def dest(self) -> SiteId:
        return self.rehoming.site


@dataclass(frozen=True, slots=True)
class Left:
    """P to M, behind all that P had of C and all that it returned."""

    rehoming: Rehoming
    mark: int  # the last item that P has of C
    keys: Claims  # that P had sent down to C: they go up now

    @property
    def dest(self) -> SiteId:
        return self.rehoming.meets


@dataclass(frozen=True, slots=True)
class Fenced:
    """C to M: an item that may go on only when P has left."""

    rehoming: Rehoming
    item: "Item"
    number: int | None = None  # if it was sent to P before: the number that it had there

    @property
    def dest(self) -> SiteId:
        return self.rehoming.meets


class Said(StrEnum):
    OPENED = "opened"  # M to C: P has left, the fence is open
    SETTLE = "settle"  # C to M, behind the last that is fenced
    SETTLED = "settled"  # M to C: what took the long way is ahead of this
    LEAVE = "leave"  # C to the root: forget this site


@dataclass(frozen=True, slots=True)
class Word:
    said: Said
    rehoming: Rehoming

    @property
    def dest(self) -> SiteId:
        return self.rehoming.meets if self.said in (Said.SETTLE, Said.LEAVE) else self.rehoming.site


Message = Join | Detach | Returned | Left | Fenced | Word
