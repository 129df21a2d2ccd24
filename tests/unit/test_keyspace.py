"""Key sets and hashes: what is pinned, what is refused, and what stays fast."""

import os
import pickle
import subprocess
import sys
from time import perf_counter

import numpy as np
import pytest

from peregrine.core import keyspace
from peregrine.core.keyspace import KeySet, group_of, hash_keys, stable_hash
from peregrine.errors import ConfigurationError

PINNED = {
    "": 13020603013274838756,
    "car1": 5734965009860392736,
    "car2": 7449856410895187341,
    "g:3": 14090710774303388844,
    "Zürich": 636548684707296368,
    "鳥": 18050298043701688652,
}


@pytest.mark.parametrize(("key", "expected"), PINNED.items())
def test_the_hash_of_a_key_never_changes(key: str, expected: int) -> None:
    assert stable_hash(key) == expected


def test_keys_hashed_together_have_the_hashes_of_the_keys_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    cached = hash_keys(list(PINNED))
    monkeypatch.setattr(keyspace, "_BULK_KEYS", 0)
    bulk = hash_keys(list(PINNED))
    assert cached.dtype == bulk.dtype == np.uint64
    assert cached.tolist() == bulk.tolist() == list(PINNED.values())
    assert hash_keys([]).tolist() == []


def test_a_group_is_the_hash_modulo_the_number_of_groups() -> None:
    assert group_of(stable_hash("car1"), 128) == 5734965009860392736 % 128


def test_text_names_groups_and_keys_in_order() -> None:
    groups = KeySet.of_groups(128, [7, 3, 8, 9])
    outside, inside = (next(k for k in _many(1000) if (k in groups) is wanted) for wanted in (False, True))
    mixed = (groups | KeySet.of_keys(128, [outside])) - KeySet.of_keys(128, [inside])
    assert str(groups) == "g:3,g:7-9"
    assert str(mixed) == f"g:3,g:7-9,{outside},-{inside}"
    assert str(KeySet.everything(128) - KeySet.of_keys(128, ["car1"])) == "*,-car1"
    assert str(KeySet.nothing(128)) == "-*"


@pytest.mark.parametrize("text", ["*", "g:3,g:7", "g:0-126", "car1,car2", "car1,g:3", "*,-car1", "-*", "g:5 , car1"])
def test_text_is_read_back(text: str) -> None:
    keys = KeySet.parse(128, text)
    keys.check()
    assert KeySet.parse(128, str(keys)) == keys


def test_a_minus_takes_out_of_all_other_items_wherever_it_stands() -> None:
    expected = KeySet.everything(8) - KeySet.of_groups(8, [2]) - KeySet.of_keys(8, ["car1"])
    assert KeySet.parse(8, "-car1,*,-g:2") == expected


def test_keys_that_look_like_something_else_are_quoted() -> None:
    awkward = ["", "*", "-car", "g:1", "a,b", 'say "hi"', "tab\there", " lead", "back\\slash", "naïve", "\ud7ff\u2028"]
    keys = KeySet.of_keys(16, awkward)
    assert KeySet.parse(16, str(keys)) == keys
    assert "naïve" in str(keys).split(",")


@pytest.mark.parametrize(
    "text",
    ["", " ", ",", "a,,b", "a,", "g:", "g:x", "g:8", "g:3-99", "g:5-2", "g:-1", "**", "--a", '"a', '"a"b', 'a"b', "-a"],
)
def test_nonsense_is_refused_with_a_remedy(text: str) -> None:
    with pytest.raises(ConfigurationError) as refusal:
        KeySet.parse(8, text)
    assert refusal.value.remedy


def test_a_description_stays_short_and_the_text_stays_complete() -> None:
    keys = KeySet.of_keys(128, _many(1000))
    assert keys.describe() == "k0,k1,k10,k100,k101,k102,k103,k104,... 992 more"
    assert str(keys).count(",") == 999


def test_groups_out_of_range_are_refused() -> None:
    for refused in (
        lambda: KeySet.of_groups(8, [8]),
        lambda: KeySet.of_groups(8, [-1]),
        lambda: KeySet.everything(8).in_group(8),
        lambda: KeySet.everything(0),
        lambda: KeySet.of_keys(0, ["a"]),
        lambda: KeySet.of_keys(8, "car1"),
    ):
        with pytest.raises(ConfigurationError):
            refused()


def test_key_sets_of_different_keyspaces_do_not_mix() -> None:
    one, other = KeySet.everything(8), KeySet.everything(16)
    for mix in (KeySet.__or__, KeySet.__and__, KeySet.__sub__, KeySet.isdisjoint, KeySet.__le__):
        with pytest.raises(ConfigurationError):
            mix(one, other)


def test_two_keys_with_the_same_hash_move_together(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(keyspace, "stable_hash", lambda key: len(key))
    keys = KeySet.of_keys(4, ["aa"])
    rest = KeySet.everything(4) - keys
    assert "bb" in keys and "bb" not in rest and "b" in rest
    assert keys.contains(hash_keys(["bb"])).tolist() == [True]
    assert rest.contains(hash_keys(["bb"])).tolist() == [False]


def test_a_pickle_carries_the_set_without_its_caches() -> None:
    keys = KeySet.parse(128, "g:3,car1,car2")
    before = pickle.dumps(keys)
    keys.contains(hash_keys(["car1"]))
    assert pickle.dumps(keys) == before
    assert pickle.loads(before) == keys
    assert hash(pickle.loads(before)) == hash(keys)


def test_what_is_visible_does_not_depend_on_the_hash_seed() -> None:
    program = (
        "import pickle; from peregrine.core.keyspace import KeySet;"
        "k = KeySet.of_keys(8, map(str, range(50))) | KeySet.parse(8, 'g:2-4,-7');"
        "print(k, k.describe(), k.plus_by_hash, k.touched_groups(), [str(k.in_group(g)) for g in range(8)],"
        " pickle.dumps(k))"
    )
    printed = {
        subprocess.run(
            [sys.executable, "-c", program],
            env={**os.environ, "PYTHONHASHSEED": seed, "PYTHONPATH": os.pathsep.join(sys.path)},
            check=True,
            capture_output=True,
        ).stdout
        for seed in ("1", "2")
    }
    assert len(printed) == 1


def test_a_hundred_thousand_explicit_keys_are_no_burden() -> None:
    start = perf_counter()
    keys = KeySet.of_keys(128, _many(100_000))
    inside = keys.contains(hash_keys(_many(120_000)))
    assert inside[:100_000].all() and not inside[100_000:].any()
    rest = KeySet.everything(128) - keys
    assert not rest.contains(hash_keys(_many(100_000))).any()
    assert sum(len(keys.in_group(g).plus) for g in keys.touched_groups()) == 100_000
    assert (rest | keys) == KeySet.everything(128)
    assert perf_counter() - start < 10, "some step is quadratic"


def _many(count: int) -> list[str]:
    return [f"k{i}" for i in range(count)]
