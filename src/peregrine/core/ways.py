"""What a router knows of the tree: its parent, and for each site below it the child that leads there.

It changes when sites change their parents (`core/rehomings.py`). A router needs to know nothing else: whatever is not
below it is reached by way of its parent, and a site that nobody knows is found out at the root.
"""

from peregrine.core.topology import Topology
from peregrine.types import SiteId


class Ways:
    def __init__(self, topology: Topology, site: SiteId) -> None:
        """A site that is not in the topology yet begins without a parent."""
        self.site = site
        self.parent = topology.parent(site) if site in topology else None
        self.is_root = site == topology.root
        self.below: dict[SiteId, SiteId] = {}
        for child in topology.children(site) if site in topology else ():
            self.below.update(dict.fromkeys((child, *topology.below(child)), child))

    def has(self, site: SiteId) -> bool:
        """Is it here or below?"""
        return site == self.site or site in self.below

    def reaches(self, site: SiteId) -> bool:
        return not self.is_root or self.has(site)
