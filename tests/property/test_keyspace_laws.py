"""Key sets obey the laws of sets: every operation is compared with Python's own sets over a small universe."""

import pickle

from hypothesis import given
from hypothesis import strategies as st

from peregrine.core.keyspace import KeySet, hash_keys, stable_hash

GROUPS = 4
UNIVERSE = [f"k{i}" for i in range(40)]
HASHES = hash_keys(UNIVERSE)

some_keys = st.frozensets(st.sampled_from(UNIVERSE), max_size=12)


@st.composite
def key_sets(draw: st.DrawFn) -> KeySet:
    whole = draw(st.frozensets(st.integers(0, GROUPS - 1)))
    explicit = draw(some_keys)
    plus = frozenset(k for k in explicit if stable_hash(k) % GROUPS not in whole)
    return KeySet(GROUPS, whole, plus, explicit - plus)


def members(keys: KeySet) -> set[str]:
    """The members by definition, not by the code under test."""
    in_whole = {k for k in UNIVERSE if stable_hash(k) % GROUPS in keys.whole}
    return (in_whole - keys.minus) | keys.plus


@given(key_sets(), key_sets())
def test_union_intersection_and_difference_are_those_of_sets(a: KeySet, b: KeySet) -> None:
    for result, expected in (
        (a | b, members(a) | members(b)),
        (a & b, members(a) & members(b)),
        (a - b, members(a) - members(b)),
    ):
        result.check()
        assert members(result) == expected


@given(key_sets(), key_sets())
def test_comparisons_are_those_of_the_algebra(a: KeySet, b: KeySet) -> None:
    assert (a <= b) == (not (a - b)) == ((a | b) == b)
    assert a.isdisjoint(b) == b.isdisjoint(a) == (not (a & b))
    assert (a <= b and b <= a) == (a == b)


@given(key_sets(), key_sets(), key_sets())
def test_equal_sets_have_equal_forms_whichever_way_they_came_about(a: KeySet, b: KeySet, c: KeySet) -> None:
    assert a | b == b | a
    assert a & b == b & a
    assert (a | b) | c == a | (b | c)
    assert a & (b | c) == (a & b) | (a & c)
    assert a - (b | c) == (a - b) - c
    assert (a - b) | (a & b) == a
    everything = KeySet.everything(GROUPS)
    assert everything - (everything - a) == a
    assert hash(a | b) == hash(b | a)


@given(key_sets())
def test_membership_by_key_and_by_hash_is_the_definition(a: KeySet) -> None:
    assert {k for k in UNIVERSE if k in a} == members(a)
    assert {k for k, inside in zip(UNIVERSE, a.contains(HASHES), strict=True) if inside} == members(a)
    assert bool(a) == (a != KeySet.nothing(GROUPS))


@given(key_sets())
def test_the_parts_in_the_touched_groups_are_the_set(a: KeySet) -> None:
    parts = [a.in_group(g) for g in a.touched_groups()]
    together = KeySet.nothing(GROUPS)
    for part in parts:
        part.check()
        assert part and part.isdisjoint(together) and len(part.touched_groups()) == 1
        together |= part
    assert together == a
    assert not any(a.in_group(g) for g in set(range(GROUPS)) - set(a.touched_groups()))


@given(key_sets(), st.frozensets(st.text(max_size=4)))
def test_text_and_pickles_are_read_back(a: KeySet, odd_keys: frozenset[str]) -> None:
    a |= KeySet.of_keys(GROUPS, odd_keys)
    assert KeySet.parse(GROUPS, str(a)) == a
    assert pickle.loads(pickle.dumps(a)) == a
