"""Routers and hosts under chance alone: sites change their parents, and each part of the protocol is needed for that.

Much quicker than a simulated network, and crueller: what a link had on its way when it was cut stays there.
"""

import pickle

import pytest

from peregrine.core import journal, wire
from peregrine.core.messages import Append, Effect, HandBack, Rehomed, Send
from peregrine.core.router import Router
from rehoming_faults import ROUTERS
from rehoming_net import play, run


@pytest.mark.parametrize("start", range(0, 60, 20))
def test_rows_land_once_and_in_order_while_sites_change_their_parents(start: int) -> None:
    assert {seed: wrong for seed in range(start, start + 20) if (wrong := run(seed))} == {}


@pytest.mark.parametrize("seed", [26, 280, 505, 906, 1346, 2916, 5025, 18810, 18824])
def test_seeds_that_once_found_something_find_nothing(seed: int) -> None:
    assert run(seed) == []


def test_a_router_is_a_function_of_its_journal_and_survives_a_snapshot() -> None:
    net, _ = play(14)
    for site, config in net.configs.items():
        again = Router(config)
        events, effects = net.journals[site], net.effects[site]
        for nth, (event, expected) in enumerate(zip(events, effects, strict=True)):
            if nth == len(events) // 2:
                again = pickle.loads(pickle.dumps(again))
            assert done(again.step(journal.decode(journal.encode(event)))) == done(expected)


def done(effects: list[Effect]) -> list[object]:
    """What is sent and written, as bytes: how a set is printed depends on its history."""
    sent = [(e.neighbour, e.seq, e.session, wire.encode(e.item)) for e in effects if isinstance(e, Send)]
    written = [(e.place, e.offset, wire.encode(e.entry)) for e in effects if isinstance(e, Append)]
    return [*sent, *written, *(e for e in effects if isinstance(e, HandBack | Rehomed))]


# Where each fault shows. What sends rows round for ever is stopped.
FIRST_SEED = {
    "no fence": 26,
    "no mark": 0,
    "nothing returns": 29,
    "the short way at once": 130,
    "no settling": 76,
    "markers that turn back teach nobody": 156,
    "old news teaches": 5025,
    "the parent that was left has the last word": 906,
    "aborts teach nobody": 26,
    "the old branch keeps the keys": 13,
    "keys are not announced": 13,
}


@pytest.mark.parametrize("fault", FIRST_SEED)
def test_it_goes_wrong_without(fault: str) -> None:
    first = FIRST_SEED[fault]
    assert any(goes_wrong(seed, ROUTERS[fault]) for seed in (first, *range(200)))


def goes_wrong(seed: int, router: type[Router]) -> bool:
    try:
        return run(seed, router, most_steps=20_000) != []
    except (AssertionError, KeyError):
        return True
