"""A model of how a site changes its parent while everything is in flight: the protocol of docs/decisions/0022.

Routers, FIFO links whose acknowledgements may get lost, and items from any site to any other. Links deliver in random
order among each other. Crashes are not in it: a router is a function of its journal, and every step here is an event or
a message. What is to hold: whatever a site sends to another arrives once and in causal order; and what the new place of
some keys emits behind its gate comes behind the last that the old place has emitted.
"""

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from random import Random


@dataclass(frozen=True)
class Rehoming:
    id: int
    site: str
    source: str
    target: str
    meets: str


@dataclass(frozen=True)
class Data:
    origin: str
    dest: str
    number: int
    then: str | None = None  # whoever gets it sends something there
    said_before: int = 0  # by its sender, there
    follows: tuple[str, int] | None = None  # so many items of that site must have come before
    gate: "Switch | None" = None  # must pass this gate


@dataclass(frozen=True)
class Switch:
    """The end of a migration: `source` emits no more for `consumer`, `target` begins."""

    id: int
    source: str
    target: str
    consumer: str
    gate: str  # where the ways of source and target meet when it begins


@dataclass(frozen=True)
class Signal:
    """TERMINATE climbs from the target to the gate, or to where it can be now, and closes it. STOP goes to the source,
    ACK back, DONE to the target: the gate is open. GATE brings a gate to where the target's outputs pass now.
    """

    kind: str
    switch: Switch
    dest: str = "the top"
    gate: str = ""
    held: tuple[Data, ...] = ()


@dataclass(frozen=True)
class Message:
    """JOIN, DETACH, LEFT, OPENED, SETTLE, SETTLED; FENCED and RETURNED carry an item."""

    kind: str
    rehoming: Rehoming
    dest: str
    sites: tuple[str, ...] = ()  # JOIN, DETACH: the site that moves, and all below it
    mark: int = -1  # JOIN, DETACH: last item that it has of its old parent; LEFT: that the old parent has of it
    item: "Item | None" = None
    number: int | None = None  # FENCED: of an item that was sent on the old link before


Item = Data | Message | Signal


@dataclass
class Session:
    """One direction of a link, from one connection of two routers to the next."""

    items: list[Item] = field(default_factory=list)
    received: int = -1  # by the far end
    acked: int = -1  # as far as the near end knows
    cut: bool = False  # nothing arrives any more
    refused: bool = False  # the far end has declared up to where it has come


@dataclass
class Turn:
    """What the router in the middle keeps of a rehoming: it holds everything until the old parent has LEFT."""

    sites: tuple[str, ...]
    fenced: list[tuple[Message, str | None]] = field(default_factory=list)
    held: list[Item] = field(default_factory=list)
    left: int | None = None


@dataclass
class Approach:
    """What a router on the new branch keeps: it takes the short way only when all that went the long way is through."""

    child: str
    sites: tuple[str, ...]
    settling: bool = False
    held: list[tuple[Item, str | None]] = field(default_factory=list)


class Router:
    def __init__(self, net: "Net", site: str, parent: str | None) -> None:
        self.net, self.site, self.parent = net, site, parent
        self.below: dict[str, str] = {}  # site -> the child that leads there
        self.turns: dict[int, Turn] = {}
        self.approaches: dict[int, Approach] = {}
        self.fencing: Rehoming | None = None
        self.opened = False
        self.waiting: list[Item] | None = None  # upward items, while what was not delivered is being handed back
        self.gates: dict[Switch, list[Data] | None] = {}  # what waits behind it; None: it is open
        self.moved_gates: dict[Switch, str] = {}

    # --- where things go ---

    def receive(self, item: Item, via: str | None) -> None:
        if self.holds(item, via):
            return
        if isinstance(item, Message):
            self.learn(item, via)
        if isinstance(item, Message) and item.kind == "SETTLED" and item.rehoming.id in self.approaches:
            self.take_the_short_way(item)
        elif self.waits_at_gate(item):
            pass
        elif isinstance(item, Signal) and self.stops_here(item):
            self.signalled(item)
        elif item.dest != self.site:
            self.pass_on(item, via)
        elif isinstance(item, Data):
            self.net.arrive(item)
        elif isinstance(item, Message):
            self.obey(item, via)

    def send(self, item: Item, via: str | None = None) -> None:
        """To wherever it is addressed."""
        if item.dest == self.site or isinstance(item, Signal):
            self.receive(item, via)
        elif not self.holds(item, via) and not self.waits_at_gate(item):
            self.pass_on(item, via)

    def pass_on(self, item: Item, via: str | None) -> None:
        if (child := self.child_towards(item.dest, via)) is not None:
            self.net.put(self.site, child, item)
        elif self.waiting is not None:
            self.waiting.append(item)
        else:
            self.up(item)

    def child_towards(self, dest: str, via: str | None) -> str | None:
        for approach in self.approaches.values():
            if dest in approach.sites:
                # What comes down has been put in order above; all else has to go there first.
                return approach.child if via == self.parent or self.net.without == "long way first" else None
        return self.below.get(dest)

    def holds(self, item: Item, via: str | None) -> bool:
        for approach in self.approaches.values():
            to_it = item.dest in approach.sites and (via is None or via != self.parent)
            turns_off = via == approach.child and (self.stops_here(item) or item.dest in self.below)
            if approach.settling and (to_it or turns_off):
                approach.held.append((item, via))
                return True
        for turn in self.turns.values():
            if turn.left is None and item.dest in turn.sites and self.net.without != "hold in the middle":
                turn.held.append(item)
                return True
        return False

    def up(self, item: Item, number: int | None = None) -> None:
        assert self.parent is not None, f"{item} has no way from {self.site}"
        if self.fencing is not None and self.net.without != "fence":
            item = Message("FENCED", self.fencing, self.fencing.meets, item=item, number=number)
        self.net.put(self.site, self.parent, item)

    def down_now(self, item: Item) -> None:
        """Past what is held: it was on its way before."""
        if item.dest == self.site:
            self.receive(item, None)
        else:
            self.net.put(self.site, self.below[item.dest], item)

    # --- gates ---

    def stops_here(self, item: Item) -> bool:
        if isinstance(item, Signal) and item.kind == "TERMINATE":
            # At or above the gate that was named, and the target: what that emits passes here.
            ends = (item.switch.gate, item.switch.target)
            return self.parent is None or all(end == self.site or end in self.below for end in ends)
        return item.dest == self.site

    def waits_at_gate(self, item: Item) -> bool:
        waiting = self.gates.get(item.gate) if isinstance(item, Data) and item.gate is not None else None
        if waiting is not None:
            assert isinstance(item, Data)
            waiting.append(item)
        return waiting is not None

    def signalled(self, signal: Signal) -> None:
        switch = signal.switch
        match signal.kind:
            case "TERMINATE":
                self.gates[switch] = []
                self.send(Signal("STOP", switch, switch.source, gate=self.site))
            case "STOP":
                self.net.stopped[switch] = self.net.sent[switch.source, switch.consumer]
                self.send(Signal("ACK", switch, signal.gate))
            case "ACK" if switch in self.moved_gates:
                self.send(replace(signal, dest=self.moved_gates[switch]))
            case "ACK":
                waiting, self.gates[switch] = self.gates[switch] or [], None
                for item in waiting:
                    self.send(item)
                self.send(Signal("DONE", switch, switch.target))
            case "DONE":
                self.net.begun[switch] = False
            case "GATE":
                self.gates[switch] = list(signal.held)

    def give_gates_away(self, detach: Message) -> None:
        for switch, waiting in list(self.gates.items()):
            if waiting is not None and switch.target in detach.sites and self.net.without != "gates that move":
                del self.gates[switch]
                self.moved_gates[switch] = detach.rehoming.meets
                self.send(Signal("GATE", switch, detach.rehoming.meets, held=tuple(waiting)))

    # --- the protocol ---

    def learn(self, message: Message, via: str | None) -> None:
        """From messages that pass."""
        rehoming = message.rehoming
        in_the_middle = self.site == rehoming.meets
        match message.kind:
            case "JOIN" if not in_the_middle and via is not None:
                self.approaches[rehoming.id] = Approach(via, message.sites)
            case "JOIN" if via is not None:
                self.below.update(dict.fromkeys(message.sites, via))
            case "DETACH" if not in_the_middle:
                self.give_gates_away(message)
                for site in message.sites:
                    self.below.pop(site, None)
            case "SETTLE" if not in_the_middle and self.net.without != "settling":
                self.approaches[rehoming.id].settling = True

    def take_the_short_way(self, settled: Message) -> None:
        """What is for the site goes ahead of SETTLED, and what came from it and turned off here follows it.

        So whatever is said in answer to any of it comes where it belongs.
        """
        approach = self.approaches[settled.rehoming.id]
        for item, _ in approach.held:
            if item.dest in approach.sites:
                self.net.put(self.site, approach.child, item)
        held = [(item, came) for item, came in approach.held if item.dest not in approach.sites]
        self.net.put(self.site, approach.child, settled)
        del self.approaches[settled.rehoming.id]
        self.below.update(dict.fromkeys(approach.sites, approach.child))
        for item, came in held:
            self.receive(item, came)

    def rehome(self, rehoming: Rehoming) -> None:
        """The site itself, when the manager says so."""
        old_up, old_down = self.net.sessions[self.site, rehoming.source], self.net.sessions[rehoming.source, self.site]
        old_down.refused = True
        self.parent, self.waiting = rehoming.target, []
        self.net.connect(self.site, rehoming.target)
        sites = (self.site, *self.below)
        join = Message("JOIN", rehoming, rehoming.meets, sites=sites, mark=old_down.received)
        self.net.put(self.site, rehoming.target, join)
        self.fencing = rehoming

        def handed_back() -> None:
            waiting, self.waiting = self.waiting or [], None
            for number in range(old_up.acked + 1, len(old_up.items)):
                self.up(old_up.items[number], number)
            for item in waiting:
                self.up(item)
            if self.opened:
                self.settle(rehoming)

        self.net.later.append(handed_back)

    def settle(self, rehoming: Rehoming) -> None:
        self.fencing, self.opened = None, False
        self.send(Message("SETTLE", rehoming, rehoming.meets))

    def obey(self, message: Message, via: str | None) -> None:
        rehoming = message.rehoming
        match message.kind:
            case "JOIN":
                self.turns[rehoming.id] = Turn(message.sites)
                self.send(Message("DETACH", rehoming, rehoming.source, sites=message.sites, mark=message.mark))
            case "DETACH":
                self.detach(message)
            case "RETURNED":
                assert message.item is not None
                self.down_now(message.item)
            case "LEFT":
                self.open(rehoming, message.mark)
            case "FENCED":
                turn = self.turns[rehoming.id]
                if turn.left is None:
                    turn.fenced.append((message, via))
                else:
                    self.pass_fence(message, via, turn.left)
            case "OPENED":
                if self.waiting is None or self.net.without == "waiting for what is handed back":
                    self.settle(rehoming)
                else:
                    self.opened = True  # first what was not delivered: repeats among it are found by the fence alone
            case "SETTLE":
                self.send(Message("SETTLED", rehoming, rehoming.site))
            case "SETTLED":
                del self.net.open[rehoming.id]

    def detach(self, message: Message) -> None:
        """The old parent: what it has of the site is final, and what the site does not have goes back."""
        rehoming, net = message.rehoming, self.net
        up, down = net.sessions[rehoming.site, self.site], net.sessions[self.site, rehoming.site]
        up.refused = True

        def handed_back() -> None:
            for item in down.items[message.mark + 1 :] if net.without != "return" else ():
                self.send(Message("RETURNED", rehoming, rehoming.meets, item=item))
            self.send(Message("LEFT", rehoming, rehoming.meets, mark=-1 if net.without == "mark" else up.received))

        net.later.append(handed_back)

    def open(self, rehoming: Rehoming, mark: int) -> None:
        """What is said in answer to what is released has to queue up behind it."""
        turn = self.turns[rehoming.id]
        for message, via in turn.fenced:
            self.pass_fence(message, via, mark)
        while turn.held:
            self.down_now(turn.held.pop(0))
        turn.left = mark
        self.send(Message("OPENED", rehoming, rehoming.site))

    def pass_fence(self, message: Message, via: str | None, mark: int) -> None:
        assert message.item is not None
        if message.number is None or message.number > mark:
            # As if it had come up here by itself: messages teach routers on their way.
            self.receive(message.item, via)


class Net:
    def __init__(self, rng: Random, parents: dict[str, str], without: str = "") -> None:
        """`without`: a part of the protocol that is left out, to see that it is needed."""
        self.rng, self.without = rng, without
        self.sessions: dict[tuple[str, str], Session] = {}
        self.routers = {site: Router(self, site, parents.get(site)) for site in {*parents, *parents.values()}}
        self.later: list[object] = []
        self.open: dict[int, Rehoming] = {}
        self.sent: Counter[tuple[str, str]] = Counter()
        self.arrived: dict[tuple[str, str], list[int]] = {}
        self.too_early: list[Data] = []
        self.begun: dict[Switch, bool] = {}  # whether the target's outputs must pass the gate
        self.stopped: dict[Switch, int] = {}  # what the source had emitted in all
        self.moved: set[Switch] = set()  # whose target, and not whose source, was in what changed its parent
        self._rehomings = 0
        for site, parent in parents.items():
            self.connect(site, parent)
            below = site
            for above in self.chain(parent):
                self.routers[above].below[site] = below
                below = above

    def chain(self, site: str | None) -> Iterator[str]:
        while site is not None:
            yield site
            site = self.routers[site].parent

    def connect(self, a: str, b: str) -> None:
        for ends in ((a, b), (b, a)):
            self.sessions[ends] = Session()

    def put(self, near: str, far: str, item: Item) -> None:
        self.sessions[near, far].items.append(item)

    def say(self, origin: str, dest: str, then: str | None = None, follows: tuple[str, int] | None = None) -> None:
        number = self.sent[origin, dest]
        self.sent[origin, dest] += 1
        said = self.sent[origin, then] if then is not None else 0
        gate = next(
            (each for each, gated in self.begun.items() if gated and (each.target, each.consumer) == (origin, dest)),
            None,
        )
        self.routers[origin].send(Data(origin, dest, number, then, said, follows, gate))

    def switch(self, source: str, target: str, consumer: str) -> None:
        above = set(self.chain(source))
        gate = next(each for each in self.chain(target) if each in above)
        switch = Switch(len(self.begun), source, target, consumer, gate)
        self.begun[switch] = True
        self.routers[target].send(Signal("TERMINATE", switch))

    def arrive(self, item: Data) -> None:
        self.arrived.setdefault((item.origin, item.dest), []).append(item.number)
        if item.gate is not None:
            emitted = self.stopped.get(item.gate)
            if emitted is None or len(self.arrived.get((item.gate.source, item.dest), ())) < emitted:
                self.too_early.append(item)
        if item.follows is not None:
            before, count = item.follows
            gated = any((each.target, each.consumer) == (before, item.dest) for each in self.begun)  # it may wait
            if not gated and len(self.arrived.get((before, item.dest), ())) < count:
                self.too_early.append(item)
        if item.then is not None and item.then != item.dest:
            # What its sender had said there before comes first: so a marker that is answered is behind the rows.
            self.say(item.dest, item.then, follows=(item.origin, item.said_before))

    def rehome(self, site: str, target: str) -> Rehoming:
        source = self.routers[site].parent
        assert source is not None
        above = set(self.chain(source))
        self._rehomings += 1
        meets = next(each for each in self.chain(target) if each in above)
        rehoming = Rehoming(self._rehomings, site, source, target, meets)
        self.open[rehoming.id] = rehoming
        self.moved |= {
            switch
            for switch, gated in self.begun.items()
            if gated and site in self.chain(switch.target) and site not in self.chain(switch.source)
        }
        self.routers[site].rehome(rehoming)
        return rehoming

    def step(self) -> bool:
        """One thing that can happen, if any."""
        ready = [ends for ends, session in self.sessions.items() if self._deliverable(session)]
        choices = len(ready) + len(self.later)
        if not choices:
            return False
        pick = self.rng.randrange(choices)
        if pick >= len(ready):
            self.later.pop(pick - len(ready))()  # type: ignore[operator]
            return True
        near, far = ready[pick]
        session = self.sessions[near, far]
        session.received += 1
        if self.rng.random() < 0.5:
            session.acked = session.received
        self.routers[far].receive(session.items[session.received], near)
        return True

    @staticmethod
    def _deliverable(session: Session) -> bool:
        return not session.cut and not session.refused and session.received + 1 < len(session.items)
