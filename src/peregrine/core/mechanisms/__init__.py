"""Twelve mechanisms by name, for most kinds of the survey's taxonomy; `__main__.py` says which kinds are not there.

A new one is a new small file and one line here.
"""

from collections.abc import Mapping

from peregrine.core.mechanisms.drain import DRAIN
from peregrine.core.mechanisms.indirect import INDIRECT
from peregrine.core.mechanisms.live import LIVE
from peregrine.core.mechanisms.live_unordered import LIVE_UNORDERED
from peregrine.core.mechanisms.on_demand import ON_DEMAND
from peregrine.core.mechanisms.pause import PAUSE
from peregrine.core.mechanisms.program import Mechanism
from peregrine.core.mechanisms.progressive import PROGRESSIVE
from peregrine.core.mechanisms.replica import REPLICA
from peregrine.core.mechanisms.restart import RESTART
from peregrine.core.mechanisms.shed import SHED
from peregrine.core.mechanisms.static_dynamic import STATIC_DYNAMIC
from peregrine.core.mechanisms.window_recreation import WINDOW_RECREATION

MECHANISMS: Mapping[str, Mechanism] = {
    mechanism.name: mechanism
    for mechanism in (
        LIVE,
        LIVE_UNORDERED,
        PAUSE,
        PROGRESSIVE,
        ON_DEMAND,
        REPLICA,
        STATIC_DYNAMIC,
        WINDOW_RECREATION,
        DRAIN,
        INDIRECT,
        RESTART,
        SHED,
    )
}

__all__ = ["MECHANISMS", "Mechanism"]
