"""A machine as bytes: what is in it comes back, and nothing but what has a stored name is read or written."""

import os
import pickle
from functools import partial
from typing import Any

import msgspec
import numpy as np
import pytest

from peregrine import errors
from peregrine.core import snapshot
from peregrine.core.coordinator import Coordinator
from peregrine.core.format_version import FORMAT
from peregrine.core.keyspace import KeySet
from peregrine.core.rows import UNCHAINED, Row, Rows, batch_of
from peregrine.errors import PeregrineError, PlanError, ProtocolError, UnknownName
from peregrine.types import OpId, SourceId

HEAD = snapshot.encode(None)[:2]
DONE: list[str] = []


class Runs:
    """What a foreign pickle does while it is loaded."""

    def __init__(self, *call: Any) -> None:
        self.call = call

    def __reduce__(self) -> tuple[Any, ...]:
        return self.call[0], self.call[1:]


@pytest.mark.parametrize(
    "foreign",
    [
        Runs(os.system, "touch /tmp/peregrine-was-here"),
        Runs(eval, "DONE.append('eval')", {"DONE": DONE}),
        Runs(getattr, KeySet, "__init__"),
        Runs(DONE.append, "append"),
        np.arange(3),  # as numpy writes it
        KeySet.everything(4),  # as Python writes it: by where the class is
        partial(DONE.append, "partial"),
        Coordinator,
    ],
    ids=["system", "eval", "getattr", "append", "ndarray", "KeySet", "partial", "Coordinator"],
)
def test_a_foreign_pickle_is_refused_and_runs_nothing(foreign: Any) -> None:
    with pytest.raises(ProtocolError, match="not stored like that"):
        snapshot.decode(HEAD + pickle.dumps(foreign, protocol=5))
    assert DONE == [] and not os.path.exists("/tmp/peregrine-was-here")


def test_a_name_that_is_not_in_the_table_leads_nowhere() -> None:
    """Not as a pickle of another protocol asks for it, nor by the function that leads to classes."""
    with pytest.raises(ProtocolError, match=r"os\.system, which is not stored like that"):
        snapshot.decode(HEAD + b"cos\nsystem\n(S'true'\ntR.")
    stored = b"\x80\x05\x8c\x07nowhere\x8c\x06stored\x93"
    with pytest.raises(ProtocolError, match=r"nothing is stored under the name 'os\.system'"):
        snapshot.decode(HEAD + stored + b"\x8c\x09os.system\x85R.")


def test_a_machine_of_another_version_is_refused() -> None:
    raw = snapshot.encode({"a": 1})
    with pytest.raises(ProtocolError, match=f"format {FORMAT + 1}, and this version reads format {FORMAT}"):
        snapshot.decode((FORMAT + 1).to_bytes(2, "little") + raw[2:])


@pytest.mark.parametrize(
    "thing", [Runs(print), os.system, pickle.Pickler, np.array([object()]), lambda: None, np.int64(1)]
)
def test_what_has_no_stored_name_is_refused_when_it_is_written(thing: Any) -> None:
    with pytest.raises((ProtocolError, AttributeError)):
        snapshot.encode({"machine": [thing]})


def test_arrays_and_batches_come_back_and_can_be_written_to() -> None:
    rows = Rows(OpId("a/b"), batch_of([Row("k", SourceId("s"), i, UNCHAINED, i, 0, b"x") for i in range(3)]))
    one = np.arange(6).reshape(2, 3)
    kept = {
        "rows": rows,
        "part": rows.batch.slice(1, 1),
        "turned": one.T,
        "same": (one, one),
        "none": np.empty(0, "u8"),
    }
    found = snapshot.decode(snapshot.encode(kept))
    assert found["rows"].batch.equals(rows.batch) and found["part"].equals(rows.batch.slice(1, 1))
    assert (found["turned"] == one.T).all() and found["none"].dtype == np.uint64
    assert found["same"][0] is found["same"][1]
    found["same"][0][0, 0] = 7


@pytest.mark.parametrize(
    "error",
    [PlanError("a", "b"), UnknownName("site", "mars", ["earth"]), errors.DiskFull("full", "make room")],
    ids=lambda error: type(error).__name__,
)
def test_an_error_that_a_machine_keeps_comes_back(error: PeregrineError) -> None:
    """Why a topology change was put off is in the manager's snapshot; a manager could not go on from it."""
    found = snapshot.decode(snapshot.encode(error))
    assert (type(found), found.what, found.remedy, str(found)) == (type(error), error.what, error.remedy, str(error))


@pytest.mark.parametrize("thing", [..., NotImplemented, msgspec.UNSET])
def test_what_the_reader_refuses_the_writer_refuses(thing: object) -> None:
    """The journal behind a snapshot has been cut when it is read."""
    with pytest.raises(ProtocolError):
        snapshot.encode({"kept": thing})
