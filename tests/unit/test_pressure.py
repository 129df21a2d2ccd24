"""Back-pressure between routers: to whom it is told, when, and how long it holds."""

from functools import partial

from harness import CLOUD, EDGE1, REGION, Net
from peregrine.core.pressure import EVERY_S, HOLDS_S, Hearing, Telling, is_told


def test_parents_tell_their_children() -> None:
    ways = Net().routers[REGION].ways
    assert is_told(ways, EDGE1) and not is_told(ways, CLOUD)
    assert is_told(Net().routers[CLOUD].ways, REGION), "the root has no parent"


def test_pressure_is_told_again_and_again_and_that_there_is_none_once() -> None:
    telling = Telling()
    pressed = [False, False, True, True, False, False]
    told = [telling.tell(partial(pressed.__getitem__, i), i * EVERY_S) for i in range(len(pressed))]
    assert told == [False, None, True, True, False, None]


def test_nobody_asks_between_two_words() -> None:
    telling = Telling()
    assert telling.tell(lambda: True, 0.0) is True
    assert telling.tell(lambda: False, EVERY_S / 2) is None
    assert telling.tell(lambda: False, EVERY_S) is False


def test_what_was_heard_holds_for_a_while_if_nothing_more_is_heard() -> None:
    edge = Net().routers[EDGE1]
    hearing = Hearing(edge)
    hearing.hear(True, 10.0)
    hearing.review(10.0 + HOLDS_S)
    assert not edge.accepts_rows()
    hearing.review(10.1 + HOLDS_S)
    assert edge.accepts_rows()


def test_that_it_is_over_counts_at_once() -> None:
    edge = Net().routers[EDGE1]
    hearing = Hearing(edge)
    hearing.hear(True, 10.0)
    hearing.hear(False, 10.1)
    assert edge.accepts_rows()


def test_a_router_that_was_restarted_has_heard_nothing() -> None:
    edge = Net().routers[EDGE1]
    edge.hear_pressure(True)  # so a snapshot has it
    Hearing(edge)
    assert edge.accepts_rows()
