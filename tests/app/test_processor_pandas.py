"""The pandas flavour of processors, without Spark."""

from collections.abc import Callable, Iterator
from typing import Any

import pytest

from peregrine.errors import ConfigurationError
from processor_drive import Drive

pd = pytest.importorskip("pandas")

READINGS = "id string, n bigint, x double, b boolean, at timestamp"
FULL = {"id": "a", "n": 1, "x": 0.5, "b": True, "at": "2026-01-02T00:00:00"}


class Framed:
    """Gives the frames that `make` gives for the frame that it gets."""

    def __init__(self, make: Callable[[Any], Any]) -> None:
        self.make = make

    def init(self, handle: Any) -> None:
        self.total = handle.getValueState("total", "n bigint")

    def handleInputRows(self, key: Any, rows: Iterator[Any], timerValues: Any) -> Iterator[Any]:
        for frame in rows:
            yield self.make(frame)

    def handleInitialState(self, key: Any, initialState: Any, timerValues: Any) -> None:
        self.total.update((initialState["n"].sum(),))


def told(make: Callable[[Any], Any], output: str, **fields: Any) -> list[tuple[Any, ...]]:
    return Drive(Framed(make), READINGS, output, flavour="pandas").row({**FULL, **fields})


def test_a_row_comes_as_a_frame_with_the_types_that_pandas_would_read() -> None:
    def types(frame: Any) -> Any:
        assert len(frame) == 1
        return pd.DataFrame({"name": frame.columns, "type": [str(each) for each in frame.dtypes]})

    assert told(types, "name string, type string") == [
        ("id", "object"),
        ("n", "int64"),
        ("x", "float64"),
        ("b", "bool"),
        ("at", "datetime64[ns]"),
    ]


def test_nulls_come_as_pandas_has_them() -> None:
    def nulls(frame: Any) -> Any:
        return pd.DataFrame({"type": [str(each) for each in frame.dtypes], "null": frame.isna().iloc[0]})

    assert told(nulls, "type string, null boolean", n=None, x=None, at=None) == [
        ("object", False),
        ("float64", True),
        ("float64", True),
        ("bool", False),
        ("datetime64[ns]", True),
    ]


def test_results_go_by_name_and_nan_is_null() -> None:
    def make(frame: Any) -> Any:
        return pd.DataFrame({"x": [1.0, float("nan")], "more": [0, 0], "n": [3.0, float("nan")], "at": [pd.NaT, None]})

    assert told(make, "n bigint, x double, at timestamp") == [(3, 1.0, None), (None, None, None)]


def test_columns_without_names_go_by_position() -> None:
    assert told(lambda frame: pd.DataFrame([["u", 1], ["v", 2]]), "id string, n bigint") == [("u", 1), ("v", 2)]


def test_a_frame_may_be_empty() -> None:
    assert told(lambda frame: frame[["id", "n"]].iloc[:0], "id string, n bigint") == []


@pytest.mark.parametrize("make", [lambda frame: frame[["id"]], lambda frame: pd.DataFrame([[1]]), lambda frame: 5])
def test_a_result_without_the_columns_is_an_error(make: Callable[[Any], Any]) -> None:
    with pytest.raises(ConfigurationError):
        told(make, "id string, n bigint")


def test_the_initial_state_of_a_key_comes_as_one_frame() -> None:
    class Started(Framed):
        def handleInputRows(self, key: Any, rows: Iterator[Any], timerValues: Any) -> Iterator[Any]:
            yield pd.DataFrame([self.total.get()])

    start = pd.DataFrame({"id": ["a", "b", "a"], "n": [1, 10, 100]})
    drive = Drive(Started(lambda frame: frame), READINGS, "n bigint", flavour="pandas", initial_state=start)
    assert drive.row(FULL) == [(101,)]
