"""Replicas of key state at other places (Spacker III-B, survey IV-F): what is kept, and whether a migration needs it.

A replica is a key image with its chunks. The source remembers which chunks a place has (`KeyState.sent`) and leaves
them out; links are FIFO and logs durable, so what was sent before has arrived before. `retrieval` is Spacker's last
step (III-C1): a plan suggests reload or transfer, what both sides have at the moment of the move decides.
"""

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
    """The replicas that a router keeps for its places."""

    def __init__(self) -> None:
        self._images: dict[tuple[OpId, PlaceId, str], KeyImage] = {}

    def keep(self, state: StateRows) -> None:
        """A newer image of some keys, with the chunks that this side lacked.

        One that builds on a replica which was given up meanwhile (an aborted migration) is of no use: the source
        learns of that from the same abort, and sends everything next time.
        """
        for image in state.images:
            whole = self._whole(state.op, state.target, image)
            if whole is not None:
                self._images[state.op, state.target, image.key] = whole

    def complete(self, op: OpId, place: PlaceId, image: KeyImage) -> KeyImage:
        """The image with all of its chunks. The replica has done its duty and is given up."""
        whole = self._whole(op, place, image)
        if whole is None:
            raise ProtocolError(
                f"some chunks of key {image.key!r} of {op} are neither at {place} nor on the way to it",
                "migrate this key again with a mechanism that ships all of its state, such as live",
            )
        self._images.pop((op, place, image.key), None)
        return whole

    def get(self, op: OpId, place: PlaceId, key: str) -> KeyImage | None:
        return self._images.get((op, place, key))

    def stored(self) -> set[bytes]:
        """The chunks in the store of the site that replicas name."""
        return {name for image in self._images.values() for name in image.stored}

    def discard(self, op: OpId, place: PlaceId, keys: KeySet) -> None:
        for at in [at for at in self._images if at[:2] == (op, place) and at[2] in keys]:
            del self._images[at]

    def _whole(self, op: OpId, place: PlaceId, image: KeyImage) -> KeyImage | None:
        if image.spilled:
            return image
        data = dict(image.data)
        replica = self._images.get((op, place, image.key))
        if replica is not None:
            data = {**dict(replica.data), **data}
        if any(name not in data for name in image.chunks):
            return None
        return replace(image, data=tuple((name, data[name]) for name in dict.fromkeys(image.chunks)))
