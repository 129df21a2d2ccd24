from peregrine.bench.engine.traffic import of_event, rows_of_event
from peregrine.core import wire
from peregrine.core.keyspace import KeySet
from peregrine.core.messages import ChunksHere, FromLink, Tick, Together
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
