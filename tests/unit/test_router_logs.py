"""Which sessions of a router are over, and what of its logs may be cut: told by effects and by the snapshot alone."""

from harness import CLOUD, EDGE1, OP, row, rows, spec
from peregrine.core.intake import RouterConfig
from peregrine.core.messages import Deliver, HandBack, Send
from peregrine.core.router import Router
from peregrine.core.router_logs import RESULTS, RouterLogs, host_log, out_log, session_of
from peregrine.core.topology import Link, Topology
from peregrine.types import PlaceId, SiteId

REGION = SiteId("region@1/x")
ITEM = rows(row("k", 0))


def machine() -> Router:
    return Router(RouterConfig(EDGE1, Topology.tree(CLOUD, {EDGE1: (CLOUD, Link(1.0))}), {OP: spec()}))


def test_a_session_has_a_name_of_its_own_whatever_its_neighbour_is_called() -> None:
    for session in ((REGION, 0), (REGION, 3), (CLOUD, 0)):
        assert session_of(out_log(session)) == session


def test_a_session_that_begins_ends_those_before_it_also_when_its_log_is_there_already() -> None:
    """A router that died begins it again: what is on the disk tells nothing."""
    again = RouterLogs([CLOUD], (machine(), {out_log((CLOUD, 0)): 7}))
    again.perform(Send(CLOUD, 0, ITEM, session=4))
    assert list(again.ended) == [(CLOUD, 0)]


def test_what_had_ended_at_the_snapshot_is_left_over_and_what_began_since_is_not() -> None:
    again = RouterLogs([CLOUD], (machine(), {out_log((CLOUD, 4)): 2}))
    again.perform(Send(REGION, 0, ITEM, session=5))
    logs = [out_log((CLOUD, 0)), out_log((CLOUD, 4)), out_log((REGION, 5)), host_log(PlaceId("edge"))]
    assert again.left_over(logs) == [(CLOUD, 0)]
    assert RouterLogs([], None).left_over([out_log((CLOUD, 0))]) == [], "a journal that has lost its events is refused"


def test_a_log_that_knows_more_than_the_journal_is_found() -> None:
    logs = RouterLogs([CLOUD], None)
    logs.perform(Deliver(0, ITEM))
    logs.perform(Send(CLOUD, 0, ITEM))
    assert logs.ahead({RESULTS: 1, out_log((CLOUD, 0)): 1}) == {}
    assert logs.ahead({RESULTS: 1, out_log((CLOUD, 0)): 2}) == {out_log((CLOUD, 0)): 1}


def test_a_session_is_cut_off_when_it_is_over_and_others_behind_what_is_acknowledged() -> None:
    logs = RouterLogs([CLOUD, REGION], None)
    logs.perform(HandBack(REGION, 0, None))
    cut = logs.cut(machine(), {out_log((CLOUD, 0)): 9, out_log((REGION, 0)): 9}, {(CLOUD, 0): 4, (REGION, 0): 4})
    assert cut.over == ((REGION, 0),)
    assert cut.ends == {out_log((CLOUD, 0)): 9}
    assert cut.before == {out_log((CLOUD, 0)): 5}
