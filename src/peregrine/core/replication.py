"""Replicas of key state at other places (Spacker III-B, survey IV-F): what is kept, and whether a migration needs it.

A replica is a key image with its chunks. The source remembers which chunks a place has (`KeyState.sent`) and leaves
them out; links are FIFO and logs durable, so what was sent before has arrived before. `retrieval` is Spacker's last
step (III-C1): a plan suggests reload or transfer, what both sides have at the moment of the move decides.
"""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from enum import StrEnum

from peregrine.core.keyspace import KeySet
from peregrine.core.rows import KeyImage, StateRows
from peregrine.errors import ProtocolError
from peregrine.types import OpId, PlaceId


class Retrieval(StrEnum):
    RELOAD = "reload"  # the replica is as fresh as the original
    PATCH = "patch"  # the replica has some of the chunks
    TRANSFER = "transfer"  # there is no replica, or nothing of it is of use


def retrieval(image: KeyImage, replica: KeyImage | None) -> Retrieval:
    """How the target comes to the state that `image` names."""
    needs = {*image.chunks, *image.stored}
    has = set() if replica is None else {*replica.chunks, *replica.stored}
    if not needs & has:
        return Retrieval.TRANSFER
    return Retrieval.RELOAD if needs <= has else Retrieval.PATCH


@dataclass(frozen=True, slots=True)
class StateMoved:
    """What the state of a migration cost, and what it declared as lost."""

    bytes_moved: int = 0
    reload: int = 0  # keys, by the way their state was retrieved
    patch: int = 0
    transfer: int = 0
    shed: tuple[tuple[str, int], ...] = ()  # (key, rows that its lost value had seen)

    def __add__(self, other: "StateMoved") -> "StateMoved":
        return StateMoved(
            self.bytes_moved + other.bytes_moved,
            self.reload + other.reload,
            self.patch + other.patch,
            self.transfer + other.transfer,
            self.shed + other.shed,
        )

    def with_key(self, how: Retrieval) -> "StateMoved":
        return self + StateMoved(
            reload=how is Retrieval.RELOAD, patch=how is Retrieval.PATCH, transfer=how is Retrieval.TRANSFER
        )


NOTHING_MOVED = StateMoved()


class ReplicaStore:
    """The replicas that a router keeps for its places.

    Each belongs to the place that sent it: one that a key's last place sent late must not be taken for one of its next.
    """

    def __init__(self) -> None:
        self._images: dict[tuple[OpId, PlaceId, PlaceId], dict[str, KeyImage]] = {}  # (operator, source, target)

    def keep(self, state: StateRows) -> None:
        """A newer image of some keys, with the chunks that this side lacked.

        One that builds on a replica which was given up meanwhile (an aborted migration) is of no use: the source
        learns of that from the same abort, and sends everything next time.
        """
        for image in state.images:
            whole = self._whole(state.op, state.whose, state.target, image)
            if whole is not None:
                self._images.setdefault((state.op, state.whose, state.target), {})[image.key] = whole

    def complete(self, op: OpId, source: PlaceId, target: PlaceId, image: KeyImage) -> KeyImage:
        """The image with all of its chunks. The replica has done its duty and is given up."""
        whole = self._whole(op, source, target, image)
        if whole is None:
            raise ProtocolError(
                f"some chunks of key {image.key!r} of {op} are neither at {target} nor on the way to it",
                "migrate this key again with a mechanism that ships all of its state, such as live",
            )
        self._images.get((op, source, target), {}).pop(image.key, None)
        return whole

    def get(self, op: OpId, source: PlaceId, target: PlaceId, key: str) -> KeyImage | None:
        return self._images.get((op, source, target), {}).get(key)

    def all(self) -> Iterator[tuple[OpId, PlaceId, PlaceId, KeyImage]]:
        for (op, source, target), images in self._images.items():
            for image in images.values():
                yield op, source, target, image

    def stored(self) -> set[bytes]:
        """The chunks in the store of the site that replicas name."""
        return {name for _, _, _, image in self.all() for name in image.stored}

    def discard(self, op: OpId, source: PlaceId, target: PlaceId, keys: KeySet) -> None:
        images = self._images.get((op, source, target), {})
        for key in [key for key in images if key in keys]:
            del images[key]
        if not images:
            self._images.pop((op, source, target), None)

    def _whole(self, op: OpId, source: PlaceId, target: PlaceId, image: KeyImage) -> KeyImage | None:
        if image.spilled:
            return image
        data = dict(image.data)
        replica = self.get(op, source, target, image.key)
        if replica is not None:
            data = {**dict(replica.data), **data}
        if any(name not in data for name in image.chunks):
            return None
        return replace(image, data=tuple((name, data[name]) for name in dict.fromkeys(image.chunks)))
