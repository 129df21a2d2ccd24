"""The sending end of a link: in order, resumable, and nothing forgotten before it is acknowledged."""

import pytest

from peregrine.core.link import FRAME_BYTES, Frame, LinkSender, left_over, needed_from
from peregrine.errors import ProtocolError
from peregrine.types import SiteId

EDGE, CLOUD = SiteId("edge"), SiteId("cloud")
WINDOW = 1 << 20


class Out:
    """Items m0, m1, ... of which some may have been cut off."""

    def __init__(self, end: int, first: int = 0, size: int = 100) -> None:
        self.first, self.end, self.size = first, end, size

    def read(self, position: int, max_bytes: int) -> list[tuple[int, str]]:
        seqs = range(max(position, self.first), self.end)[: max(max_bytes // self.size, 1)]
        return [(seq, f"m{seq}") for seq in seqs]


def sender(out: Out) -> LinkSender[str]:
    return LinkSender(EDGE, CLOUD, out, lambda item: out.size)


def begun(out: Out, has_seq: int = -1, window_bytes: int = WINDOW) -> LinkSender[str]:
    link = sender(out)
    link.begin(has_seq, window_bytes)
    return link


def names(frame: Frame[str] | None) -> list[str]:
    assert frame is not None
    return frame.items


def test_items_leave_in_the_order_in_which_they_were_put() -> None:
    """Design section 3: links are FIFO; a marker must not overtake the rows before it (Falcon III-E phase 2)."""
    out = Out(2)
    link = begun(out)
    assert link.next_frame() == Frame(0, ["m0", "m1"], 200)
    out.end = 3
    assert link.next_frame() == Frame(2, ["m2"], 100)


def test_nothing_is_sent_twice_unless_the_link_broke() -> None:
    link = begun(Out(2))
    link.next_frame()
    assert link.next_frame() is None


def test_nothing_is_sent_before_the_neighbour_has_said_what_it_has() -> None:
    link = sender(Out(2))
    assert link.next_frame() is None
    link.begin(0, WINDOW)
    assert names(link.next_frame()) == ["m1"]


def test_after_a_break_sending_begins_behind_what_the_neighbour_has() -> None:
    """Falcon III-G: network failures are not permanent; what was on its way is sent again."""
    link = begun(Out(4))
    link.next_frame()
    link.acked(0)
    link.broke()
    assert link.next_frame() is None
    link.begin(1, WINDOW)  # it had one more than it could say
    assert names(link.next_frame()) == ["m2", "m3"]


def test_while_the_link_is_down_items_wait() -> None:
    """Design section 3: store and forward."""
    out = Out(1)
    link = begun(out)
    link.next_frame()
    link.broke()
    out.end = 2
    assert link.waiting_items == 2
    link.begin(-1, WINDOW)
    assert names(link.next_frame()) == ["m0", "m1"]


def test_after_a_restart_nothing_is_known_but_the_log() -> None:
    link = sender(Out(9, first=4))
    assert link.waiting_items == 9
    link.begin(6, WINDOW)
    assert link.waiting_items == 2 and names(link.next_frame()) == ["m7", "m8"]


def test_no_more_than_a_window_is_on_its_way() -> None:
    link = begun(Out(100, size=FRAME_BYTES // 2), window_bytes=FRAME_BYTES + 1)
    assert names(link.next_frame()) == ["m0", "m1"]
    assert names(link.next_frame()) == ["m2", "m3"]
    assert link.next_frame() is None
    link.acked(0)
    assert link.next_frame() is None, "a frame counts until all of it is acknowledged"
    link.acked(1)
    assert names(link.next_frame()) == ["m4", "m5"]


def test_a_window_is_free_again_after_a_break() -> None:
    link = begun(Out(3, size=FRAME_BYTES), window_bytes=1)
    assert names(link.next_frame()) == ["m0"] and link.next_frame() is None
    link.broke()
    link.begin(-1, 1)
    assert names(link.next_frame()) == ["m0"]


def test_a_late_acknowledgement_changes_nothing() -> None:
    link = begun(Out(3))
    link.next_frame()
    link.acked(2)
    link.acked(0)
    assert (link.acked_seq, link.waiting_items) == (2, 0)


def test_a_frame_of_which_only_a_part_was_taken_breaks_the_link() -> None:
    link = begun(Out(3))
    frame = link.next_frame()
    assert frame is not None
    link.answered(frame, 2)
    with pytest.raises(ProtocolError, match="took 1 of 2"):
        link.answered(frame, 1)


def test_a_neighbour_that_has_more_than_was_sent_is_refused() -> None:
    with pytest.raises(ProtocolError, match="edge has lost its directory"):
        begun(Out(3), has_seq=3)
    assert begun(Out(3), has_seq=2).next_frame() is None


def test_a_neighbour_that_lacks_what_was_cut_off_is_refused() -> None:
    link = begun(Out(9, first=4), has_seq=2)
    with pytest.raises(ProtocolError, match="cloud lacks item 3, which edge has no more"):
        link.next_frame()


def test_an_end_is_an_end() -> None:
    link = begun(Out(3))
    link.ended = True
    assert link.next_frame() is None and link.waiting_items == 0


def test_what_the_neighbour_may_lack_is_handed_back() -> None:
    out = Out(5, first=1)
    assert left_over(EDGE, CLOUD, out, 2, None) == (3, ["m3", "m4"])
    assert left_over(EDGE, CLOUD, out, 2, 3) == (4, ["m4"])
    assert left_over(EDGE, CLOUD, out, 4, None) == (5, [])
    assert left_over(EDGE, CLOUD, out, -1, None) == (1, ["m1", "m2", "m3", "m4"]), "after a restart: what there is"
    with pytest.raises(ProtocolError, match="cloud lacks item 0"):
        left_over(EDGE, CLOUD, out, 2, -1)


def test_all_that_is_handed_back_is_read_however_much_it_is() -> None:
    first, items = left_over(EDGE, CLOUD, Out(5, size=FRAME_BYTES), -1, None)
    assert first == 0 and items == ["m0", "m1", "m2", "m3", "m4"]


def test_a_log_is_cut_behind_what_is_acknowledged() -> None:
    link = begun(Out(5, first=needed_from(2)), has_seq=2)
    assert names(link.next_frame()) == ["m3", "m4"]
