import numpy as np
import pytest

from peregrine.bench.engine import roaming, warming
from peregrine.bench.engine.definition import Setting
from peregrine.types import SiteId

EDGES = [SiteId(f"edge{nth}") for nth in range(1, 7)]


@pytest.mark.parametrize("levels", [2, 3, 4])
def test_every_edge_is_so_many_levels_below_the_cloud_and_as_far_away(levels: int) -> None:
    tree = roaming.topology(EDGES, Setting(levels=levels, round_trip_ms=80))
    for edge in EDGES:
        path = tree.path(edge, roaming.CLOUD)
        assert len(path) == levels
        assert sum(tree.link(site).latency_ms for site in path[:-1]) == pytest.approx(40)


def test_a_car_stays_everywhere_or_at_the_last_edge_or_turns_round_before_its_key_could_follow() -> None:
    one, two, three = EDGES[:3]
    assert list(roaming.stops("drive", [one, two, three])) == [(two, True), (three, True)]
    assert list(roaming.stops("pass", [one, two, three])) == [(two, False), (three, True)]
    turns = list(roaming.stops("ping-pong", [one, two]))
    assert turns[:2] == [(two, False), (one, False)] and turns[-1] == (two, True)
    assert [stays for _, stays in turns].count(True) == 1


def test_a_dip_is_what_is_missing_in_the_worst_second_beyond_that_of_the_calm() -> None:
    calm = np.arange(0, 5000, 10.0)
    assert warming.dip(np.concatenate([calm, np.arange(5000, 9000, 10.0)]), (0, 5000), (5000, 9000)) == 0
    silent = np.concatenate([calm, np.arange(7000, 9000, 10.0)])
    assert warming.dip(silent, (0, 5000), (5000, 9000)) == 1
    half = np.concatenate([calm, np.arange(5000, 9000, 20.0)])
    assert warming.dip(half, (0, 5000), (5000, 9000)) == pytest.approx(0.5)
    assert warming.dip(half, (0, 5000), (5000, 5900)) is None, "less than a second"
