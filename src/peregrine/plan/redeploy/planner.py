"""From a batch of facts to a redeployment: algorithm 1 of ISQD, as one pure machine.

    facts -> tree -> affected applications -> layout -> stages, contexts

The world and the layout are changed in place while a redeployment is planned and carried out, and go back to the last
valid deployment if it is impossible or fails; its facts are then considered again with the next batch. One redeployment
at a time: facts that come meanwhile make the next batch larger. If a batch is impossible as a whole, its facts are
tried one by one, what adds first, so that one train in a tunnel does not hold up the others; those that remain
impossible are postponed, each with its error.

If there is nothing to be deployed for facts, keys that somebody else has put where they are not above their producers
are planned again (`mending.py`): a redeployment without facts, of what is affected by that.
"""

from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from enum import StrEnum
from functools import partial

from peregrine.core.keyspace import KeySet
from peregrine.core.reconfigure import Plan
from peregrine.core.validity import FedKeys
from peregrine.core.waves import Obstacles
from peregrine.errors import PlanError
from peregrine.plan.redeploy.changes import Changes
from peregrine.plan.redeploy.delta import Context, RunningFragment, Spot, delta, first_version, fragments, touched_spots
from peregrine.plan.redeploy.events import Fact
from peregrine.plan.redeploy.held import Held
from peregrine.plan.redeploy.layout import AppId, Layout, app_of
from peregrine.plan.redeploy.mending import Doubts, Mending, nobody_moves
from peregrine.plan.redeploy.placing import Placing, Relocation
from peregrine.plan.redeploy.plans import plans
from peregrine.plan.redeploy.queue import Batch, TopologyQueue
from peregrine.plan.redeploy.rehoming import Wave, all_waves
from peregrine.plan.redeploy.validity import moved_wrongly, violations
from peregrine.plan.redeploy.world import NO_SHIFT, Shift, World
from peregrine.types import OpId, PlaceId, SiteId, SourceId, site_of


class Scope(StrEnum):
    """What is replanned and redeployed."""

    INCREMENTAL = "incremental"  # what is affected
    HOLISTIC = "holistic"  # everything: what the baselines of ISQD 7.1 do, here for all applications


@dataclass(frozen=True, slots=True)
class Postponed:
    """A fact that cannot be deployed now. Rows that cannot travel because of it wait where they are."""

    fact: Fact
    error: PlanError


@dataclass(frozen=True, slots=True)
class Redeployment:
    number: int
    facts: tuple[Fact, ...]
    postponed: tuple[Postponed, ...]
    shift: Shift
    apps: tuple[AppId, ...]  # affected: they have producers, instances or ways where something changed
    relocations: tuple[Relocation, ...]
    contexts: tuple[Context, ...]
    before: tuple[Plan, ...]  # migrations in the old tree, one plan for each application
    rehomings: tuple[Wave, ...]  # sites that join, change their parents or leave, between the two
    after: tuple[Plan, ...]  # migrations in the new tree


class Planner:
    def __init__(self, world: World, layout: Layout, queue: TopologyQueue, scope: Scope = Scope.INCREMENTAL) -> None:
        """The world and the layout share their `Changes`."""
        assert world.changes is layout.changes, "a world and a layout that are taken back together"
        self.world, self.layout, self.queue, self.scope = world, layout, queue, scope
        self.versions: dict[Spot, int] = {}  # of fragments that are not of their first version
        self.open: Redeployment | None = None
        self.postponed: tuple[Postponed, ...] = ()  # of the last batch
        self.mending = Mending(world, layout)
        self._held: Held | None = None
        self._mended: Doubts = {}  # by the redeployment that is open, or was the last
        self._news: list[Callable[[], None]] = []  # what has happened while a redeployment is open
        self._attached: dict[SourceId, SiteId] = {}  # of that, where sources are

    @property
    def _changes(self) -> Changes:
        return self.world.changes

    def plan(self, obstacles: Obstacles | None = None) -> Redeployment | None:
        """For all facts that wait, else for keys that are amiss. None if there are none, or nothing can be done about
        them (`postponed` tells, and `mending.refused`).
        """
        if self.open is not None:
            raise PlanError(f"redeployment {self.open.number} is not over", "report how it ended: succeeded or failed")
        self.postponed, self.mending.refused, self._mended = (), (), {}
        self._held = Held(self.world, obstacles) if obstacles is not None else None
        self.mending.busy = obstacles.busy if obstacles is not None else nobody_moves
        self.mending.awaited = self._held.awaited(self.layout) if self._held is not None else {}
        batch = self.queue.batch()
        self.open = self._for_facts(batch) if batch is not None else None
        if self.open is None:
            self.open = self._mend()
        return self.open

    def _for_facts(self, batch: Batch) -> Redeployment | None:
        possible, postponed = self._possible(batch.facts)
        self.postponed = tuple(postponed)
        self.queue.put_back(each.fact for each in postponed)
        if not possible:
            return None
        try:
            return replace(self._redeploy(batch.number, possible), postponed=self.postponed)
        except PlanError as error:
            self._changes.undo_to(0)
            self.queue.put_back(possible)
            self.postponed += tuple(Postponed(fact, error) for fact in possible)
        except BaseException:  # a bug: the last valid deployment is kept all the same
            self._changes.undo_to(0)
            self.queue.put_back(possible)
            raise
        return None

    def _mend(self) -> Redeployment | None:
        """All that are amiss; if that is impossible, one operator, so that none holds up the others."""
        doubts = self.mending.look()
        parts = [doubts] if doubts else []
        while parts:
            part = parts.pop(0)
            try:
                mended = self._redeploy(self.queue.next_number(), [], part)
            except PlanError as error:
                self._changes.undo_to(0)
                if len(part) > 1:
                    parts = [{op: keys} for op, keys in part.items()]
                else:
                    self.mending.give_up(part, error)
                continue
            except BaseException:  # a bug, as above
                self._changes.undo_to(0)
                self.mending.put_back(doubts)
                raise
            for rest in parts:
                self.mending.put_back(rest)
            self._mended = part
            return mended
        return None

    def succeeded(self) -> None:
        """Everything has been carried out: this is the last valid deployment now."""
        assert self.open is not None
        self.open = None
        self._changes.keep()
        self._catch_up()

    def failed(self) -> None:
        """Back to the last valid deployment; the facts are considered again with the next batch."""
        assert self.open is not None
        self._changes.undo_to(0)
        self.queue.put_back(self.open.facts)
        self.mending.put_back(self._mended)
        self._mended = {}
        self.open = None
        self._catch_up()

    # --- what others have done ---

    def is_attached(self, source: SourceId, site: SiteId) -> bool:
        """As far as it has been told."""
        return self._attached.get(source, self.layout.feeding.site(source)) == site

    def attached(self, source: SourceId, site: SiteId, feeds: FedKeys | None = None) -> None:
        """A source is connected there now (`core/mobility.py` moves its keys); one that is new comes with its feeds."""
        self.world.check_known(site)
        self._attached[source] = site
        self._news.append(partial(self.layout.feeding.attach, source, site, feeds))
        self.mending.stirred()
        self._catch_up()

    def detached(self, source: SourceId) -> None:
        """A source is no more."""
        self._attached.pop(source, None)
        self._news.append(partial(self.layout.feeding.detach, source))
        self.mending.stirred()
        self._catch_up()

    def moved(self, op: OpId, keys: KeySet, place: PlaceId) -> None:
        """Somebody else's plan has ended: these keys live there now."""
        self._news.append(partial(self.mending.found, op, keys, place))
        self.mending.stirred()
        self._catch_up()

    def arrived(self, op: OpId, keys: KeySet, place: PlaceId) -> None:
        """A redeployment has ended, and these keys, which it was to move, are there now, whatever was planned."""
        self._news.append(partial(self.mending.found, op, keys, place, in_vain=bool(self._mended)))
        self._catch_up()

    def fragments(self) -> list[RunningFragment]:
        """What each application has at each site; while a redeployment is open, as it will be. Costs what there is."""
        spots = ((site, app) for site in self.layout.sites() for app in self.layout.apps_at(site))
        found = sorted(fragments(self.layout, spots, self.world.parent.get).items())
        return [
            RunningFragment(*spot, self.versions.get(spot, first_version(each)), each.operators, each.sources)
            for spot, each in found
        ]

    def _catch_up(self) -> None:
        """News are no part of a redeployment: they must not be taken back with it."""
        if self.open is None:
            for happened in self._news:
                happened()
            self._news.clear()
            self._attached.clear()
            self._changes.keep()

    # --- which facts can be deployed ---

    def _possible(self, facts: tuple[Fact, ...]) -> tuple[list[Fact], list[Postponed]]:
        error = self._try(facts)
        self._changes.undo_to(0)
        if error is None:
            return list(facts), []
        possible, postponed = [], []
        if len(facts) > 1:
            for fact in facts:
                mark = self._changes.mark()
                alone = self._try([fact])
                if alone is None:
                    possible.append(fact)
                else:
                    self._changes.undo_to(mark)
                    postponed.append(Postponed(fact, alone))
            self._changes.undo_to(0)
            # One by one they fit; together the room may be used up in another order.
            error = self._try(possible)
            self._changes.undo_to(0)
            if error is None:
                return possible, postponed
        return [], [Postponed(fact, error) for fact in facts]

    def _try(self, facts: Iterable[Fact]) -> PlanError | None:
        """Why they cannot be deployed, if so."""
        mark, facts = self._changes.mark(), list(facts)
        try:
            sites = self._imagine(facts)
            wrong = list(violations(self.world, self.layout, sites))
            if wrong and self.mending.open:
                # Perhaps it is known: keys that are to be put right, which may not be possible before this is deployed.
                self._changes.undo_to(mark)
                known = set(violations(self.world, self.layout, sites))
                self._imagine(facts)
                wrong = [each for each in wrong if each not in known]
        except PlanError as error:
            return error
        return _not_valid(wrong[0]) if wrong else None

    def _imagine(self, facts: list[Fact]) -> list[SiteId]:
        """They are so, and keys are where that wants them. Where something is otherwise."""
        shift = self.world.apply(facts)
        if self._held is not None:
            self._held.check(shift)
        self._place(shift)
        return self._concerned(shift)

    def _place(self, shift: Shift) -> Placing:
        placing = Placing(self.world, self.layout, shift)
        placing.place_affected()
        if self.scope is Scope.HOLISTIC:
            self.world.rebuild()
            placing.place_all()
        return placing

    # --- what has to be done for them ---

    def _redeploy(self, number: int, facts: list[Fact], doubts: Doubts | None = None) -> Redeployment:
        """For facts, or for keys that are amiss."""
        world, layout = self.world, self.layout
        shift, relocations = self._relocations(facts, doubts)
        known: set[str] = set()
        if self.mending.open or doubts is not None:  # what is wrong already need not be put right by this
            sites = self._concerned(shift, relocations)
            self._changes.undo_to(0)
            known.update(violations(world, layout, sites))
            shift, relocations = self._relocations(facts, doubts)
        afresh = self.scope is Scope.HOLISTIC and doubts is None
        spots = self._all_spots(relocations) if afresh else touched_spots(layout, shift, relocations)
        old = fragments(layout, spots, lambda site: shift.old_parent(site, world))
        apps = set(layout.apps) if afresh else self._affected(shift, relocations)
        before, after = plans(world, layout, shift, relocations, number, apart=doubts is not None)
        self._check(shift, relocations, known)
        contexts = delta(world, layout, relocations, old, self.versions, afresh)
        for context in contexts:
            self._changes.put(self.versions, (context.site, context.app), context.version)
        return Redeployment(
            number,
            tuple(facts),
            (),
            shift,
            tuple(sorted(apps)),
            tuple(relocations),
            contexts,
            before,
            all_waves(world, shift),
            after,
        )

    def _relocations(self, facts: list[Fact], doubts: Doubts | None) -> tuple[Shift, list[Relocation]]:
        """The world is as the facts say, and the layout as it was."""
        shift = self.world.apply(facts)
        mark = self._changes.mark()
        placing = self._place(shift) if doubts is None else self.mending.place(doubts)
        return shift, placing.relocations(mark)

    def _affected(self, shift: Shift, relocations: list[Relocation]) -> set[AppId]:
        apps = {app_of(each.op) for each in relocations}
        for site in shift.moved:
            apps |= self.layout.apps_at(site)
        return apps

    def _all_spots(self, relocations: list[Relocation]) -> set[Spot]:
        spots = {(site, app) for site in self.layout.sites() for app in self.layout.apps_at(site)}
        return spots | touched_spots(self.layout, NO_SHIFT, relocations)

    def _check(self, shift: Shift, relocations: list[Relocation], known: set[str]) -> None:
        """Before anything is sent: what the stages lead to is what was planned, and is valid, but for what is `known`
        not to be.
        """
        wrong = [
            *(
                each
                for each in violations(self.world, self.layout, self._concerned(shift, relocations))
                if each not in known
            ),
            *moved_wrongly(self.world, self.layout, relocations),
        ]
        for each in wrong:
            raise _not_valid(each)

    def _concerned(self, shift: Shift, relocations: Iterable[Relocation] = ()) -> list[SiteId]:
        sites = {*shift.moved, *shift.left, *shift.changed}
        sites.update(site_of(place) for each in relocations for place in (each.source, each.target))
        return sorted(sites)


def _not_valid(why: str) -> PlanError:
    """A source has moved, for instance, and its keys have not followed it yet."""
    return PlanError(f"what would be deployed is not valid: {why}", "wait until what moves now has arrived")
