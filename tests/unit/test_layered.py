"""A mapping that is another one but for a few entries, against a dict that is copied whole."""

import pickle
from collections.abc import Mapping

import pytest
from hypothesis import given
from hypothesis import strategies as st

from peregrine.core.layered import Layered, changed

KEYS = st.integers(0, 12)


@given(
    st.dictionaries(KEYS, st.integers(), max_size=12),
    st.lists(st.tuples(st.dictionaries(KEYS, st.integers(), max_size=2), st.sets(KEYS, max_size=2)), max_size=20),
)
def test_it_answers_like_a_dict_whatever_was_put_and_taken_away(
    start: dict[int, int], steps: list[tuple[dict[int, int], set[int]]]
) -> None:
    # Numbers above 12 are there to make it so large that few changes are kept apart.
    wanted = start | dict.fromkeys(range(13, 30), 0)
    mapping: Mapping[int, int] = dict(wanted)
    for put, gone in steps:
        gone = {key for key in gone if key in wanted and key not in put}
        mapping = changed(mapping, put, sorted(gone))
        wanted = {key: value for key, value in (wanted | put).items() if key not in gone}
        assert mapping == wanted and wanted == mapping
        assert sorted(mapping) == sorted(wanted) and len(mapping) == len(wanted)
        for key in range(31):
            assert (key in mapping) == (key in wanted) and mapping.get(key) == wanted.get(key)
        assert pickle.loads(pickle.dumps(mapping)) == wanted


def test_what_it_was_made_of_stays_as_it_was() -> None:
    ten = {n: n for n in range(10)}
    first = changed(ten, {3: 33}, [4])
    second = changed(first, {3: 333, 4: 44})
    assert ten[3] == 3 and first[3] == 33 and second[3] == 333
    assert 4 in ten and 4 not in first and second[4] == 44
    with pytest.raises(KeyError):
        first[4]


def test_no_change_makes_nothing_new() -> None:
    ten = {n: n for n in range(10)}
    assert changed(ten, {}) is ten


def test_ten_thousand_entries_are_copied_once_in_a_hundred_changes() -> None:
    mapping: Mapping[int, int] = dict.fromkeys(range(10_000), 0)
    copies, few = 0, 0
    for n in range(1, 1001):
        mapping = changed(mapping, {n: n})
        if isinstance(mapping, Layered):
            few = max(few, len(mapping.few))
        else:
            copies += 1
    assert copies <= 10 and few < 100
