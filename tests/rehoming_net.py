"""Real routers and hosts that change their parents, in a net in which chance alone decides what moves next.

As `sim/`, less time and crashes: so it is quick, and looks where a simulated network hardly ever gets. Sites are drawn
at random and rehomed under traffic, one at a time, while keys move between any two places. A source's rows must land
once and in order.
"""

from collections import deque
from collections.abc import Callable, Collection
from dataclasses import dataclass, field, replace
from functools import partial
from random import Random

from harness import OP, Net, keys, sink, spec
from peregrine.core.messages import Effect, FromLink, HandBack, HandedBack, Rehome, Rehomed, Send
from peregrine.core.migrate import Migration
from peregrine.core.rehoming import Rehoming
from peregrine.core.router import Router
from peregrine.core.routes import Down, Local, Up
from peregrine.core.rows import Item
from peregrine.core.topology import Link, Topology
from peregrine.types import MigrationId, PlaceId, SiteId

KEYS = [f"k{i}" for i in range(4)]
CLOUD = SiteId("s0")
Way = tuple[SiteId, SiteId]
OTHERS = ("pause", "progressive", "on-demand", "indirect", "static-dynamic", "replica")  # ask nothing of an operator


@dataclass
class Session:
    """One direction of a link."""

    items: list[Item] = field(default_factory=list)
    delivered: int = -1
    acked: int = -1
    cut: bool = False  # nothing arrives any more
    ended: bool = False


class RehomingNet(Net):
    def __init__(
        self,
        rng: Random,
        topology: Topology,
        sources: dict[str, tuple[SiteId, list[str]]],
        router: type[Router] = Router,
        wide: bool = False,
    ) -> None:
        self.rng = rng
        self.wide = wide  # not only live moves, whose anchor is the target: there is more to find, and less often
        self.sources = sources
        self.sessions: dict[tuple[SiteId, SiteId, int], Session] = {}
        self.later: deque[Callable[[], object]] = deque()
        self.open: dict[int, Rehoming] = {}
        self.running: dict[MigrationId, Migration] = {}
        self.tree = topology
        self.stood_in: set[MigrationId] = set()
        self.owner = dict.fromkeys(KEYS, PlaceId(CLOUD))
        self.numbers = 0
        super().__init__(topology, (spec(), sink()), router=router)

    def _perform(self, site: SiteId, effect: Effect) -> None:
        match effect:
            case Send(neighbour, seq, item, session):
                items = self.sessions.setdefault((site, neighbour, session), Session()).items
                assert seq == len(items)
                items.append(item)
            case HandBack():
                self.later.append(partial(self._hand_back, site, effect))
            case Rehomed(_, number):
                rehoming = self.open.pop(number)
                assert rehoming.target is not None
                self.tree = self.tree.with_parent(rehoming.site, rehoming.target, Link(1.0))
            case _:
                super()._perform(site, effect)
        for mid, m in list(self.running.items()):
            if "done" in self.statuses(mid) or "aborted" in self.statuses(mid):
                del self.running[mid]
                if "done" in self.statuses(mid):
                    self.owner.update((key, m.target) for key in KEYS if key in m.keys)

    def _hand_back(self, site: SiteId, wanted: HandBack) -> None:
        session = self.sessions.setdefault((site, wanted.neighbour, wanted.session), Session())
        session.ended = True
        first = (session.acked if wanted.after is None else wanted.after) + 1
        back = HandedBack(wanted.neighbour, wanted.session, first, tuple(session.items[first:]))
        self.step(site, back)

    # --- what chance may do ---

    def settle(self, but: Collection[PlaceId | Way] = (), most_steps: int = 5_000) -> None:
        """Until nothing more happens; some hosts do nothing, on some links nothing arrives."""
        for _ in range(most_steps):
            if not self.stir_once(but):
                return
        raise AssertionError("rows go round for ever")

    def stir_once(self, but: Collection[PlaceId | Way] = ()) -> bool:
        moves: list[Callable[[], object]] = [
            partial(self._deliver, *at)
            for at, session in self.sessions.items()
            if not session.cut
            and not session.ended
            and session.delivered + 1 < len(session.items)
            and at[:2] not in but
        ]
        moves += [
            partial(self.work, place, self.rng.choice((1, 3, 100)))
            for place, log in self.logs.items()
            if log.end > self.committed[place] and place not in but
        ]
        moves += [self.later.popleft] if self.later else []
        if not moves:
            return False
        move = self.rng.choice(moves)
        done = move()
        if move == self.later.popleft:
            done()  # type: ignore[operator]
        return True

    def _deliver(self, near: SiteId, far: SiteId, number: int) -> None:
        session = self.sessions[near, far, number]
        seq = session.delivered + 1
        before = self.routers[far].acked_link(near, number)
        self.step(far, FromLink(near, seq, (session.items[seq],), number))
        taken = self.routers[far].acked_link(near, number) > before
        if not taken:
            session.cut = True  # it is refused, and would be for ever
            return
        session.delivered = seq
        if self.rng.random() < 0.5:
            session.acked = seq

    def move_some_keys(self) -> None:
        """From where they are to anywhere, unless they are moving."""
        rng = self.rng
        busy = {key for m in self.running.values() for key in KEYS if key in m.keys}
        free = [key for key in KEYS if key not in busy]
        if not free:
            return
        source = self.owner[rng.choice(free)]
        mine = [key for key in free if self.owner[key] == source and rng.random() < 0.7]
        site = rng.choice([at for at, theirs in self.sources.values() if not set(theirs).isdisjoint(mine)] or [CLOUD])
        target = PlaceId(rng.choice([site, *self.tree.ancestors(site)]))
        if (
            not mine
            or source == target
            or any(self._crosses(rehoming, source, target) for rehoming in self.open.values())
        ):
            return
        producers = {at for at, theirs in self.sources.values() if not set(theirs).isdisjoint(mine)}
        if not all(self._in_line(at, SiteId(source), SiteId(target)) for at in producers):
            return
        later = self.tree
        for rehoming in self.open.values():
            assert rehoming.target is not None
            later = later.with_parent(rehoming.site, rehoming.target, Link(1.0))
        mid = MigrationId(f"m{len(self.journals[CLOUD])}-{rng.random()}")
        gate = self.tree.lca(SiteId(source), SiteId(target))
        mechanism = rng.choice(OTHERS) if self.wide and rng.random() < 0.3 else "live"
        over_source = Migration(mid, OP, keys(*mine), source, target, SiteId(source), mechanism, gate, CLOUD)
        over_target = replace(over_source, anchor=SiteId(target))
        upwards = self.wide and gate == target and rng.random() < 0.2
        m = over_source if upwards and not self._disturbed(over_source, self.tree, later) else over_target
        if self._disturbed(m, later):
            return
        self.running[mid] = m
        self.begin(m)

    def abort_something(self) -> None:
        if self.running:
            self.abort(self.rng.choice(list(self.running.values())))

    def misled(self) -> list[str]:
        """Whom the rules lead elsewhere than to the owner of a key, at the end."""
        return [
            f"{key} goes from {site} to {end}, and lives at {owner}"
            for key, owner in self.owner.items()
            for site in self.routers
            if (end := self._led(key, site)) != owner
        ]

    def _led(self, key: str, site: SiteId) -> PlaceId | str:
        way = [site]
        while len(way) <= len(self.routers):
            router = self.routers[way[-1]]
            match router.table.lookup_one(OP, key):
                case Local(place):
                    return place
                case Up() if router.parent is not None:
                    way.append(router.parent)
                case Down(child):
                    way.append(child)
                case route:
                    return f"{route} at {way[-1]}"
        return "and fro: " + " ".join(way)

    def _in_line(self, producer: SiteId, source: SiteId, target: SiteId) -> bool:
        """As the coordinator wants it (core/validity.py)."""
        tree = self.tree
        above = tree.is_at_or_above(target, producer) if tree.depth(target) <= tree.depth(producer) else False
        return above and (target in tree.path(producer, source) or source in tree.path(producer, target))

    def _disturbed(self, m: Migration, *trees: Topology) -> bool:
        """As the coordinator sees it."""
        source, target = SiteId(m.source), SiteId(m.target)
        producers = {at for at, theirs in self.sources.values() if any(key in m.keys for key in theirs)}
        return any(
            (target not in tree.path(at, source) and source not in tree.path(at, target))
            or (m.anchor == source and not tree.is_at_or_above(source, at))
            for tree in trees
            for at in sorted(producers)
        )

    def _stands_in(self, m: Migration, site: SiteId) -> bool:
        return m.id in self.stood_in and self._below(site, m.target) != self._below(site, PlaceId(m.gate))

    def _crosses(self, rehoming: Rehoming, source: PlaceId, target: PlaceId) -> bool:
        return self._below(rehoming.site, source) != self._below(rehoming.site, target)

    def _below(self, site: SiteId, place: PlaceId) -> bool:
        return self.tree.is_at_or_above(site, SiteId(place))

    def rehome_something(self) -> bool:
        rng, tree = self.rng, self.tree
        moving = [m for m in self.running.values() if rng.random() < 0.5]
        crossing = [site for m in moving for site in tree.path(SiteId(m.source), SiteId(m.target)) if site != m.gate]
        site = rng.choice(crossing or tree.sites[1:])
        source = tree.parent(site)
        targets = [each for each in tree.sites if not tree.is_at_or_above(site, each) and each != source]
        if self.open or not targets or source is None:
            return False
        return self.rehome(site, rng.choice(targets), self._break)

    def _break(self, site: SiteId, source: SiteId) -> None:
        """The old link, perhaps; then things go on for a while before anybody is told."""
        if self.rng.random() < 0.7:
            for (near, far, _), session in self.sessions.items():
                session.cut |= {near, far} == {site, source}
            for _ in range(self.rng.randrange(30)):
                self.stir_once()

    def rehome(
        self, site: SiteId, target: SiteId, first: Callable[[SiteId, SiteId], object] = lambda site, source: None
    ) -> bool:
        """If nobody is disturbed."""
        tree, source = self.tree, self.tree.parent(site)
        assert source is not None
        after = tree.with_parent(site, target, Link(1.0))
        if any(self._disturbed(m, after) or self._stands_in(m, site) for m in self.running.values()):
            return False
        self.numbers += 1
        rehoming = Rehoming(site, source, target, tree.lca(source, target), self.numbers)
        self.open[self.numbers] = rehoming
        into = [m for m in self.running.values() if self._below(site, m.target) and not self._below(site, m.source)]
        first(site, source)
        self.stood_in |= {m.id for m in into}
        self.step(site, Rehome(rehoming, tuple(into), tree.below(site)))
        return True


def run(seed: int, router: type[Router] = Router, most_steps: int = 100_000, wide: bool = False) -> list[str]:
    """What went wrong, if anything."""
    return play(seed, router, most_steps, wide)[1]


def play(
    seed: int, router: type[Router] = Router, most_steps: int = 100_000, wide: bool = False
) -> tuple[RehomingNet, list[str]]:
    rng = Random(seed)
    names = [SiteId(f"s{i}") for i in range(9)]
    parents = {name: (rng.choice(names[:i]), Link(1.0)) for i, name in enumerate(names) if i}
    sources = {f"d{i}": (rng.choice(names), rng.sample(KEYS, 2)) for i in range(3)}
    net = RehomingNet(rng, Topology.tree(CLOUD, parents), sources, router, wide)
    sent: dict[str, int] = {}
    left = 4
    for _ in range(500):
        choice = rng.random()
        if choice < 0.12:
            source = rng.choice(list(sources))
            site, mine = sources[source]
            net.send(site, rng.choice(mine), source=source)
            sent[source] = sent.get(source, 0) + 1
        elif choice < 0.16:
            net.move_some_keys()
        elif choice < 0.20 and left:
            left -= net.rehome_something()
        elif choice < 0.215:
            net.abort_something()
        else:
            net.stir_once()
    for _ in range(most_steps):
        if not net.stir_once():
            break
    else:
        return net, ["rows go round for ever"]
    wrong = [f"not over: {each}" for each in (*net.open.values(), *net.running.values())]
    wrong += net.leftovers() or net.misled()
    for line, results in net.lines.items():
        seqs = [seq for seq, _ in results]
        if seqs != sorted(set(seqs)):
            wrong.append(f"{line}: {seqs}")
    landed = sum(len(results) for results in net.lines.values())
    if landed != sum(sent.values()):
        wrong.append(f"{landed} results of {sum(sent.values())} rows")
    return net, wrong
