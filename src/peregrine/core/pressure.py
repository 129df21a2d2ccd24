"""Back-pressure between routers: parents tell their children whether they take rows of devices now.

It is told again and again while there is any; that there is none, once. So it is a hint that nobody has to keep: it is
in no journal, and what was heard of it holds for a while only.
"""

from collections.abc import Callable

from peregrine.core.router import Router
from peregrine.core.ways import Ways
from peregrine.types import SiteId

EVERY_S = 0.5
HOLDS_S = 3.0  # without another word from the parent


def is_told(ways: Ways, neighbour: SiteId) -> bool:
    """Is this router the parent? Its links downwards tell."""
    return neighbour != ways.parent and (ways.parent is not None or ways.is_root)


class Telling:
    """At the parent's end of a link, from when the link begins to work until it breaks."""

    def __init__(self, every_s: float = EVERY_S) -> None:
        self.next_s = 0.0
        self._every_s = every_s
        self._told: bool | None = None

    def tell(self, pressed: Callable[[], bool], now_s: float) -> bool | None:
        """What is to be told now, if anything."""
        if now_s < self.next_s:
            return None
        self.next_s = now_s + self._every_s
        now = pressed()
        if not now and self._told is False:
            return None
        self._told = now
        return now


class Hearing:
    """At the child's end, of one life of a router."""

    def __init__(self, router: Router, holds_s: float = HOLDS_S) -> None:
        """What a snapshot has kept of pressure is of long ago."""
        self._router = router
        self._holds_s = holds_s
        self._until_s: float | None = None
        router.hear_pressure(False)

    def hear(self, pressed: bool, now_s: float) -> None:
        self._until_s = now_s + self._holds_s if pressed else None
        self._router.hear_pressure(pressed)

    def review(self, now_s: float) -> None:
        """The parent may have gone, or somebody else may be the parent now."""
        if self._until_s is not None and now_s > self._until_s:
            self.hear(False, now_s)
