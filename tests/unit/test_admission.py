"""What a router lets in, before it is journaled."""

from dataclasses import replace

import pytest

from harness import AT_CLOUD, AT_EDGE1, CLOUD, EDGE1, EDGE2, OP, REGION, Net, keys, row, rows
from peregrine.core.admission import admit, has_seq
from peregrine.core.messages import Committed, FromHost, FromLink, FromSource, SetOwner
from peregrine.errors import Busy, ConfigurationError, ProtocolError, UnknownName
from peregrine.types import OpId, PlaceId, SiteId, SourceId


def sent(seq: int = 0) -> FromSource:
    return FromSource(SourceId("s"), ((seq, rows(row("car1", seq))),))


def test_rows_of_devices_wait_while_the_router_or_its_parent_is_pressed() -> None:
    net = Net(owners=[(keys("car1"), AT_EDGE1)], host_lag_rows=1)
    edge = net.routers[EDGE1]
    admit(edge, sent())
    net.send(EDGE1, "car1", "car1")
    with pytest.raises(Busy):
        admit(edge, sent(9))
    net.step(EDGE1, Committed(AT_EDGE1, 2))
    admit(edge, sent(9))
    edge.hear_pressure(True)
    with pytest.raises(Busy):
        admit(edge, sent(9))


def test_links_and_hosts_never_wait_or_a_migration_could_wait_for_itself() -> None:
    edge = Net().routers[EDGE1]
    edge.hear_pressure(True)
    admit(edge, FromLink(REGION, 0, ()))
    admit(edge, FromHost(AT_EDGE1, OP, 0, ()))


def test_a_host_that_is_ahead_of_its_log_is_refused() -> None:
    net = Net(owners=[(keys("car1"), AT_EDGE1)])
    net.send(EDGE1, "car1")
    admit(net.routers[EDGE1], Committed(AT_EDGE1, 1))
    with pytest.raises(ProtocolError, match="has come to 2, and its log at router edge1 ends at 1"):
        admit(net.routers[EDGE1], Committed(AT_EDGE1, 2))


def test_names_that_do_not_exist_here_are_refused() -> None:
    edge = Net().routers[EDGE1]
    for event in (
        FromLink(EDGE2, 0, ()),
        FromHost(AT_CLOUD, OP, 0, ()),
        FromHost(AT_EDGE1, OpId("app/nobody"), 0, ()),
        SetOwner(OP, keys("car1"), PlaceId("edge1/h9")),
    ):
        with pytest.raises(UnknownName):
            admit(edge, event)
    with pytest.raises(ConfigurationError, match="in 1024 groups"):
        admit(edge, SetOwner(OP, replace(keys("car1"), groups=1024), AT_EDGE1))


def test_a_neighbour_is_told_what_is_here_of_it_unless_their_session_is_over() -> None:
    edge = Net().routers[EDGE1]
    assert has_seq(edge, REGION, 0) == -1
    with pytest.raises(UnknownName):
        has_seq(edge, SiteId("edge9"), 0)
    assert has_seq(edge, SiteId("edge9"), 7) == -1, "a later session begins with anybody"
    edge.intake.begin_session(REGION, 3)
    edge.intake.end_session(REGION)
    for session in (0, 3):
        with pytest.raises(ProtocolError, match="takes nothing more from region"):
            has_seq(edge, REGION, session)
        with pytest.raises(ProtocolError, match="takes nothing more from region"):
            admit(edge, FromLink(REGION, 0, (), session))
    admit(edge, FromLink(REGION, 0, (), 4))


def test_what_is_refused_leaves_no_trace() -> None:
    router = Net().routers[CLOUD]
    before = router.ends.copy(), router.acked_link(EDGE1)
    with pytest.raises(UnknownName):
        admit(router, FromLink(EDGE1, 0, ()))
    assert before == (router.ends, router.acked_link(EDGE1))
