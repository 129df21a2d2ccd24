"""Keys that are not above their producers when a redeployment or somebody's plan has ended are planned again."""

from managed_railway import CLOUD, COUNT, EDGE1, EDGE2, TRAIN, K, Railway, redeployed, wanted
from peregrine.core.coordinator import Submit
from peregrine.core.manager import ManagerEffect
from peregrine.core.messages import Rehomed, Report
from peregrine.core.reconfigure import Move, Plan
from peregrine.core.topology import Link
from peregrine.plan.redeploy.events import LinkSet, SiteMoved
from peregrine.types import MigrationId, PlaceId, SiteId

NOT_ABOVE = "app/count at edge1 is not above s, which produces for it at train"


def move(railway: Railway, name: str, source: SiteId, target: SiteId) -> None:
    """Somebody's plan begins."""
    railway.step(Submit(Plan(name, ((Move(COUNT, K, PlaceId(source), PlaceId(target)),),))))


def done(railway: Railway, plan: str, status: str = "done") -> list[ManagerEffect]:
    return railway.step(Report(EDGE1, MigrationId(f"{plan}.0.0"), status))


def going_down() -> Railway:
    """k is on its way from the cloud to edge1 when the train is told to leave that."""
    railway = Railway()
    move(railway, "up", EDGE1, CLOUD)
    done(railway, "up")
    move(railway, "down", CLOUD, EDGE1)
    effects = railway.step_with(SiteMoved(TRAIN, EDGE1, EDGE2, Link(1.0), 1))
    assert wanted(effects) == ["train: edge1 -> edge2"]
    return railway


def test_keys_that_a_plan_has_moved_while_their_site_changed_its_parent_follow_it() -> None:
    railway = going_down()
    done(railway, "down")
    effects = railway.step(Rehomed(TRAIN, 1))
    assert wanted(effects) == ["done", "k: edge1 -> edge2"], "at once, and after it was told"
    (ended,) = redeployed(effects)
    assert ended.wrong == (NOT_ABOVE,)
    (mended,) = redeployed(done(railway, "redeploy2-app-after"))
    assert mended.complete and mended.wrong == () and mended.rehomed == ()
    assert railway.owner() == EDGE2
    assert wanted(railway.tick()) == []


def test_keys_of_a_plan_that_ends_after_the_change_follow_as_well() -> None:
    railway = going_down()
    (ended,) = redeployed(railway.step(Rehomed(TRAIN, 1)))
    assert ended.wrong == (), "they are at the cloud yet"
    done(railway, "down")
    assert wanted(railway.obey(railway.tick())) == ["k: edge1 -> edge2", "done"]
    assert railway.owner() == EDGE2


def test_where_a_plan_has_moved_keys_is_kept_if_that_is_above_their_producers() -> None:
    railway = Railway()
    railway.step_with(SiteMoved(TRAIN, EDGE1, EDGE2, Link(1.0), 1))
    move(railway, "mine", EDGE1, CLOUD)
    done(railway, "mine")
    effects = railway.obey(railway.step(Rehomed(TRAIN, 1)))
    assert wanted(effects) == ["put off", "done"], "it was planned from edge1, where k is not"
    assert wanted(railway.obey(railway.tick())) == []
    assert railway.owner() == CLOUD


def test_what_cannot_be_put_right_is_tried_once_and_again_when_something_happens() -> None:
    railway = Railway()
    railway.step_with(SiteMoved(TRAIN, EDGE1, EDGE2, Link(1.0), 1))
    railway.step(Rehomed(TRAIN, 1))
    effects = done(railway, "redeploy1-app-after", "aborted")
    assert wanted(effects) == ["done", "k: edge1 -> edge2"]
    effects = done(railway, "redeploy2-app-after", "aborted")
    assert wanted(effects) == ["done"], "once is enough"
    (ended,) = redeployed(effects)
    assert not ended.complete and ended.wrong == ("app/count {k} is not all at edge2",)
    assert [wanted(railway.tick()) for _ in range(3)] == [[], [], []] and railway.manager.idle

    railway.tell(LinkSet(EDGE1, EDGE2, Link(90.0), 2))  # which nobody needs
    assert wanted(railway.obey(railway.tick())) == ["done", "k: edge1 -> edge2", "done"]
    assert railway.owner() == EDGE2


def test_keys_that_somebody_moves_are_left_alone_until_that_has_ended() -> None:
    railway = going_down()
    railway.step(Rehomed(TRAIN, 1))
    done(railway, "down")
    move(railway, "up again", EDGE1, CLOUD)
    assert "k: edge1 -> edge2" not in wanted(railway.tick()), "and no change of the topology waits for it"
    assert railway.manager.redeploying is not None and railway.manager.redeploying.idle
    done(railway, "up again")
    assert wanted(railway.tick()) == [] and railway.owner() == CLOUD


def test_a_change_that_is_told_meanwhile_goes_first_and_may_put_everything_right() -> None:
    railway = going_down()
    done(railway, "down")
    assert railway.step_with(SiteMoved(TRAIN, EDGE2, EDGE1, Link(1.0), 2)) == []
    effects = railway.step(Rehomed(TRAIN, 1))
    assert wanted(effects) == ["done", "train: edge2 -> edge1"]
    assert wanted(railway.step(Rehomed(TRAIN, 2))) == ["done"]
    assert railway.owner() == EDGE1 and wanted(railway.tick()) == []
