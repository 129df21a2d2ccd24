"""Outputs that go to several routers at the same time (spark/handing.py)."""

import threading

import pytest

from peregrine.errors import TransportError
from peregrine.spark.handing import UNKNOWN, Handing


class Router:
    """Answers when it is told to."""

    def __init__(self) -> None:
        self.may_answer = threading.Event()
        self.has_it = False

    def offer(self) -> None:
        assert self.may_answer.wait(10)
        self.has_it = True


def test_a_shard_that_is_not_the_last_of_its_task_does_not_wait_for_its_router() -> None:
    handing, slow = Handing(), Router()
    handing.begin(task=1, shards=2)
    handing.hand(slow.offer)
    handing.end()
    assert not slow.has_it
    slow.may_answer.set()
    handing.begin(task=1, shards=2)
    handing.end()
    assert slow.has_it


def test_the_last_shard_waits_for_all_routers() -> None:
    handing, routers = Handing(), [Router() for _ in range(3)]
    for router in routers:
        handing.begin(task=1, shards=4)
        handing.hand(router.offer)
        handing.end()
    answers = threading.Timer(0.05, lambda: [router.may_answer.set() for router in routers])
    answers.start()
    handing.begin(task=1, shards=4)
    handing.end()
    assert all(router.has_it for router in routers)


def test_where_nobody_knows_how_many_shards_there_are_each_waits_for_its_own_router() -> None:
    handing, router = Handing(), Router()
    router.may_answer.set()
    handing.begin(task=1, shards=UNKNOWN)
    handing.hand(router.offer)
    handing.end()
    assert router.has_it


def test_what_a_router_refuses_fails_the_task_before_it_ends() -> None:
    def refuse() -> None:
        raise TransportError("router edge1 is away", "start it")

    handing = Handing()
    handing.begin(task=1, shards=2)
    handing.hand(refuse)
    handing.end()
    handing.begin(task=1, shards=2)
    with pytest.raises(TransportError, match="edge1 is away"):
        handing.end()


def test_a_task_that_is_tried_again_begins_anew() -> None:
    """The first try died in its second shard: what it had under way is no concern of the second try."""

    def fail() -> None:
        raise TransportError("of the first try", "")

    handing, router = Handing(), Router()
    handing.begin(task=1, shards=2)
    handing.hand(fail)
    handing.end()
    for _ in range(2):
        handing.begin(task=2, shards=2)
        handing.hand(router.offer)
        router.may_answer.set()
        handing.end()
    assert router.has_it


def test_the_next_task_of_a_process_may_have_as_many_shards_as_the_one_before() -> None:
    handing, seen = Handing(), []
    for task in (1, 2):
        for _ in range(2):
            handing.begin(task, shards=2)
            handing.hand(lambda task=task: seen.append(task))  # type: ignore[misc]
            handing.end()
        assert seen.count(task) == 2
