"""A site of real routers is lost while it changes its parent: others go on changing theirs, and it arrives later.

cloud
  region1, region2    the old and the new parent of the edge
    edge              is lost on its way, with a device
  region3, region4    nobody needs them for that
    shop              has a device, and owns one key
"""

from collections.abc import Callable

import pytest
from real_sites import Cluster, until
from test_rehoming import CLOUD, EDGE, LINK, REGION1, REGION2, SHOP, managed

from peregrine.control.changing import Changed
from peregrine.control.driver import Told
from peregrine.core.redeploying import Redeployed
from peregrine.plan.redeploy.events import SiteMoved
from peregrine.types import SiteId

REGION3, REGION4 = SiteId("region3"), SiteId("region4")
PARENTS = {EDGE: REGION1, SHOP: REGION3}


def test_a_site_that_is_lost_on_its_way_holds_up_only_what_needs_the_same_routers(
    start: Callable[..., Cluster],
) -> None:
    sites = (CLOUD, REGION1, REGION2, REGION3, REGION4, EDGE, SHOP)
    cluster = start(*sites, parents=PARENTS, latency_ms=60.0, keep_journal=True)
    news: list[Told] = []
    with managed(cluster, patience_ms=500, heard=news.append) as tree:
        tree.flow(300)
        tree.moves(REGION1, REGION2, 1)
        until(lambda: tree.is_on_its_way(REGION2), 30)
        cluster.kill(EDGE)
        tree.flow(100)

        tree.driver.change([SiteMoved(SHOP, REGION3, REGION4, LINK, 1)], 30)
        over = tuple(each for each in news if isinstance(each, Redeployed))
        assert [late.site for each in over for late in each.late] == [EDGE]
        assert "on its way: rehoming 1 of edge from region1 to region2" in Changed(over, ()).describe()
        assert cluster.clients[SHOP].status().parent == REGION4
        tree.flow(100)

        changed = tree.driver.change([SiteMoved(SHOP, REGION4, REGION2, LINK, 2)], 30)
        assert changed.redeployed == () and changed.put_off
        assert "needs region2" in str(changed.put_off[0].error)
        assert cluster.clients[SHOP].status().parent == REGION4

        cluster.restart(EDGE)
        until(lambda: {cluster.clients[site].status().parent for site in (EDGE, SHOP)} == {REGION2}, 30)
        tree.settle()
        tree.proves()


@pytest.mark.parametrize("lost", [(EDGE, REGION2), (REGION2, CLOUD)], ids=["its new link", "that of its new parent"])
def test_links_that_are_gone_for_good_on_the_way_are_gone_round(
    start: Callable[..., Cluster], lost: tuple[SiteId, SiteId]
) -> None:
    """It arrives at its new parent by way of the one to which it, or its new parent, has to go next; and goes there."""
    cluster = start(
        *(CLOUD, REGION1, REGION2, REGION3, EDGE, SHOP), parents=PARENTS, latency_ms=60.0, keep_journal=True
    )
    with managed(cluster, patience_ms=500) as tree:
        tree.flow(300)
        tree.moves(REGION1, REGION2, 1)
        until(lambda: tree.is_on_its_way(REGION2), 30)
        cluster.lose(*lost)
        tree.flow(100)
        tree.driver.tell(SiteMoved(lost[0], lost[1], REGION3, LINK, 2))
        until(lambda: cluster.clients[lost[0]].status().parent == REGION3, 30)
        tree.settle()
        assert {site: cluster.clients[site].status().parent for site in (EDGE, REGION2)} == {
            EDGE: REGION3 if lost[0] == EDGE else REGION2,
            REGION2: REGION3 if lost[0] == REGION2 else CLOUD,
        }
        tree.proves()
