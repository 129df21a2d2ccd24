"""Outputs that go to several routers at the same time (spark/handing.py)."""

import threading

import pytest

from peregrine.errors import TransportError
from peregrine.spark.handing import Handing


class Router:
    """Answers when it is told to."""

    def __init__(self) -> None:
        self.may_answer = threading.Event()
        self.has_it = False

    def offer(self) -> None:
        assert self.may_answer.wait(10)
        self.has_it = True


def test_a_place_of_several_does_not_wait_for_its_router() -> None:
    handing, slow = Handing(side_by_side=True), Router()
    handing.hand(slow.offer)
    assert not slow.has_it
    slow.may_answer.set()
    handing.wait()
    assert slow.has_it


def test_a_batch_waits_for_all_routers() -> None:
    handing, routers = Handing(side_by_side=True), [Router() for _ in range(4)]
    answers = threading.Timer(0.05, lambda: [router.may_answer.set() for router in routers])
    answers.start()
    for router in routers:
        handing.hand(router.offer)
    handing.wait()
    assert all(router.has_it for router in routers)


def test_a_batch_of_one_place_needs_no_thread() -> None:
    handing, threads = Handing(side_by_side=False), []
    handing.hand(lambda: threads.append(threading.current_thread()))
    assert threads == [threading.current_thread()]


def test_what_a_router_refuses_fails_the_batch_before_it_ends() -> None:
    def refuse() -> None:
        raise TransportError("router edge1 is away", "start it")

    handing = Handing(side_by_side=True)
    handing.hand(refuse)
    handing.hand(lambda: None)
    with pytest.raises(TransportError):
        handing.wait()
