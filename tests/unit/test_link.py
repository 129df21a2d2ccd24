"""The sending end of a link: in order, resumable, and nothing forgotten before it is acknowledged."""

from harness import keys, migration
from peregrine.core.link import Frame, LinkSender
from peregrine.core.mechanisms.program import On
from peregrine.core.migrate import Role
from peregrine.core.rows import Marker
from peregrine.types import MigrationId, PlaceId, SiteId


def item(name: int) -> Marker:
    m = migration(keys("car1"), PlaceId("edge1"), PlaceId("cloud"), SiteId("edge1"), id=MigrationId(f"m{name}"))
    return Marker(On.RECONFIG, Role.SOURCE, m, m.keys)


def sender(count: int, window_items: int = 256) -> LinkSender:
    link = LinkSender(window_items)
    for seq in range(count):
        link.put(seq, item(seq))
    return link


def names(frame: Frame | None) -> list[str]:
    assert frame is not None
    return [each.migration.id for each in frame.items if isinstance(each, Marker)]


def test_items_leave_in_the_order_in_which_they_were_put() -> None:
    """Design section 3: links are FIFO; a marker must not overtake the rows before it (Falcon III-E phase 2)."""
    link = sender(2)
    frame = link.next_frame()
    assert frame is not None and frame.first_seq == 0
    assert names(frame) == ["m0", "m1"]
    link.put(2, item(2))
    later = link.next_frame()
    assert later is not None and later.first_seq == 2 and names(later) == ["m2"]


def test_nothing_is_sent_twice_unless_the_link_broke() -> None:
    link = sender(2)
    link.next_frame()
    assert link.next_frame() is None


def test_after_a_break_everything_unacknowledged_goes_again_from_the_first_that_is_missing() -> None:
    """Falcon III-G: network failures are not permanent; what was on its way is sent again."""
    link = sender(4)
    link.next_frame()
    link.acked(1)
    link.broke()
    frame = link.next_frame()
    assert frame is not None and frame.first_seq == 2 and names(frame) == ["m2", "m3"]


def test_while_the_link_is_down_items_wait() -> None:
    """Design section 3: store and forward."""
    link = sender(1)
    link.next_frame()
    link.broke()
    link.put(1, item(1))
    assert link.backlog_items == 2
    assert names(link.next_frame()) == ["m0", "m1"]


def test_no_more_than_a_window_is_on_its_way() -> None:
    link = sender(5, window_items=2)
    assert names(link.next_frame()) == ["m0", "m1"]
    assert link.next_frame() is None
    link.acked(0)
    assert names(link.next_frame()) == ["m2"]
    link.acked(2)
    assert names(link.next_frame()) == ["m3", "m4"]


def test_an_item_that_is_put_again_is_recognised_by_its_number() -> None:
    """Falcon III-G: a router that came back steps through its journal and puts everything again."""
    link = sender(3)
    link.next_frame()
    link.acked(0)
    for seq in range(3):
        link.put(seq, item(seq))
    assert link.backlog_items == 2
    link.broke()
    assert names(link.next_frame()) == ["m1", "m2"]


def test_a_late_acknowledgement_changes_nothing() -> None:
    link = sender(3)
    link.next_frame()
    link.acked(2)
    link.acked(0)
    assert (link.first_seq, link.backlog_items) == (3, 0)
    link.put(3, item(3))
    assert names(link.next_frame()) == ["m3"]


def test_an_acknowledgement_that_comes_after_a_break_is_not_sent_again() -> None:
    """The far side had received it although the link broke before it could say so."""
    link = sender(3)
    link.next_frame()
    link.broke()
    link.acked(1)
    frame = link.next_frame()
    assert frame is not None and frame.first_seq == 2 and names(frame) == ["m2"]
