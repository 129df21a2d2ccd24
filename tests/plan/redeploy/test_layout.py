"""A layout answers as a plain table of keys would, after any moves, and after taking them back."""

from hypothesis import given, settings
from hypothesis import strategies as st

from peregrine.core.keyspace import KeySet
from peregrine.core.operator import OpSpec
from peregrine.plan.redeploy.changes import Changes
from peregrine.plan.redeploy.feeding import Feeding
from peregrine.plan.redeploy.layout import AppId, Layout
from peregrine.plan.redeploy.owners import Owners
from peregrine.types import OpId, PlaceId, SiteId, SourceId

GROUPS = 4
KEYS = [f"k{i}" for i in range(12)]
PLACES = [PlaceId(place) for place in ("root", "a", "b", "b/2")]


@st.composite
def key_sets(draw: st.DrawFn) -> KeySet:
    groups = KeySet.of_groups(GROUPS, draw(st.sets(st.integers(0, GROUPS - 1))))
    plus = KeySet.of_keys(GROUPS, draw(st.sets(st.sampled_from(KEYS), max_size=4)))
    minus = KeySet.of_keys(GROUPS, draw(st.sets(st.sampled_from(KEYS), max_size=4)))
    return (groups | plus) - minus


MOVES = st.lists(st.tuples(key_sets(), st.sampled_from(PLACES)), max_size=8)


@settings(max_examples=200, deadline=None)
@given(MOVES, key_sets())
def test_owners_agree_with_a_table_of_keys(moves: list[tuple[KeySet, PlaceId]], asked: KeySet) -> None:
    owners = Owners(GROUPS, PLACES[0], Changes())
    table = dict.fromkeys(KEYS, PLACES[0])
    for keys, place in moves:
        owners.assign(keys, place)
        table |= {key: place for key in KEYS if key in keys}
    assert {key: owners.owner(key) for key in KEYS} == table
    rest = KeySet.everything(GROUPS)
    for place in owners.places():
        mine = owners.keys_at(place)
        mine.check()
        assert mine and mine <= rest
        assert [key for key in KEYS if key in mine] == [key for key in KEYS if table[key] == place]
        rest -= mine
    assert not rest
    parts = owners.partition(asked)
    together = KeySet.nothing(GROUPS)
    for place, part in parts.items():
        part.check()
        assert part and part <= owners.keys_at(place)
        together |= part
    assert together == asked


@settings(max_examples=100, deadline=None)
@given(MOVES, MOVES)
def test_moves_that_are_taken_back_leave_no_trace(
    kept: list[tuple[KeySet, PlaceId]], tried: list[tuple[KeySet, PlaceId]]
) -> None:
    changes, other_changes = Changes(), Changes()
    owners, other = Owners(GROUPS, PLACES[0], changes), Owners(GROUPS, PLACES[0], other_changes)
    for keys, place in kept:
        owners.assign(keys, place)
        other.assign(keys, place)
    mark = changes.mark()
    for keys, place in tried:
        owners.assign(keys, place)
    changes.undo_to(mark)
    assert {p: owners.keys_at(p) for p in owners.places()} == {p: other.keys_at(p) for p in other.places()}


@settings(max_examples=100, deadline=None)
@given(st.dictionaries(st.sampled_from(["s1", "s2", "s3"]), key_sets()), key_sets())
def test_the_sources_of_keys_are_those_whose_keys_overlap(feeds: dict[str, KeySet], asked: KeySet) -> None:
    feeding, op = Feeding(Changes()), OpId("app/op")
    for source, keys in feeds.items():
        feeding.attach(SourceId(source), SiteId("x"), ((op, KeySet.everything(GROUPS)),))
        feeding.attach(SourceId(source), SiteId("a"), ((op, keys),))
    assert set(feeding.sources_of(op, asked)) == {s for s, keys in feeds.items() if not keys.isdisjoint(asked)}
    assert feeding.at(SiteId("x")) == ()
    assert feeding.at(SiteId("a")) == tuple(sorted(feeds))


def test_a_site_knows_its_instances_as_long_as_they_have_keys() -> None:
    first, second = OpId("app/first"), OpId("app/second")
    layout = Layout(
        {first: OpSpec(first, GROUPS, feeds=(second,)), second: OpSpec(second, GROUPS)}, PlaceId("root"), Changes()
    )
    a, app = SiteId("a"), AppId("app")
    layout.assign(first, KeySet.of_keys(GROUPS, ["k1"]), PlaceId("a"))
    assert layout.instances_at(a) == [(first, "a")]
    assert (layout.load(a), layout.load(SiteId("root"))) == (1, 2)
    assert layout.ops_at(a, app) == (first,)
    assert list(layout.producers(second, KeySet.everything(GROUPS))) == ["root", "a"]
    layout.assign(first, KeySet.of_keys(GROUPS, ["k1"]), PlaceId("root"))
    assert layout.instances_at(a) == [] and not layout.in_use(a)
    layout.assign(first, KeySet.everything(GROUPS), PlaceId("a"))
    assert layout.load(SiteId("root")) == 1
