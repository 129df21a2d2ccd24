"""The state variables of processors: values, lists, maps, TTL, and the types that they carry. Without Spark."""

import datetime as dt
from collections.abc import Callable, Iterator
from decimal import Decimal
from typing import Any

import pytest

from peregrine.app.handle import MANY
from peregrine.core.big_map import BigMap
from peregrine.errors import ConfigurationError
from processor_drive import Drive


class Scripted:
    """Runs a step on its states for each row."""

    def __init__(self, declare: Callable[[Any], Any], steps: list[Callable[[Any], Any]]) -> None:
        self.declare, self.steps = declare, steps
        self.results: list[Any] = []

    def __deepcopy__(self, memo: Any) -> "Scripted":
        return self  # so that the test can see what came out

    def init(self, handle: Any) -> None:
        self.state = self.declare(handle)

    def handleInputRows(self, key: Any, rows: Iterator[Any], timerValues: Any) -> Iterator[Any]:
        for row in rows:
            self.results.append(self.steps[row.step](self.state))
        return iter([])


def run(declare: Callable[[Any], Any], *steps: Callable[[Any], Any]) -> list[Any]:
    return run_at(declare, *((0, step) for step in steps))[0]


def run_at(declare: Callable[[Any], Any], *steps: tuple[int, Callable[[Any], Any]]) -> tuple[list[Any], Drive]:
    """What steps at these times give, with the state written and read between them."""
    scripted = Scripted(declare, [step for _, step in steps])
    drive = Drive(scripted, "id string, step bigint", "id string", time_mode="processing")
    for number, (now_ms, _) in enumerate(steps):
        drive.row({"id": "k", "step": number}, now_ms=now_ms)
    return scripted.results, drive


def value(schema: str, ttl_ms: int | None = None) -> Callable[[Any], Any]:
    return lambda handle: handle.getValueState("v", schema, ttl_ms)


def listed(schema: str, ttl_ms: int | None = None) -> Callable[[Any], Any]:
    return lambda handle: handle.getListState("l", schema, ttl_ms)


def mapped(keys: str, values: str, ttl_ms: int | None = None) -> Callable[[Any], Any]:
    return lambda handle: handle.getMapState("m", keys, values, ttl_ms)


def test_a_value_is_there_after_an_update_and_not_after_clear() -> None:
    assert run(
        value("n bigint, s string"),
        lambda v: (v.exists(), v.get()),
        lambda v: v.update((1, "x")),
        lambda v: (v.exists(), v.get()),
        lambda v: (v.clear(), v.exists(), v.get()),
    ) == [(False, None), None, (True, (1, "x")), (None, False, None)]


def test_a_list_keeps_its_order() -> None:
    assert run(
        listed("n bigint"),
        lambda s: (s.exists(), list(s.get())),
        lambda s: s.appendValue((3,)),
        lambda s: s.appendList([(1,), (2,)]),
        lambda s: (s.exists(), list(s.get())),
        lambda s: s.put([(9,)]),
        lambda s: list(s.get()),
        lambda s: (s.clear(), s.exists()),
    ) == [(False, []), None, None, (True, [(3,), (1,), (2,)]), None, [(9,)], (None, False)]


@pytest.mark.parametrize("write", ["put", "appendList"])
def test_an_empty_list_is_an_error_as_in_spark(write: str) -> None:
    with pytest.raises(ConfigurationError, match="empty list"):
        run(listed("n bigint"), lambda s: getattr(s, write)([]))


def test_a_map_by_keys_of_several_columns() -> None:
    assert run(
        mapped("a string, b bigint", "n bigint"),
        lambda m: (
            m.exists(),
            m.getValue(("x", 1)),
            m.containsKey(("x", 1)),
            list(m.iterator()),
            m.removeKey(("x", 1)),
        ),
        lambda m: (m.updateValue(("x", 2), (20,)), m.updateValue(("x", 1), (10,)), m.updateValue(("x", 2), (21,))),
        lambda m: (m.exists(), m.getValue(("x", 2)), m.containsKey(("x", 3))),
        lambda m: (list(m.iterator()), list(m.keys()), list(m.values())),
        lambda m: (m.removeKey(("x", 2)), list(m.keys())),
        lambda m: (m.removeKey(("x", 1)), m.exists()),
    ) == [
        (False, None, False, [], None),
        (None, None, None),
        (True, (21,), False),
        ([(("x", 2), (21,)), (("x", 1), (10,))], [("x", 2), ("x", 1)], [(21,), (10,)]),
        (None, [("x", 1)]),
        (None, False),
    ]


def test_a_map_may_be_changed_while_it_is_read() -> None:
    def drop_all(m: Any) -> bool:
        for key in m.keys():  # noqa: SIM118 (a state, not a dict)
            m.removeKey(key)
        return bool(m.exists())

    filled = [lambda m, n=n: m.updateValue((n,), (n,)) for n in range(5)]
    assert run(mapped("n bigint", "n bigint"), *filled, drop_all)[-1] is False


def test_a_large_map_becomes_a_big_map_and_goes_on_as_before() -> None:
    def fill(m: Any) -> None:
        for n in range(MANY + 10):
            m.updateValue((f"k{n}",), (n,))

    results, drive = run_at(
        mapped("k string", "n bigint"),
        (0, fill),
        (0, lambda m: (m.getValue(("k7",)), m.updateValue(("k7",), (70,)), m.removeKey(("k8",)))),
        (0, lambda m: (m.getValue(("k7",)), m.containsKey(("k8",)), sum(n for (n,) in m.values()))),
        (0, lambda m: sorted(m.keys())[0]),
    )
    assert isinstance(drive.state(("k",))[0]["m"], BigMap)
    assert results[1:] == [
        ((7,), None, None),
        ((70,), False, sum(range(MANY + 10)) + 63 - 8),
        ("k0",),
    ]


@pytest.mark.parametrize(
    ("schema", "given"),
    [
        ("a string", (None,)),
        ("a double", (float("inf"),)),
        ("a binary", (b"\x00\xff",)),
        ("a boolean, b int", (True, 1 << 30)),
        ("a timestamp", (dt.datetime(2026, 1, 2, 3, 4, 5, 678),)),
        ("a date, b decimal(10,2)", (dt.date(2026, 1, 2), Decimal("1.50"))),
        ("a array<bigint>, b array<timestamp>", ([1, 2], [dt.datetime(2026, 1, 2)])),
        ("a map<string,array<double>>, b map<bigint,string>", ({"x": [1.0]}, {5: "five"})),
        ("a timestamp, b binary, c double", (None, b"\xff", None)),
    ],
)
def test_values_come_back_as_they_were_given(schema: str, given: tuple[Any, ...]) -> None:
    results = run(value(schema), lambda v: v.update(given), lambda v: v.get())
    assert results[1] == given
    assert [type(each) for each in results[1]] == [type(each) for each in given]


@pytest.mark.parametrize(
    ("schema", "key"),
    [
        ("a string", ("null",)),
        ("a bigint", (None,)),
        ("a double, b boolean", (0.5, False)),
        ("a timestamp, b binary, c date", (dt.datetime(2026, 1, 2), b"\xff", None)),
        ("a array<string>, b decimal(5,1)", (["x"], Decimal("1.5"))),
    ],
)
def test_keys_of_a_map_come_back_as_they_were_given(schema: str, key: tuple[Any, ...]) -> None:
    results = run(
        mapped(schema, "n int"), lambda m: m.updateValue(key, (1,)), lambda m: (list(m.keys()), m.containsKey(key))
    )
    assert results[1] == ([key], True)


@pytest.mark.parametrize(("schema", "key"), [("a string", (None,)), ("a double", (float("nan"),))])
def test_what_cannot_be_a_key_of_a_map_is_an_error(schema: str, key: tuple[Any, ...]) -> None:
    with pytest.raises(ConfigurationError):
        run(mapped(schema, "n int"), lambda m: m.updateValue(key, (1,)))


def test_values_that_need_it_are_changed_to_the_type_of_their_column() -> None:
    np = pytest.importorskip("numpy")
    berlin = dt.timezone(dt.timedelta(hours=1))
    results = run(
        value("a double, b bigint, c timestamp, d struct<x:bigint,y:string>, e binary"),
        lambda v: v.update((1, np.int64(2), dt.datetime(2026, 1, 2, 1, tzinfo=berlin), (3, "y"), bytearray(b"z"))),
        lambda v: v.get(),
    )
    a, b, c, d, e = results[1]
    assert (a, type(a), b, type(b), c, e) == (1.0, float, 2, int, dt.datetime(2026, 1, 2), b"z")
    assert (d.x, d["y"], d[0]) == (3, "y", 3)


@pytest.mark.parametrize("given", [(1, 2), ("x",), None, 5, (1.5,)])
def test_what_does_not_fit_a_state_is_an_error(given: Any) -> None:
    with pytest.raises(ConfigurationError):
        run(value("n bigint"), lambda v: v.update(given))


def test_what_a_processor_does_with_a_list_that_it_got_does_not_change_the_state() -> None:
    assert run(value("a array<bigint>"), lambda v: v.update(([1],)), lambda v: v.get()[0].append(2), lambda v: v.get())[
        -1
    ] == ([1],)


# --- TTL ---


def test_a_value_is_gone_when_its_time_is_over_and_an_update_starts_it_anew() -> None:
    results, drive = run_at(
        value("n bigint", 100),
        (0, lambda v: v.update((1,))),
        (99, lambda v: v.get()),
        (99, lambda v: v.update((2,))),
        (198, lambda v: v.get()),
        (199, lambda v: (v.get(), v.exists())),
    )
    assert results == [None, (1,), None, (2,), (None, False)]
    assert drive.states == {}


def test_elements_of_a_list_expire_one_by_one() -> None:
    results, _ = run_at(
        listed("n bigint", 100),
        (0, lambda s: s.appendValue((1,))),
        (50, lambda s: s.appendList([(2,), (3,)])),
        (99, lambda s: list(s.get())),
        (100, lambda s: list(s.get())),
        (120, lambda s: s.put([(4,)])),
        (219, lambda s: list(s.get())),
        (220, lambda s: (list(s.get()), s.exists())),
    )
    assert results == [None, None, [(1,), (2,), (3,)], [(2,), (3,)], None, [(4,)], ([], False)]


def test_entries_of_a_map_expire_one_by_one() -> None:
    results, drive = run_at(
        mapped("k string", "n bigint", 100),
        (0, lambda m: (m.updateValue(("a",), (1,)), m.updateValue(("b",), (2,)))),
        (50, lambda m: m.updateValue(("a",), (3,))),
        (100, lambda m: (list(m.iterator()), m.containsKey(("b",)))),
        (150, lambda m: (m.exists(), m.getValue(("a",)))),
    )
    assert results[2:] == [([(("a",), (3,))], False), (False, None)]
    assert drive.states == {}


def test_what_has_expired_is_dropped_by_the_clock() -> None:
    _, drive = run_at(value("n bigint", 100), (0, lambda v: v.update((1,))))
    drive.time(("k",), now_ms=99)
    assert drive.states
    drive.time(("k",), now_ms=100)
    assert drive.states == {}


# --- declaring ---


def declared(declare: Callable[[Any], Any], time_mode: str = "none") -> Drive:
    return Drive(Scripted(declare, []), "id string, step bigint", "id string", time_mode=time_mode)


def test_two_states_of_one_name_are_an_error() -> None:
    with pytest.raises(ConfigurationError, match="two states"):
        declared(lambda handle: (handle.getValueState("x", "n bigint"), handle.getListState("x", "n bigint")))


@pytest.mark.parametrize("time_mode", ["none", "event"])
def test_a_ttl_needs_processing_time_as_in_spark(time_mode: str) -> None:
    with pytest.raises(ConfigurationError, match="TTL"):
        declared(value("n bigint", 100), time_mode)
    assert declared(value("n bigint", 0), time_mode).logic.states == {"v": "value (n bigint)"}, "0 is none"


def test_a_ttl_is_not_negative() -> None:
    with pytest.raises(ConfigurationError, match="-1 ms"):
        declared(value("n bigint", -1), "processing")


def test_a_state_that_is_deleted_leaves_each_key() -> None:
    before = declared(lambda handle: (handle.getValueState("old", "n int"), handle.getValueState("new", "n int")))
    before.logic._processor.steps = [lambda states: [each.update((1,)) for each in states]]
    before.row({"id": "k", "step": 0})

    def declare(handle: Any) -> Any:
        handle.deleteIfExists("old")
        return handle.getValueState("new", "n int")

    after = declared(declare)
    after.logic._processor.steps = [lambda state: None]
    after.states = before.states
    after.row({"id": "k", "step": 0})
    assert after.state(("k",)) == [{"new": [1]}, []]
