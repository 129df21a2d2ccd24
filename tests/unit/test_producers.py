"""Who produces for some keys: the same answer by an index as by a look at every source."""

import pickle

from hypothesis import given
from hypothesis import strategies as st

from peregrine.core.attachments import Attachments
from peregrine.core.keyspace import KeySet
from peregrine.core.validity import AttachedProducers, FedKeys, IndexedFeeds
from peregrine.types import OpId, SiteId, SourceId

GROUPS = 4
OPS = [OpId("app/a"), OpId("app/b")]
NAMES = [f"k{n}" for n in range(8)]


@st.composite
def key_sets(draw: st.DrawFn) -> KeySet:
    whole = KeySet.of_groups(GROUPS, draw(st.sets(st.integers(0, GROUPS - 1), max_size=2)))
    plus = KeySet.of_keys(GROUPS, draw(st.sets(st.sampled_from(NAMES), max_size=2)))
    return (whole | plus) - KeySet.of_keys(GROUPS, draw(st.sets(st.sampled_from(NAMES), max_size=2)))


FED = st.lists(st.tuples(st.sampled_from(OPS), key_sets()), max_size=2).map(tuple)
TOLD = st.lists(st.tuples(st.sampled_from([SourceId(f"s{n}") for n in range(5)]), FED), max_size=10)


@given(TOLD, st.sampled_from(OPS), key_sets())
def test_an_index_finds_whom_a_look_at_all_sources_finds_in_the_same_order(
    told: list[tuple[SourceId, FedKeys]], op: OpId, keys: KeySet
) -> None:
    plain: dict[SourceId, FedKeys] = {}
    indexed = IndexedFeeds()
    attachments = Attachments()
    for nth, (source, fed) in enumerate(told):  # a source may say later that it feeds something else
        plain[source] = indexed[source] = fed
        if nth % 3:
            attachments.attach(source, SiteId(f"site{nth}"))
    wanted = list(AttachedProducers(plain, attachments)(op, keys))
    assert list(AttachedProducers(indexed, attachments)(op, keys)) == wanted
    again = pickle.loads(pickle.dumps(indexed))
    assert list(AttachedProducers(again, attachments)(op, keys)) == wanted and again == plain


def test_a_question_about_one_key_asks_its_sources_only() -> None:
    feeds = IndexedFeeds(
        {SourceId(name): ((OPS[0], KeySet.of_keys(GROUPS, [name])),) for name in (f"s{n}" for n in range(1000))}
    )
    assert feeds.of(OPS[0], KeySet.of_keys(GROUPS, ["s7"])) == ["s7"]
    assert feeds.of(OPS[1], KeySet.of_keys(GROUPS, ["s7"])) == []
