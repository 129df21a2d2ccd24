"""A router pushes the log of a host to who follows it: as it grows, from any offset, and to one at a time."""

import threading
from collections.abc import Callable, Iterator

import msgspec
import pytest
from real_sites import GROUPS, OP, Cluster, until
from test_router_door import batch

from peregrine.core import wire
from peregrine.core.rows import Rows
from peregrine.errors import ConfigurationError
from peregrine.net import protocol
from peregrine.net.client import RouterClient
from peregrine.types import PlaceId, SiteId

CLOUD, AT_CLOUD = SiteId("cloud"), PlaceId("cloud")
Start = Callable[..., Cluster]


def followed(client: RouterClient, place: PlaceId, offset: int) -> Iterator[bytes]:
    """Frame by frame."""
    for bunch in client.follow(place, offset):
        yield from bunch


def offsets(frames: Iterator[bytes], upto: int) -> list[int]:
    """Of the rows that come, until that one has come."""
    found: list[int] = []
    while not found or found[-1] < upto:
        for at, raw in msgspec.msgpack.decode(next(frames) or b"\x90", type=list[tuple[int, bytes]]):
            entry = wire.decode_entry(raw)
            assert isinstance(entry, Rows)
            found += range(at, at + len(entry))
    return found


def test_who_follows_a_log_gets_what_is_there_and_what_comes(start: Start) -> None:
    client = start("cloud", hosts=False).clients[CLOUD]
    client.offer(batch(0, 30))
    frames = followed(client, AT_CLOUD, 0)
    assert msgspec.msgpack.decode(next(frames), type=dict[str, int])[OP] == GROUPS
    assert offsets(frames, 29) == list(range(30))
    client.offer(batch(30, 10))
    assert offsets(frames, 39) == list(range(30, 40))
    assert client.advance({AT_CLOUD: 30}) == ({AT_CLOUD: 40}, [])
    frames.close()  # type: ignore[attr-defined]
    until(lambda: client.advance({AT_CLOUD: 30}) == ({AT_CLOUD: 40}, [AT_CLOUD]))
    with pytest.raises(ConfigurationError, match="mars"):
        list(client.follow(PlaceId("mars"), 0))


def test_who_begins_to_follow_takes_the_lease_from_the_one_before(start: Start) -> None:
    client = start("cloud", hosts=False).clients[CLOUD]
    client.offer(batch(0, 10))
    first = followed(client, AT_CLOUD, 0)
    next(first)
    assert offsets(first, 9) == list(range(10))
    left: list[bytes] = []
    waiting = threading.Thread(target=lambda: left.extend(first))
    waiting.start()
    second = followed(client, AT_CLOUD, 5)
    next(second)
    waiting.join(20)
    assert not waiting.is_alive() and left[-1] == protocol.LOST and not any(left[:-1])
    client.offer(batch(10, 10))
    assert offsets(second, 19)[-10:] == list(range(10, 20))
    client.release(AT_CLOUD)
    assert [frame for frame in second if frame] == [protocol.LOST]
