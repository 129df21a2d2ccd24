"""What names stand for when several applications run, some of them with the same operators."""

from typing import Any

import pytest

from peregrine import App, Avg, Count
from peregrine.app.compile import compile_apps
from peregrine.control.naming import Names, listed
from peregrine.core.keyspace import KeySet
from peregrine.errors import UnknownName
from peregrine.types import OpId

A, B = OpId("a/average"), OpId("b/mean")
SPEEDS = "vehicle string, speed double"


def app_of(name: str, operator: str) -> App:
    app = App(name, groups=4)
    speeds = app.source("speeds", SPEEDS, senders=["gate"])
    speeds.key_by("vehicle").aggregate(operator, average=Avg("speed")).to("out")
    speeds.key_by("vehicle").aggregate("count", **{f"n_{name}": Count()}).to("counts")
    app.source("own", SPEEDS).to("all")
    return app


def names_of(*twins: tuple[OpId, OpId]) -> Names:
    return Names(compile_apps([app_of("a", "average"), app_of("b", "mean")], dict(twins)), dict(twins))


def test_all_names_of_a_shared_operator_are_its_names() -> None:
    names = names_of((B, A))
    for name in ("average", "mean", "a/average", "b/mean"):
        assert names.operator(name) == A
    assert names.apps_of(A) == ["a", "b"]
    assert names.apps_of(OpId("a/count")) == ["a"]
    assert names.key(A, "car1") == "car1"


def test_a_name_that_stands_for_two_operators_is_ambiguous() -> None:
    with pytest.raises(UnknownName, match="which application"):
        names_of((B, A)).operator("count")


def test_results_keep_their_own_names() -> None:
    names = names_of((B, A))
    assert [names.result(f"{app}/out")[0] for app in "ab"] == ["a/results/out", "b/results/out"]


def test_a_source_of_what_is_shared_is_sent_to_by_its_name_alone() -> None:
    sources = names_of((B, A)).sources()
    assert set(sources) == {"speeds", "own", "a/own", "b/own"}
    assert [target.op for each in sources["speeds"] for target in each.targets] == [A, "a/count", "b/count"]
    apart = names_of().sources()
    assert set(apart) == {"speeds", "own", *(f"{app}/{name}" for app in "ab" for name in ("speeds", "own"))}


def test_what_begins_elsewhere_is_said_by_any_name_and_counts_once() -> None:
    names = names_of((B, A))
    everything = KeySet.everything(4)
    assert names.beginnings({"mean": {"edge": None}, "a/average": {"edge": None}}) == [(A, everything, "edge")]
    assert names.begins(A, {"mean": {"edge": None}}) == set()  # before it is known what is shared


def test_keys_may_come_from_an_iterator() -> None:
    at: Any = listed({"average": {"edge": (f"car{n}" for n in range(2)), "cloud": None}})
    assert at == {"average": {"edge": ["car0", "car1"], "cloud": None}}
    assert listed(None) == {}
