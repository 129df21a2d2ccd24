"""An error is kept by machines (why something was put off), so it must come through a snapshot."""

import pytest

from peregrine.core import snapshot
from peregrine.errors import PeregrineError, PlanError, UnknownName


@pytest.mark.parametrize("error", [PlanError("it has no room", "add a host"), UnknownName("place", "x", ["y"])])
def test_an_error_in_a_snapshot_comes_back_as_it_was(error: PeregrineError) -> None:
    again = snapshot.decode(snapshot.encode(error))
    assert (type(again), again.what, again.remedy) == (type(error), error.what, error.remedy)
