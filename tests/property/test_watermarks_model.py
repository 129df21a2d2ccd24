"""What a group knows of watermarks in parts is what one would know who kept a number for each pair of keys."""

from dataclasses import dataclass
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from peregrine.core.keyspace import KeySet, stable_hash
from peregrine.core.rows import Clock
from peregrine.core.watermarks import NEVER, Watermarks
from peregrine.types import OpId, SourceId

OP = OpId("app/second")
NAMES = tuple(f"k{i}" for i in range(16))  # of both operators; others behave like those that no set names
GROUPS = 3
MINE = KeySet.of_groups(1, [0])

upstream = st.builds(
    lambda groups, names, take: (
        (KeySet.of_groups(GROUPS, groups) | KeySet.of_keys(GROUPS, names))
        if take
        else KeySet.of_groups(GROUPS, groups) - KeySet.of_keys(GROUPS, names)
    ),
    st.sets(st.integers(0, GROUPS - 1)),
    st.sets(st.sampled_from(NAMES[:4])),
    st.booleans(),
).filter(bool)
own = st.builds(
    lambda names, rest: MINE - KeySet.of_keys(1, names) if rest else KeySet.of_keys(1, names),
    st.sets(st.sampled_from(NAMES[:4]), min_size=1),
    st.booleans(),
)
hears = st.tuples(st.just("hear"), own, upstream, st.integers(0, 9))
moves = st.tuples(st.sampled_from(["drop", "there and back"]), own)


@dataclass
class Model:
    """(key, key of the operator before) -> how far its part is; the watermark of a key is the least of all."""

    times: dict[tuple[str, str], int]
    marks: dict[str, int]

    def hear(self, mine: KeySet, part: KeySet, time_ms: int) -> None:
        for key in [key for key in NAMES if key in mine]:
            for other in [other for other in NAMES if other in part]:
                self.times[key, other] = max(time_ms, self.times.get((key, other), time_ms))
            least = min(self.times.get((key, other), NEVER) for other in NAMES)
            if least != NEVER:
                self.marks[key] = max(least, self.marks.get(key, least))

    def drop(self, mine: KeySet) -> None:
        self.times = {at: time_ms for at, time_ms in self.times.items() if at[0] not in mine}
        self.marks = {key: mark for key, mark in self.marks.items() if key not in mine}


@settings(max_examples=300, deadline=None)
@given(st.lists(st.one_of(hears, hears, hears, moves), max_size=25))
def test_a_group_knows_what_a_number_for_each_pair_of_keys_would_tell(story: list[tuple[Any, ...]]) -> None:
    heard, model = Watermarks(), Model({}, {})
    for what, mine, *more in story:
        if what == "hear":
            before = dict(model.marks)
            model.hear(mine, *more)
            told = heard.hear(Clock(OP, mine, SourceId("s"), more[1], part=more[0]))
            advanced = {key: mark for keys, mark in told for key in NAMES if key in keys}
            assert advanced == {key: mark for key, mark in model.marks.items() if before.get(key) != mark}
        elif what == "drop":
            model.drop(mine)
            heard.drop(mine)
        else:
            away = Watermarks.decode(heard.only(mine).encode())
            heard.drop(mine)
            heard.add(away.stretches)
        assert {key: heard.of(key).get("s") for key in NAMES} == {key: model.marks.get(key) for key in NAMES}
        seen = [key for stretch in heard.stretches for key in NAMES if key in stretch.keys]
        assert len(seen) == len(set(seen)), "stretches overlap"


def test_every_group_has_a_key_that_no_set_names() -> None:
    """Otherwise the model would take a group as heard when only its named keys are."""
    assert {stable_hash(name) % GROUPS for name in NAMES[4:]} == set(range(GROUPS))
