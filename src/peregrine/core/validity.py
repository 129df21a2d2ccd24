"""Which migrations can be carried out: the rules that a plan must keep, whatever else is running.

Falcon III-B: an instance is at or above all producers of its keys, at every moment. The migrations of a stage run at
the same time, so none of them may count on another's end.
"""

from collections import UserDict
from collections.abc import Callable, Iterable, Iterator, Mapping

from peregrine.core.attachments import Attachments
from peregrine.core.keyspace import KeySet, group_of, stable_hash
from peregrine.core.mechanisms.program import Mechanism
from peregrine.core.operator import OpSpec
from peregrine.core.placement import Placement
from peregrine.core.reconfigure import Move, Stage
from peregrine.core.topology import Topology
from peregrine.errors import OverlapError, PlanError, UnknownName
from peregrine.types import OpId, SiteId, SourceId, site_of

Producers = Callable[[OpId, KeySet], Iterable[tuple[str, SiteId]]]
FedKeys = tuple[tuple[OpId, KeySet], ...]
Feeds = Mapping[SourceId, FedKeys]  # for which operators and keys each source produces


class IndexedFeeds(UserDict[SourceId, FedKeys]):
    """Feeds that are asked by key. With many sources: a plain dict is read from end to end for each question."""

    def __init__(self, feeds: Feeds | None = None) -> None:
        self._nth: dict[SourceId, int] = {}  # the order in which sources came
        self._of_key: dict[tuple[OpId, str], dict[SourceId, None]] = {}
        self._of_whole: dict[tuple[OpId, int], dict[SourceId, None]] = {}  # feed the whole group, but for single keys
        self._in_group: dict[tuple[OpId, int], dict[SourceId, None]] = {}  # feed anything of the group
        super().__init__(feeds or {})

    def __setitem__(self, source: SourceId, fed: FedKeys) -> None:
        # What it fed before stays in the index: `of` says who may feed a key, and there are few who change.
        self._nth.setdefault(source, len(self._nth))
        super().__setitem__(source, fed)
        for op, keys in fed:
            for name in keys.plus:
                self._of_key.setdefault((op, name), {})[source] = None
            for group in keys.whole:
                self._of_whole.setdefault((op, group), {})[source] = None
            for group in keys.touched_groups():
                self._in_group.setdefault((op, group), {})[source] = None

    def of(self, op: OpId, keys: KeySet) -> list[SourceId]:
        """All that may feed any of these keys, in the order in which they came."""
        found: set[SourceId] = set()
        for group in keys.whole:
            found.update(self._in_group.get((op, group), ()))
        for name in keys.plus:
            found.update(self._of_key.get((op, name), ()))
            found.update(self._of_whole.get((op, group_of(stable_hash(name), keys.groups)), ()))
        return sorted(found, key=self._nth.__getitem__)


class AttachedProducers:
    """The sources that produce for some keys, each where it is attached at the time of the question."""

    def __init__(self, feeds: Feeds, attachments: Attachments) -> None:
        self._feeds = feeds
        self._attachments = attachments

    def __call__(self, op: OpId, keys: KeySet) -> Iterator[tuple[str, SiteId]]:
        feeds = self._feeds
        for source in feeds.of(op, keys) if isinstance(feeds, IndexedFeeds) else feeds:
            at, fed = self._attachments.at(source), feeds.get(source, ())
            if at is not None and any(mine == op and not its_keys.isdisjoint(keys) for mine, its_keys in fed):
                yield source, at


class Validity:
    def __init__(self, placement: Placement, operators: Mapping[OpId, OpSpec], producers: Producers) -> None:
        self._placement = placement
        self._operators = operators
        self._producers = producers

    @property
    def _topology(self) -> Topology:
        return self._placement.topology

    def check_stage(self, stage: Stage, mechanism: Mechanism, coming: Callable[[OpId], list[Move]]) -> None:
        """Imagines the stage carried out: call it within `Placement.trial`. `coming`: moves that run and may matter."""
        for i, move in enumerate(stage):
            self._check_move(move, mechanism)
            for other in stage[:i]:
                if other.op == move.op and not other.keys.isdisjoint(move.keys):
                    raise OverlapError(
                        f"two migrations of one stage move {{{(other.keys & move.keys).describe()}}} of {move.op}",
                        "put them into stages of their own",
                    )
                if self.feed_each_other(move.op, other.op):
                    raise PlanError(
                        f"one stage moves {other.op} and {move.op}, which feed each other: they may end in any order",
                        "put them into stages of their own",
                    )
                shared = {other.source, other.target} & {move.source, move.target}
                if shared and mechanism.alone:
                    raise OverlapError(
                        f"two restarts of one stage stop {', '.join(sorted(shared))}",
                        "put them into stages of their own",
                    )
            self._placement.move(move.op, move.keys, move.source, move.target)
            self._check_above(move, coming(move.op))
            if (producer := self.out_of_line(move, self._topology)) is not None:
                raise PlanError(
                    f"rows of {producer[0]} at {producer[1]} could overtake each other while {move.op} moves from"
                    f" {move.source} to {move.target}",
                    f"choose {self._topology.lca(producer[1], site_of(move.source))}, where their way turns off",
                )

    def feed_each_other(self, one: OpId, other: OpId) -> bool:
        return one in self._operators[other].feeds or other in self._operators[one].feeds

    def _check_move(self, move: Move, mechanism: Mechanism) -> None:
        spec = self._operators.get(move.op)
        if spec is None or spec.sink:
            raise UnknownName("operator", move.op, [op for op, s in self._operators.items() if not s.sink])
        for place in (move.source, move.target):
            self._topology.place(place)
        if move.source == move.target:
            raise PlanError(f"{move.op} is to move from {move.source} to itself", "choose another target")
        if not move.keys:
            raise PlanError(f"{move.op}: no keys to move from {move.source} to {move.target}", "name keys or groups")
        if move.anchor not in (None, *self.anchors(move)):
            raise PlanError(
                f"{move.anchor} cannot be the anchor of {move.source} -> {move.target}",
                f"use {' or '.join(self.anchors(move))}, or leave it out",
            )
        has = {"stateless": spec.stateless, "windowed": spec.windowed, "static sources": not spec.roaming}
        lacks = sorted(need for need in mechanism.needs if not has[need])
        if lacks:
            raise PlanError(
                f"mechanism {mechanism.name!r} needs an operator that is {' and '.join(lacks)}; {move.op} is not",
                "use live",
            )

    def anchors(self, move: Move) -> list[SiteId]:
        """The sites that can decide the order of K, the one on the shorter way first.

        D's router always can. S's router can if no rows pass D's router on their way to S: those that did before the
        switch would come back to it behind rows that D has already taken. So D must be above S, and all producers below
        it; they need not be when a site has changed its parent and its keys have not followed it yet. (Rows of sources
        that roam are put in order by the host.)
        """
        source, target = site_of(move.source), site_of(move.target)
        upwards = self._topology.is_at_or_above(target, source)
        return [source, target] if upwards and self._all_below(move, source) else [target]

    def _all_below(self, move: Move, site: SiteId) -> bool:
        return all(self._topology.is_at_or_above(site, at) for _, at in self._static_producers(move, self._topology))

    def _static_producers(self, move: Move, topology: Topology) -> list[tuple[str, SiteId]]:
        """Whose rows nobody puts in order but their way."""
        if self._operators[move.op].roaming:
            return []
        producers = [*self._producers(move.op, move.keys), *self._placement.upstream(move.op)]
        return [(name, at) for name, at in producers if at in topology]

    def out_of_line(self, move: Move, topology: Topology) -> tuple[str, SiteId] | None:
        """A producer whose way to S does not lead by D, nor its way to D by S: where its way to S turns off, rows that
        come behind the marker would go straight to D, past those that went ahead of it. There is none in a valid
        deployment; but a site that changes its parent takes its producers with it, and not what they feed.
        """
        source, target = site_of(move.source), site_of(move.target)
        for name, at in self._static_producers(move, topology):
            turns_off = target not in topology.path(at, source) and source not in topology.path(at, target)
            passes = move.anchor == source != target and not topology.is_at_or_above(source, at)  # see `anchors`
            if turns_off or passes:
                return name, at
        return None

    def _check_above(self, move: Move, coming: list[Move]) -> None:
        """Falcon III-B: an instance must be above all producers of its keys, now and when what runs has ended."""
        producers = [*self._producers(move.op, move.keys), *self._placement.upstream(move.op)]
        producers += [(m.op, site_of(m.target)) for m in coming if move.op in self._operators[m.op].feeds]
        self._placement.check_above(move.op, move.target, producers)
        consumers = self._placement.downstream(move.op)
        consumers += [(m.op, m.target) for m in coming if m.op in self._operators[move.op].feeds]
        for consumer, place in consumers:
            # Above S as well, or the outputs of S and D do not meet at the gate.
            ends = [(move.op, site_of(move.target)), (move.op, site_of(move.source))]
            self._placement.check_above(consumer, place, ends)
