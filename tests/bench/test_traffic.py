from peregrine.bench.engine.traffic import RowBytes, of_event, rows_of_event, ways_of_event
from peregrine.core import wire
from peregrine.core.keyspace import KeySet
from peregrine.core.messages import ChunksHere, FromLink, FromSource, Tick, Together
from peregrine.core.rows import UNCHAINED, Row, Rows, StateRows, batch_of
from peregrine.types import OpId, PlaceId, SiteId, SourceId

OP, CLOUD, EDGE = OpId("a/op"), SiteId("cloud"), SiteId("edge1")
STATE = StateRows(OP, PlaceId(EDGE), EDGE, KeySet.of_keys(4, ["k"]), ())
ROWS = Rows(OP, batch_of([Row("k", SourceId("s"), 0, UNCHAINED, 0, 0, b"payload")]))


def test_state_that_came_over_a_link_counts_and_rows_do_not() -> None:
    assert of_event(FromLink(CLOUD, 0, (ROWS,))) == 0
    assert of_event(FromLink(CLOUD, 0, (ROWS, STATE))) == len(wire.encode(STATE))


def test_chunks_that_were_fetched_count() -> None:
    assert of_event(Together((ChunksHere(1, 1000), Tick(5), FromLink(CLOUD, 0, (STATE, STATE))))) == 1000 + 2 * len(
        wire.encode(STATE)
    )


def test_rows_that_came_over_a_link_are_counted_by_themselves() -> None:
    assert rows_of_event(Together((ChunksHere(1, 1000), FromLink(CLOUD, 0, (ROWS, STATE))))) == len(wire.encode(ROWS))


def test_rows_for_an_operator_go_up_or_down_and_results_only_cross_links() -> None:
    results = Rows(OpId("a/results"), ROWS.batch)
    mine, other = len(wire.encode(ROWS)), len(wire.encode(results))
    at_region = Together((FromLink(EDGE, 0, (ROWS, results)), FromLink(CLOUD, 0, (ROWS, STATE)), Tick(5)))
    assert ways_of_event(OP, CLOUD, at_region) == RowBytes(every=2 * mine + other, up=mine, down=mine)
    at_cloud = FromLink(SiteId("region"), 0, (ROWS,))
    assert ways_of_event(OP, None, at_cloud) == RowBytes(every=mine, up=mine)


def test_rows_that_a_device_sends_to_its_router_cross_no_link() -> None:
    assert ways_of_event(OP, CLOUD, FromSource(SourceId("s"), ((0, ROWS),))) == RowBytes()
