"""Peregrine: keyed, stateful PySpark streams across a hierarchy of sites, redeployed while they run.

What users need is here by name, and imported when it is first used: importing the package imports nothing else.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from peregrine.app.aggregates import Avg as Avg
    from peregrine.app.aggregates import Collect as Collect
    from peregrine.app.aggregates import Count as Count
    from peregrine.app.aggregates import CountDistinct as CountDistinct
    from peregrine.app.aggregates import First as First
    from peregrine.app.aggregates import Fold as Fold
    from peregrine.app.aggregates import Last as Last
    from peregrine.app.aggregates import Max as Max
    from peregrine.app.aggregates import MaxBy as MaxBy
    from peregrine.app.aggregates import Min as Min
    from peregrine.app.aggregates import MinBy as MinBy
    from peregrine.app.aggregates import Sum as Sum
    from peregrine.app.checks import deterministic as deterministic
    from peregrine.app.functions import Side as Side
    from peregrine.app.joins import Interval as Interval
    from peregrine.app.model import App as App
    from peregrine.app.testing import InMemory as InMemory
    from peregrine.app.windows import CountSliding as CountSliding
    from peregrine.app.windows import CountTumbling as CountTumbling
    from peregrine.app.windows import Session as Session
    from peregrine.app.windows import Sliding as Sliding
    from peregrine.app.windows import Tumbling as Tumbling
    from peregrine.control.running import run as run
    from peregrine.core.topology import Link as Link
    from peregrine.core.topology import Site as Site
    from peregrine.core.topology import Topology as Topology
    from peregrine.plan.redeploy.detector import Patience as Patience
    from peregrine.plan.redeploy.events import LinkRemoved as LinkRemoved
    from peregrine.plan.redeploy.events import LinkSet as LinkSet
    from peregrine.plan.redeploy.events import SiteMoved as SiteMoved
    from peregrine.plan.redeploy.events import SiteRemoved as SiteRemoved
    from peregrine.plan.redeploy.events import SiteSet as SiteSet
    from peregrine.plan.redeploy.events import Station as Station

__version__ = "0.1.0"

_WHERE = {
    "app.aggregates": "Avg Collect Count CountDistinct First Fold Last Max MaxBy Min MinBy Sum",
    "app.checks": "deterministic",
    "app.functions": "Side",
    "app.joins": "Interval",
    "app.model": "App",
    "app.testing": "InMemory",
    "app.windows": "CountSliding CountTumbling Session Sliding Tumbling",
    "control.running": "run",
    "core.topology": "Link Site Topology",
    "plan.redeploy.detector": "Patience",
    "plan.redeploy.events": "LinkRemoved LinkSet SiteMoved SiteRemoved SiteSet Station",
}
_MODULES = {name: module for module, names in _WHERE.items() for name in names.split()}

__all__ = sorted(_MODULES)


def __getattr__(name: str) -> Any:
    if name not in _MODULES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"peregrine.{_MODULES[name]}"), name)
