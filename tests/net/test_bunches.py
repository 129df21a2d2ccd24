"""Parts of an answer that have come while somebody was busy are taken together."""

import threading
from collections.abc import Iterator

import pytest

from peregrine.errors import Unreachable
from peregrine.net.bunches import together

MOST = 64


def test_what_came_meanwhile_is_taken_at_once_and_in_order() -> None:
    came = threading.Event()

    def frames() -> Iterator[bytes]:
        yield b"0"
        assert came.wait(10)
        for number in range(1, 4):
            yield b"%d" % number
        ended.set()

    ended = threading.Event()
    taken = together(frames(), MOST)
    assert next(taken) == [b"0"]
    came.set()
    assert ended.wait(10)
    assert [frame for frames in taken for frame in frames] == [b"1", b"2", b"3"]


def test_there_is_an_end_to_what_is_taken_at_once() -> None:
    many = [b"x"] * (2 * MOST + 1)
    found = list(together(iter(many), MOST))
    assert sum(map(len, found)) == len(many)
    assert max(map(len, found)) <= MOST


def test_what_came_before_an_error_is_taken_before_it_is_raised() -> None:
    def frames() -> Iterator[bytes]:
        yield b"last"
        raise Unreachable("the router is away", "wait for it")

    taken = together(frames(), MOST)
    found: list[bytes] = []
    with pytest.raises(Unreachable):
        for each in taken:
            found += each
    assert found == [b"last"]


def test_who_leaves_keeps_nobody_waiting() -> None:
    ended = threading.Event()

    def frames() -> Iterator[bytes]:
        try:
            while True:
                yield b"x"
        finally:
            ended.set()

    taken = together(frames(), MOST)
    next(taken)
    taken.close()
    assert ended.wait(10)
