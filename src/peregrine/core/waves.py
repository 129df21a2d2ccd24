"""Sites change their parents, wave by wave, as their routers report it: how a redeployment changes the tree.

A rehoming begins when no router is on its ways and on those of one that is open, and nothing moves that it would
disturb. A redeployment that is held up may be let go (`Waves.late`): its rehomings then go on beside those of others,
and whoever plans keeps away from their ways (`Obstacles`).
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Protocol

from peregrine.core.coordinator import Coordinator, CoordinatorEffect, ToRouter
from peregrine.core.keyspace import KeySet
from peregrine.core.messages import Rehome
from peregrine.core.rehoming import Rehoming
from peregrine.core.topology import Link, Site, Topology
from peregrine.types import OpId, SiteId


class Told(Protocol):
    """Who knows how sites and links are that are not in the tree yet."""

    def site(self, site: SiteId) -> Site: ...
    def link(self, a: SiteId, b: SiteId) -> Link: ...


@dataclass(frozen=True, slots=True)
class Obstacles:
    """What a new redeployment has to keep away from."""

    late: tuple[Rehoming, ...]  # that have not ended, of redeployments that were let go
    topology: Topology  # the tree as it is: the one that was planned has them where they will be
    used: Callable[[SiteId], bool]  # does a plan that runs move anything to or from a site? Then it cannot leave
    busy: Callable[[OpId, KeySet], bool]  # does somebody move any of these keys?


@dataclass(slots=True, eq=False)
class Waves:
    """The rehomings of one redeployment."""

    redeployment: int
    rest: list[tuple[Rehoming, ...]]  # waves that are to come
    to_begin: list[Rehoming] = field(default_factory=list)  # of this wave: they wait for migrations, or for others
    open: dict[int, Rehome] = field(default_factory=dict)
    done: list[Rehoming] = field(default_factory=list)
    late: bool = False

    @property
    def over(self) -> bool:
        return not (self.open or self.to_begin or self.rest)

    def remaining(self) -> Iterator[Rehoming]:
        yield from (command.rehoming for command in self.open.values())
        yield from self.to_begin
        for wave in self.rest:
            yield from wave


class Rehomer:
    def __init__(self, coordinator: Coordinator, told: Told) -> None:
        self._coordinator = coordinator
        self._told = told
        self.running: list[Waves] = []
        self._numbers = 0

    @property
    def late(self) -> list[Waves]:
        return [waves for waves in self.running if waves.late]

    def remaining(self, late: bool = False) -> tuple[Rehoming, ...]:
        return tuple(each for waves in self.running if waves.late or not late for each in waves.remaining())

    def commands(self) -> list[Rehome]:
        """That have been given, and not been carried out."""
        return [command for waves in self.running for command in waves.open.values()]

    def obstacles(self) -> Obstacles:
        coordinator = self._coordinator
        return Obstacles(self.remaining(late=True), self._topology, coordinator.uses, coordinator.busy)

    # --- carrying them out ---

    def go_on(self, waves: Waves) -> list[CoordinatorEffect]:
        """As far as it goes without waiting for anybody."""
        effects: list[CoordinatorEffect] = []
        if waves not in self.running:
            self.running.append(waves)
        if waves.rest and not waves.to_begin and not waves.open:
            waves.to_begin = list(waves.rest.pop(0))
        waiting, waves.to_begin = waves.to_begin, []
        for rehoming in waiting:
            if self._may_begin(rehoming):
                effects.append(self._begin(waves, rehoming))
            else:
                waves.to_begin.append(rehoming)
        if waves.over:
            self.running.remove(waves)
        return effects

    def _may_begin(self, rehoming: Rehoming) -> bool:
        if any(self._share(rehoming, command.rehoming) for command in self.commands()):
            return False
        return not self._coordinator.disturbed(rehoming.site, self._tree_after(rehoming, self._topology))

    def _begin(self, waves: Waves, rehoming: Rehoming) -> ToRouter:
        self._numbers += 1
        topology = self._topology
        gates = self._coordinator.changing(rehoming.site, partial(self._tree_after, rehoming))
        below = topology.below(rehoming.site) if rehoming.site in topology else ()
        command = waves.open[self._numbers] = Rehome(replace(rehoming, number=self._numbers), gates, below)
        return ToRouter(rehoming.site, command)

    def carried_out(self, number: int) -> tuple[Waves, list[CoordinatorEffect]] | None:
        """None: it is not known, or not any more."""
        for waves in self.running:
            if (command := waves.open.pop(number, None)) is not None:
                waves.done.append(command.rehoming)
                after = self._tree_after(command.rehoming, self._topology)
                return waves, self._coordinator.changed(command.rehoming.site, after)
        return None

    # --- ways ---

    def _share(self, one: Rehoming, other: Rehoming) -> bool:
        """Is a router on the ways of both, or is one that is on the way of one where the ways of the other meet? They
        may meet at the same site. (Of sites that join or leave only the way is learnt or forgotten.)
        """
        mine, theirs = self._ways(one), self._ways(other)
        if not mine or not theirs:
            return False
        return not mine.isdisjoint(theirs | {other.meets}) or one.meets in theirs

    def _ways(self, rehoming: Rehoming) -> set[SiteId]:
        """From the site to where its old way and its new one meet, without that."""
        if rehoming.source is None or rehoming.target is None:
            return set()
        path = self._topology.path(rehoming.source, rehoming.target)
        return {rehoming.site, *path} - {rehoming.meets}

    def _tree_after(self, rehoming: Rehoming, topology: Topology) -> Topology:
        site, target = rehoming.site, rehoming.target
        if target is None:
            return topology.without_site(site)
        link = self._told.link(site, target)
        if rehoming.source is None:
            new = self._told.site(site)
            return topology.with_site(site, target, link, new.hosts, new.cpu_price)
        return topology.with_parent(site, target, link)

    @property
    def _topology(self) -> Topology:
        return self._coordinator.placement.topology
