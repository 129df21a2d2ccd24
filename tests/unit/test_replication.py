"""Replicas: reload, patch or transfer, and what a router keeps for its places (Spacker III-B, III-C1; survey IV-F)."""

import pytest

from harness import AT_CLOUD, AT_EDGE1, AT_EDGE2, CLOUD, OP, keys
from peregrine.core.replication import ReplicaStore, Retrieval, StateMoved, retrieval
from peregrine.core.rows import KeyImage, StateRows
from peregrine.core.state import Books, KeyState, restored
from peregrine.errors import ProtocolError
from peregrine.types import PlaceId

CHUNK_BYTES = 16


def value(length: int, first: int = 0) -> list[int]:
    return list(range(1000 + first, 1000 + first + length))


def image(content: object, has: KeyImage | None = None, key: str = "car1", version: int = 1) -> KeyImage:
    """A key's image, without the chunks of a replica that the receiver has."""
    ks = KeyState(content, Books(), version, {AT_CLOUD: list(has.chunks)} if has else {})
    return ks.image(key, AT_CLOUD if has else None, CHUNK_BYTES)


def sent(*images: KeyImage, place: PlaceId = AT_CLOUD) -> StateRows:
    return StateRows(OP, place, CLOUD, keys(*(each.key for each in images)), images, static=True, source=AT_EDGE1)


def test_a_fresh_replica_is_reloaded() -> None:
    """Spacker III-C1, set retrieval method: the destination has the latest state."""
    replica = image(value(20))
    assert retrieval(image(value(20), has=replica), replica) is Retrieval.RELOAD


def test_an_old_replica_is_patched() -> None:
    """Survey IV-F: only what has changed since the checkpoint travels."""
    replica = image(value(20))
    longer = image(value(25), has=replica)
    assert retrieval(longer, replica) is Retrieval.PATCH
    assert len(longer.data) < len(longer.chunks)


def test_without_a_replica_or_with_one_of_no_use_the_state_is_transferred() -> None:
    """Spacker III-C1: the source always has the latest state."""
    assert retrieval(image(value(20)), None) is Retrieval.TRANSFER
    assert retrieval(image(value(20, first=500)), image(value(20))) is Retrieval.TRANSFER


def test_the_suggestion_is_finalised_by_what_is_there_at_the_moment_of_the_move() -> None:
    """Spacker III-C1: a plan only suggests. The same replica is fresh, then old, then useless."""
    replica = image(value(20))
    found = [retrieval(image(content), replica) for content in (value(20), value(21), value(20, first=500))]
    assert found == [Retrieval.RELOAD, Retrieval.PATCH, Retrieval.TRANSFER]


def test_a_patched_replica_describes_the_key_as_it_is_now() -> None:
    store = ReplicaStore()
    first = image(value(20))
    store.keep(sent(first))
    delta = image(value(25), has=first, version=9)
    whole = store.complete(OP, AT_EDGE1, AT_CLOUD, delta)
    assert restored(whole).value == value(25)
    assert whole.version == 9


def test_each_refresh_builds_on_the_one_before() -> None:
    """Spacker III-B: replicas are kept fresh with what changed."""
    store = ReplicaStore()
    one = image(value(20))
    two = image(value(25), has=one)
    three = image(value(30), has=two)
    for each in (one, two, three):
        store.keep(sent(each))
    kept = store.get(OP, AT_EDGE1, AT_CLOUD, "car1")
    assert kept is not None and restored(kept).value == value(30)
    assert {name for name, _ in kept.data} == set(kept.chunks)  # chunks of older versions are gone


def test_a_replica_has_done_its_duty_once_it_was_completed() -> None:
    store = ReplicaStore()
    store.keep(sent(image(value(20))))
    store.complete(OP, AT_EDGE1, AT_CLOUD, image(value(20)))
    assert store.get(OP, AT_EDGE1, AT_CLOUD, "car1") is None


def test_a_delta_on_a_replica_that_was_given_up_is_of_no_use() -> None:
    """An abort discards replicas; what was sent before the source heard of it builds on nothing."""
    store = ReplicaStore()
    first = image(value(20))
    store.keep(sent(first))
    store.discard(OP, AT_EDGE1, AT_CLOUD, keys("car1"))
    store.keep(sent(image(value(25), has=first)))
    assert store.get(OP, AT_EDGE1, AT_CLOUD, "car1") is None


def test_missing_chunks_are_an_error_that_says_what_to_do() -> None:
    store = ReplicaStore()
    first = image(value(20))
    with pytest.raises(ProtocolError) as error:
        store.complete(OP, AT_EDGE1, AT_CLOUD, image(value(25), has=first))
    assert "car1" in error.value.what and AT_CLOUD in error.value.what
    assert "live" in error.value.remedy


def test_replicas_of_other_places_keys_and_operators_are_untouched() -> None:
    store = ReplicaStore()
    store.keep(sent(image(value(20)), image(value(5), key="car2")))
    store.keep(sent(image(value(20)), place=AT_EDGE2))
    store.discard(OP, AT_EDGE1, AT_CLOUD, keys("car1"))
    assert store.get(OP, AT_EDGE1, AT_CLOUD, "car1") is None
    assert store.get(OP, AT_EDGE1, AT_CLOUD, "car2") is not None
    assert store.get(OP, AT_EDGE1, AT_EDGE2, "car1") is not None


def test_costs_of_several_migrations_add_up_key_by_key() -> None:
    total = StateMoved(10, shed=(("car1", 3),)).with_key(Retrieval.RELOAD).with_key(Retrieval.TRANSFER)
    total += StateMoved(5, patch=2, shed=(("car2", 1),))
    assert total == StateMoved(15, 1, 2, 1, (("car1", 3), ("car2", 1)))
