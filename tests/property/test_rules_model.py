"""A rule table against a plain dictionary from key to route, over every sequence of assignments."""

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from peregrine.core.keyspace import KeySet, hash_keys, stable_hash
from peregrine.core.rules import RuleTable
from peregrine.types import OpId

OP = OpId("app/op")
GROUPS = 4
ROUTES = ["up", "local", "child1", "child2"]
UNIVERSE = [f"k{i}" for i in range(80)]
HASHES = hash_keys(UNIVERSE)

some_keys = st.frozensets(st.sampled_from(UNIVERSE), max_size=40)


@st.composite
def key_sets(draw: st.DrawFn) -> KeySet:
    groups = KeySet.of_groups(GROUPS, draw(st.frozensets(st.integers(0, GROUPS - 1), max_size=3)))
    return (groups | KeySet.of_keys(GROUPS, draw(some_keys))) - KeySet.of_keys(GROUPS, draw(some_keys))


class RulesAgainstDictionary(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.table = RuleTable("up")
        self.table.add_op(OP, GROUPS)
        self.by_key = dict.fromkeys(UNIVERSE, "up")
        # A key nobody names goes where its group goes; the model keeps that too, to know what an override is.
        self.by_group = dict.fromkeys(range(GROUPS), "up")
        self.previous: KeySet | None = None

    @rule(keys=key_sets(), route=st.sampled_from(ROUTES))
    def assign(self, keys: KeySet, route: str) -> None:
        self.table.assign(OP, keys, route)
        self.by_key.update((k, route) for k in UNIVERSE if k in keys)
        self.by_group.update((g, route) for g in keys.whole)
        self.previous = keys

    @precondition(lambda self: self.previous is not None)
    @rule(route=st.sampled_from(ROUTES))
    def assign_the_same_keys_again(self, route: str) -> None:
        assert self.previous is not None
        self.assign(self.previous, route)

    @rule(keys=key_sets())
    def partition(self, keys: KeySet) -> None:
        parts = self.table.partition(OP, keys)
        together = KeySet.nothing(GROUPS)
        for route, part in parts:
            part.check()
            assert part and part.isdisjoint(together)
            together |= part
            assert all(self.by_key[k] == route for k in UNIVERSE if k in part)
            assert all(self.by_group[g] == route for g in part.whole)
        assert together == keys
        assert len({route for route, _ in parts}) == len(parts)

    @invariant()
    def every_key_goes_where_the_dictionary_says(self) -> None:
        ids = self.table.lookup(OP, HASHES).tolist()
        assert [self.table.route(i) for i in ids] == list(self.by_key.values())
        assert [self.table.lookup_one(OP, k) for k in UNIVERSE] == list(self.by_key.values())

    @invariant()
    def only_keys_that_leave_their_group_have_overrides(self) -> None:
        apart = [k for k in UNIVERSE if self.by_key[k] != self.by_group[stable_hash(k) % GROUPS]]
        assert self.table.override_count(OP) == len(apart)
        self.table.check()


RulesAgainstDictionary.TestCase.settings = settings(max_examples=80, stateful_step_count=20, deadline=None)
TestRulesAgainstDictionary = RulesAgainstDictionary.TestCase
