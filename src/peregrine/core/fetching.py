"""Chunks of state on its way: what a router waits for, and what it keeps for others.

Large state travels as names. The router beside the host that emitted it pins the chunks; the router of the target has
them fetched from there and lets the state wait, while rows flow as the mechanism says; then it tells the first one that
they have been taken. A router does not know what is in the chunk store of its site: whoever performs `Fetch` looks.

`pinned` is what the collector of a site must leave alone beside what the states of its hosts refer to. A chunk is
pinned, here or there, from before the host that had it forgets it until after the host that gets it has committed it.
"""

from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from peregrine.core.messages import Fetch
from peregrine.core.replication import ReplicaStore
from peregrine.core.rows import ChunksTaken, KeyImage, StateRows
from peregrine.types import MigrationId, OpId, PlaceId

if TYPE_CHECKING:
    from peregrine.core.leg import Ports


@dataclass(slots=True)
class Arrival:
    """State that has come, and what is still being fetched for it."""

    state: StateRows
    fetch: Fetch | None
    bytes_moved: int = 0


class Fetching:
    def __init__(self, router: "Ports", replicas: ReplicaStore) -> None:
        self._router = router
        self._replicas = replicas
        self._arrivals: list[Arrival] = []  # in the order in which they came
        self._leaving: dict[int, StateRows] = {}
        self._restoring: list[tuple[PlaceId, int, tuple[bytes, ...]]] = []  # until the place has committed this offset
        self._pins = 0
        self._fetches = 0

    # --- where state comes from ---

    def depart(self, state: StateRows) -> StateRows:
        """State that leaves from here: its chunks stay until somebody says that they have been taken.

        Of replicas it is said even if there are none: so it is known here that they have been applied there.
        """
        if not state.stored and state.migration is not None:
            return state
        self._pins += 1
        self._leaving[self._pins] = state = replace(state, origin=self._router.site, pin=self._pins)
        return state

    def taken(self, pin: int) -> None:
        del self._leaving[pin]

    # --- where it goes ---

    def arrive(self, state: StateRows) -> None:
        """Fetch what a replica here does not have already."""
        names = [name for image in state.images for name in self._lacking(state, image)]
        fetch = None
        if names:
            assert state.origin is not None, "a router that sees state with chunks first says that it has them"
            self._fetches += 1
            fetch = Fetch(self._fetches, tuple(dict.fromkeys(names)), state.origin)
            self._router.fetch(fetch)
        self._arrivals.append(Arrival(state, fetch))

    def here(self, number: int, bytes_moved: int) -> None:
        """Told again after a crash, or for state that was given up: then it means nothing."""
        for arrival in self._arrivals:
            if arrival.fetch is not None and arrival.fetch.number == number:
                arrival.fetch, arrival.bytes_moved = None, bytes_moved

    def next_ready(self) -> Arrival | None:
        """The next state that can be used now."""
        for i, arrival in enumerate(self._arrivals):
            if arrival.fetch is None and not _builds_on_any(arrival.state, self._arrivals[:i]):
                del self._arrivals[i]
                self.refuse(arrival.state)
                return arrival
        return None

    def refuse(self, state: StateRows) -> None:
        """Nobody here will fetch its chunks any more."""
        if state.origin is not None:
            self._router.send(ChunksTaken(state.origin, state.pin), state.origin)

    def give_up(self, migration: MigrationId) -> None:
        """Its state is not wanted any more."""
        mine = [each for each in self._arrivals if each.state.migration and each.state.migration.id == migration]
        self._arrivals = [each for each in self._arrivals if each not in mine]
        for each in mine:
            self.refuse(each.state)

    def restores(self, place: PlaceId, offset: int, images: Iterable[KeyImage]) -> None:
        """Images enter a host's log: their chunks stay until its committed state refers to them."""
        names = tuple(name for image in images for name in image.stored)
        if names:
            self._restoring.append((place, offset, names))

    def on_commit(self, place: PlaceId) -> None:
        if self._restoring:
            offset = self._router.commits.get(place, 0)
            self._restoring = [each for each in self._restoring if each[0] != place or each[1] >= offset]

    # --- what others may ask ---

    def pending(self) -> list[Fetch]:
        return [arrival.fetch for arrival in self._arrivals if arrival.fetch is not None]

    def refreshing(self, op: OpId, source: PlaceId, target: PlaceId) -> bool:
        """Are replicas of this place on their way to that one?"""
        return any(
            state.migration is None and (state.op, state.source, state.target) == (op, source, target)
            for state in self._leaving.values()
        )

    def leaving(self) -> int:
        """For how much state on its way chunks are kept."""
        return len(self._leaving)

    def pinned(self) -> set[bytes]:
        moving = [*self._leaving.values(), *(arrival.state for arrival in self._arrivals)]
        names = {name for state in moving for name in state.stored}
        names.update(name for _, _, restoring in self._restoring for name in restoring)
        return names

    def leftovers(self) -> list[str]:
        waiting = [each.state.migration for each in self._arrivals]
        return [f"state of {each.id} waits for its chunks" for each in waiting if each]

    def _lacking(self, state: StateRows, image: KeyImage) -> list[bytes]:
        replica = self._replicas.get(state.op, state.whose, state.target, image.key) if image.stored else None
        has = set(replica.stored) if replica is not None else ()
        return [name for name in image.stored if name not in has]


def _builds_on_any(state: StateRows, earlier: list[Arrival]) -> bool:
    """A replica replaces the one before it, and a delta completes it: neither may come first.

    State that needs no replica need not wait: a migration must not depend on what is refreshed beside it.
    """
    if not earlier or (state.migration is not None and not state.static and all(map(_self_contained, state.images))):
        return False
    return any(
        (each.state.op, each.state.whose, each.state.target) == (state.op, state.whose, state.target)
        and not each.state.covers.isdisjoint(state.covers)
        for each in earlier
    )


def _self_contained(image: KeyImage) -> bool:
    return image.spilled or {name for name, _ in image.data}.issuperset(image.chunks)
