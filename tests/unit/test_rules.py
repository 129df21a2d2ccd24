"""Rule tables: who goes where, what is refused, and what does not grow."""

import numpy as np
import pyarrow as pa
import pytest

from peregrine.core import keyspace, rules
from peregrine.core.keyspace import KeySet, hash_keys, stable_hash
from peregrine.core.rules import RuleTable, split
from peregrine.errors import ConfigurationError, UnknownName
from peregrine.types import OpId

OP = OpId("app/op")
GROUPS = 128


def test_keys_that_nobody_claims_take_the_default_route() -> None:
    table = make_table()
    assert table.lookup_one(OP, "car1") == "up"
    assert [table.route(i) for i in table.lookup(OP, hash_keys(["car1", "car2"]))] == ["up", "up"]


def test_an_explicit_key_goes_elsewhere_than_its_group() -> None:
    table = make_table()
    table.assign(OP, keys("car1"), "local")
    table.assign(OP, KeySet.everything(GROUPS) - keys("car1"), "child")
    assert table.lookup_one(OP, "car1") == "local"
    assert table.lookup_one(OP, "car2") == "child"
    assert table.override_count(OP) == 1


def test_a_key_left_out_of_a_move_of_its_group_stays_where_it_was() -> None:
    table = make_table()
    table.assign(OP, KeySet.everything(GROUPS) - keys("car1", "car2"), "child")
    assert table.lookup_one(OP, "car1") == "up"
    parts = table.partition(OP, keys("car1", "car2", "car3"))
    assert parts == [("up", keys("car1", "car2")), ("child", keys("car3"))]


def test_a_whole_group_takes_its_explicit_keys_along() -> None:
    table = make_table()
    table.assign(OP, keys("car1"), "local")
    table.assign(OP, KeySet.of_groups(GROUPS, [stable_hash("car1") % GROUPS]), "child")
    assert table.lookup_one(OP, "car1") == "child"
    assert table.override_count(OP) == 0


def test_moving_back_and_forth_does_not_make_the_table_grow() -> None:
    table = make_table()
    everything = KeySet.everything(GROUPS)
    for i in range(3000):
        table.assign(OP, keys(f"car{i}"), "local")
        table.assign(OP, keys(f"car{i}"), "up")
    assert table.override_count(OP) == 0
    assert len(table._rules[OP].overrides.slots) <= 1024
    for i in range(50):
        table.assign(OP, keys(*(f"car{j}" for j in range(40))), "local")
        table.assign(OP, everything, ("up", "child")[i % 2])
    assert table.override_count(OP) == 0
    assert len(table._rules[OP].overrides.slots) <= 1024
    table.check()


def test_operators_do_not_share_rules() -> None:
    table = make_table()
    other = OpId("app/other")
    table.add_op(other, 16)
    table.assign(OP, keys("car1"), "local")
    assert table.lookup_one(other, "car1") == "up"
    assert table.ops() == (OP, other)
    assert (table.groups_of(OP), table.groups_of(other)) == (GROUPS, 16)


def test_adding_an_operator_again_keeps_its_rules() -> None:
    table = make_table()
    table.assign(OP, keys("car1"), "local")
    table.add_op(OP, GROUPS)
    assert table.lookup_one(OP, "car1") == "local"
    for groups in (GROUPS * 2, 0):
        with pytest.raises(ConfigurationError):
            table.add_op(OP, groups)


def test_an_unknown_operator_is_named() -> None:
    table = make_table()
    nobody = OpId("app/nobody")
    for asked in (
        lambda: table.lookup(nobody, hash_keys(["car1"])),
        lambda: table.lookup_one(nobody, "car1"),
        lambda: table.assign(nobody, keys("car1"), "local"),
        lambda: table.partition(nobody, keys("car1")),
        lambda: table.groups_of(nobody),
    ):
        with pytest.raises(UnknownName, match="app/nobody"):
            asked()


def test_a_key_set_of_another_keyspace_is_refused_and_changes_nothing() -> None:
    table = make_table()
    with pytest.raises(ConfigurationError):
        table.assign(OP, KeySet.everything(GROUPS * 2), "local")
    assert table.partition(OP, KeySet.everything(GROUPS)) == [("up", KeySet.everything(GROUPS))]


def test_the_order_of_a_partition_does_not_depend_on_history() -> None:
    one, other = make_table(), make_table()
    moves = [(KeySet.of_groups(GROUPS, [5, 9]), "b"), (keys("car1", "car7"), "c"), (keys("car2"), "a")]
    for chosen, route in moves:
        one.assign(OP, chosen, route)
    for chosen, route in reversed(moves):
        other.assign(OP, chosen, route)
    everything = KeySet.everything(GROUPS)
    assert one.partition(OP, everything) == other.partition(OP, everything)
    assert [route for route, _ in one.partition(OP, everything)] == ["up", "b", "c", "a"]


def test_keys_with_the_same_hash_have_one_rule(monkeypatch: pytest.MonkeyPatch) -> None:
    for module in (keyspace, rules):
        monkeypatch.setattr(module, "stable_hash", lambda key: len(key))
    table = make_table()
    table.assign(OP, keys("aa", "bb", "c"), "local")
    table.check()
    assert table.override_count(OP) == 2
    assert table.lookup_one(OP, "zz") == "local"
    assert table.partition(OP, keys("aa", "bb", "ddd")) == [("local", keys("aa", "bb")), ("up", keys("ddd"))]
    table.assign(OP, keys("bb"), "up")
    assert table.lookup_one(OP, "aa") == "up"


def test_a_key_whose_hash_is_zero_is_like_any_other(monkeypatch: pytest.MonkeyPatch) -> None:
    for module in (keyspace, rules):
        monkeypatch.setattr(module, "stable_hash", lambda key: int(key))
    table = make_table()
    table.assign(OP, keys("1"), "local")
    assert table.lookup_one(OP, "0") == "up"
    assert table.lookup(OP, hash_keys(["0", "1"])).tolist() == [0, 1]
    table.assign(OP, keys("0"), "child")
    assert [table.lookup_one(OP, key) for key in ("0", "1", "2")] == ["child", "local", "up"]
    assert table.lookup(OP, hash_keys(["0", "1", "2"])).tolist() == [2, 1, 0]
    table.check()


def test_two_hundred_thousand_keys_of_one_group_are_found_again() -> None:
    table = make_table()
    table.add_op(OpId("app/single"), 1)
    names = [f"car{i}" for i in range(200_000)]
    crowded = [name for name in names if stable_hash(name) % GROUPS == 3]
    table.assign(OP, KeySet.of_keys(GROUPS, crowded), "local")
    table.assign(OpId("app/single"), KeySet.of_keys(1, names), "local")
    assert (table.lookup(OP, hash_keys(crowded)) == 1).all()
    assert (table.lookup(OpId("app/single"), hash_keys(names)) == 1).all()
    assert not table.lookup(OpId("app/single"), hash_keys([f"bus{i}" for i in range(10_000)])).any()
    table.check()


def test_split_keeps_every_row_once_and_in_order() -> None:
    ids = np.array([3, 0, 3, 40_000, 0, 3], dtype=np.int32)
    for chosen in (ids, np.minimum(ids, 7)):
        batch = pa.record_batch({"seq": list(range(6)), "payload": [bytes([i]) for i in range(6)]})
        parts = split(batch, chosen)
        assert [(i, part.column("seq").to_pylist()) for i, part in parts] == [
            (0, [1, 4]),
            (3, [0, 2, 5]),
            (int(chosen.max()), [3]),
        ]


def test_a_batch_for_one_route_is_passed_on_as_it_is() -> None:
    batch = pa.record_batch({"seq": [1, 2]})
    [(route_id, part)] = split(batch, np.array([4, 4], dtype=np.int32))
    assert route_id == 4 and part is batch
    assert split(batch.slice(0, 0), np.array([], dtype=np.int32)) == []


def make_table() -> RuleTable[str]:
    table = RuleTable("up")
    table.add_op(OP, GROUPS)
    return table


def keys(*names: str) -> KeySet:
    return KeySet.of_keys(GROUPS, names)
