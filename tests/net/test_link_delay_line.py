"""What emulation does to frames, with the time told: nothing here waits."""

import random

from peregrine.core.link import Frame
from peregrine.core.topology import Link
from peregrine.net.delay_line import CALL_BYTES, LEAST_TIMEOUT_S, QUICK_CALL_S, WINDOW_BYTES, DelayLine
from peregrine.net.protocol import Neighbour


def line(**feel: float) -> DelayLine:
    return DelayLine(Neighbour("x:1", **feel), random.Random(7))  # type: ignore[arg-type]


def frame(seq: int, count: int = 1, size: int = 100) -> Frame[bytes]:
    return Frame(seq, [b"%d" % (seq + i) for i in range(count)], size)


def test_frames_that_are_due_arrive_together_and_in_order() -> None:
    slow = line(latency_ms=40.0)
    for seq in range(5):
        slow.put(frame(seq), now_s=seq / 1000)
    assert slow.next_s == 0.04
    assert slow.arrived(0.0399) is None
    assert slow.arrived(0.0405) == Frame(0, [b"0", b"1", b"2"], 300)  # 2 ms are 5 % of 40: these arrive together
    assert slow.arrived(0.0425) is None
    assert slow.arrived(1.0) == Frame(3, [b"3", b"4"], 200)


def test_where_calls_take_long_frames_wait_for_others_but_not_longer_than_half_the_latency() -> None:
    slow = line(latency_ms=40.0)
    slow.calls_take(QUICK_CALL_S)
    for seq in range(3):
        slow.put(frame(seq), now_s=seq * 0.004)
    assert slow.next_s == 0.04
    slow.calls_take(QUICK_CALL_S + 0.005)
    assert slow.next_s == 0.048 and slow.arrived(0.0479) is None
    assert slow.arrived(0.048) == Frame(0, [b"0", b"1", b"2"], 300)
    slow.calls_take(1.0)
    for seq, at_s in ((3, 0.1), (4, 0.119), (5, 0.130)):
        slow.put(frame(seq), at_s)
    assert slow.arrived(0.1589) is None and slow.arrived(0.159) == Frame(3, [b"3", b"4"], 200)


def test_a_frame_that_no_other_follows_soon_waits_for_nobody_also_where_calls_take_long() -> None:
    slow = line(latency_ms=40.0)
    slow.calls_take(1.0)
    slow.put(frame(0), 0.0)
    slow.put(frame(1), 0.021)
    assert slow.next_s == 0.04 and slow.arrived(0.04) == frame(0)


def test_one_call_takes_no_more_than_the_other_side_can_do_at_once() -> None:
    quick = line()
    for seq in range(3):
        quick.put(frame(seq, size=CALL_BYTES - 1), 0.0)
    assert [quick.arrived(0.0), quick.arrived(0.0)] == [frame(0, size=CALL_BYTES - 1), frame(1, size=CALL_BYTES - 1)]


def test_an_acknowledgement_takes_the_latency_too() -> None:
    slow = line(latency_ms=40.0)
    slow.put(frame(0, count=3), 0.0)
    arrived = slow.arrived(0.04)
    assert arrived is not None
    slow.answer(arrived.last_seq, 0.05)
    assert slow.acked(0.08) is None and slow.next_s == 0.09
    assert slow.acked(0.09) == 2
    assert slow.acked(0.09) is None


def test_a_full_link_has_a_round_trip_on_its_way_beside_the_window() -> None:
    assert line(latency_ms=10.0, bandwidth_mbps=8.0).window_bytes == WINDOW_BYTES + 20_000  # 20 ms at 1 MB/s
    assert line(latency_ms=10.0).window_bytes == WINDOW_BYTES


def test_bandwidth_spreads_frames_out() -> None:
    narrow = line(latency_ms=10.0, bandwidth_mbps=8.0)
    narrow.put(frame(0, size=50_000), 0.0)
    narrow.put(frame(1, size=50_000), 0.0)
    assert abs(narrow.next_s - 0.06) < 1e-9
    assert narrow.arrived(0.07) == frame(0, size=50_000)
    assert abs(narrow.next_s - 0.11) < 1e-9


def test_a_lost_frame_comes_a_time_out_later_and_those_behind_it_wait() -> None:
    chance = random.Random(7)
    draws = [chance.random() for _ in range(200)]
    lossy = line(latency_ms=10.0, loss=0.2)
    seqs, clock_s, position = [], 0.0, 0
    for seq in range(100):
        losses = 0
        while draws[position] < 0.2:
            losses, position = losses + 1, position + 1
        position += 1
        lossy.put(frame(seq), clock_s)
        due_s = clock_s + 0.01 + losses * (0.02 + LEAST_TIMEOUT_S)
        assert lossy.arrived(due_s - 1e-6) is None
        found = lossy.arrived(due_s + 1e-6)
        assert found is not None
        seqs += found.items
        clock_s = due_s + 1e-6
    assert seqs == [b"%d" % seq for seq in range(100)]
    assert lossy.lost_frames == position - 100 > 5


def test_frames_behind_a_lost_one_do_not_overtake_it() -> None:
    lossy = DelayLine(Neighbour("x:1", 10.0, None, 0.5), random.Random(1))
    assert random.Random(1).random() < 0.5  # the first frame is lost
    for seq in range(20):
        lossy.put(frame(seq), 0.0)
    assert lossy.arrived(0.01) is None
    seen: list[bytes] = []
    while (found := lossy.arrived(lossy.next_s)) is not None:
        seen += found.items
    assert seen == [b"%d" % seq for seq in range(20)]


def test_a_neighbour_feels_as_its_link_says() -> None:
    assert Neighbour.over(Link(5.0, 100.0, loss=0.1), "x:1") == Neighbour("x:1", 5.0, 100.0, 0.1)
    assert Neighbour.over(Link(0.0, float("inf")), "x:1") == Neighbour("x:1")
