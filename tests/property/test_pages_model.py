"""Keys in pages are a dict: whatever is set, deleted and read, and however often the group is written and read again.

Sizes are so small that pages are made, cut, joined and given up all the time. After each writing everything is
collected that the group does not refer to.
"""

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from peregrine.core.chunks import MemoryChunks
from peregrine.core.keyspace import KeySet
from peregrine.core.large import Sizes, Spill
from peregrine.core.pages import PageCache
from peregrine.core.state import Books, KeyState, canonical, decode, encode, whole

GROUPS = 1  # all keys are of one group, as in a host
NAMES = [f"k{n}" for n in range(40)]
names = st.sampled_from(NAMES)
values = st.one_of(st.integers(1, 300), st.text("ab", min_size=1, max_size=90))


class Pages(RuleBasedStateMachine):
    @initialize(
        group_bytes=st.sampled_from((20, 60, 200)),
        page_bytes=st.sampled_from((30, 100, 300)),
        cache=st.sampled_from((None, 0, 200)),
    )
    def start(self, group_bytes: int, page_bytes: int, cache: int | None) -> None:
        self.store = MemoryChunks()
        self.sizes = Sizes(50, 24, page_bytes, group_bytes)
        self.cache = None if cache is None else PageCache(cache)
        self.state = b""
        self.model: dict[str, object] = {}
        self.open()

    def open(self) -> None:
        self.spill = Spill(self.store, self.sizes, pages=self.cache)
        self.keys = decode(self.state, self.spill)

    @rule(key=names, value=values)
    def put(self, key: str, value: object) -> None:
        self.model[key] = value
        if key in self.keys:
            self.keys[key].value = value
        else:
            self.keys[key] = KeyState(value, Books())

    @rule(chosen=st.lists(names, min_size=5, unique=True), value=values)
    def put_many(self, chosen: list[str], value: object) -> None:
        for key in chosen:
            self.put(key, value)

    @rule(key=names)
    def read(self, key: str) -> None:
        found = self.keys.get(key)
        assert (None if found is None else found.value) == self.model.get(key)
        assert (key in self.keys) == (key in self.model)

    @rule(chosen=st.lists(names, unique=True), all_others=st.booleans())
    def delete(self, chosen: list[str], all_others: bool) -> None:
        drop = KeySet.of_keys(GROUPS, chosen)
        drop = KeySet.everything(GROUPS) - drop if all_others else drop
        found = self.keys.within(drop)
        assert found == sorted(key for key in self.model if key in drop)
        for key in found:
            del self.keys[key], self.model[key]

    @rule(twice=st.booleans())
    def write_and_read_again(self, twice: bool) -> None:
        before = canonical(self.state, self.store)
        state = encode(self.keys, self.spill)
        self.store.keep_only(self.spill.needed)
        assert canonical(self.state, self.store) == before  # after a crash the batch is applied again
        if twice:
            again = encode(self.keys, self.spill)
            assert canonical(again, self.store) == canonical(state, self.store)
            state = again
        self.state = state
        self.store.keep_only(self.spill.after)
        self.open()
        assert self.spill.before == set(self.store.chunks)

    @invariant()
    def all_is_there(self) -> None:
        if hasattr(self, "keys"):
            assert sorted(self.keys) == sorted(self.model) and len(self.keys) == len(self.model)

    def teardown(self) -> None:
        if hasattr(self, "keys"):
            self.write_and_read_again(False)
            assert {key: ks.value for key, ks in self.keys.items()} == self.model
            assert (self.state == b"") == (not self.model)
            assert {key: ks.value for key, ks in decode(whole(self.state, self.store)).items()} == self.model


Pages.TestCase.settings = settings(max_examples=150, stateful_step_count=30, deadline=None)
test_pages_are_a_dict = Pages.TestCase
