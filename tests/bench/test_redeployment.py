"""The figures of topology changes: every world is measured, by its planner and by the whole manager."""

import pytest

from peregrine.bench import redeployment


def test_the_whole_manager_is_measured_beside_its_planner_in_every_world(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(redeployment, "SITE_COUNTS", (10, 20))
    figures = redeployment.run(repetitions=2, baseline_repetitions=1)
    for name in ("manager_change", "incremental", "holistic"):
        assert {f"{name}_ms_10_sites", f"{name}_ms_20_sites", f"{name}_ratio_10_to_20"} <= figures.keys()


def test_a_train_goes_and_comes_back_and_its_keys_follow_it() -> None:
    manager = redeployment.managed_railway(10)
    placement = manager.coordinator.placement
    for version, edge in ((1, "edge1"), (2, "edge0")):
        (rehomed,) = redeployment.carry_out(manager, version).rehomed
        assert (rehomed.site, rehomed.target) == ("train0", edge)
        assert placement.owner(redeployment.partial(0), "train0") == edge
