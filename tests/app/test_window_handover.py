"""What operators with windows hand over when keys move without their windows (decision 0008)."""

from typing import Any

import pytest

from peregrine import App, Count, CountSliding, CountTumbling, Interval, Session, Sliding, Tumbling
from peregrine.app.compile import compile_app
from peregrine.app.keyed import KeyedStream
from peregrine.app.logic import NEVER
from peregrine.app.model import Stream
from peregrine.app.windows import Window
from peregrine.core.chain import chained
from peregrine.core.keyspace import KeySet
from peregrine.core.mechanisms import MECHANISMS
from peregrine.core.operator import Operator, beside_windows, with_windows
from peregrine.core.placement import Placement
from peregrine.core.reconfigure import split
from peregrine.core.rows import UNCHAINED, Row
from peregrine.core.topology import Topology
from peregrine.core.validity import Validity
from peregrine.errors import PlanError
from peregrine.types import OpId, PlaceId, SiteId, SourceId

COUNT = OpId("shop/count")
TIMED = [Tumbling(100), Sliding(100, 20), Session(40)]


def counted(window: Window) -> App:
    app = App("shop", groups=4)
    orders(app).window(window).aggregate("count", rows=Count()).filter("some", lambda row: row.rows > 0).to("results")
    return app


def orders(app: App, name: str = "orders") -> KeyedStream:
    return app.source(name, "customer string, at_ms bigint", event_time="at_ms", senders=["till"]).key_by("customer")


def operator_of(app: App) -> Operator:
    compiled = compile_app(app)
    return chained(compiled.specs, compiled.operators)[COUNT]


def applied(operator: Operator, times: list[int], value: Any = None, after_ms: int = NEVER) -> tuple[Any, list[int]]:
    """The value after rows of these times, and the numbers of what came out."""
    seqs: list[int] = []
    for nth, time_ms in enumerate(times):
        after_ms = max(after_ms, time_ms)
        payload = b'{"customer":"ann","at_ms":%d}' % time_ms
        row = Row("ann", SourceId("till"), nth, UNCHAINED, time_ms, 0, payload)
        value, outs = operator.on_row("ann", value, row, {"till": after_ms})
        seqs += [out.seq for out in outs]
    return value, seqs


@pytest.mark.parametrize("window", TIMED, ids=str)
def test_a_value_is_its_windows_and_what_is_beside_them(window: Window) -> None:
    operator = operator_of(counted(window))
    value, seqs = applied(operator, [10, 30, 170, 190, 410, 430])
    beside = beside_windows(operator, value)
    assert seqs == list(range(len(seqs))) and seqs
    assert operator.open_ends(value) and not operator.open_ends(with_windows(operator, beside, None))
    assert with_windows(operator, beside, value) == value


@pytest.mark.parametrize("window", TIMED, ids=str)
def test_results_are_numbered_on_where_the_other_place_has_come_to(window: Window) -> None:
    """The new place has begun without the windows of before, and without what they would have told."""
    operator = operator_of(counted(window))
    before, told = applied(operator, [10, 30, 170, 190])
    fresh = with_windows(operator, beside_windows(operator, before), None)
    later = [410, 430, 610, 630]
    here, more = applied(operator, later[:2], before, 190)
    there, _ = applied(operator, later[:2], fresh, 190)
    there = with_windows(operator, beside_windows(operator, here), there)
    assert there == here
    assert applied(operator, later[2:], there, 430) == applied(operator, later[2:], here, 430)
    assert more and told and more[0] == told[-1] + 1


def test_a_session_that_grows_does_not_pass_for_a_new_one() -> None:
    operator = operator_of(counted(Session(40)))
    value, _ = applied(operator, [10])
    first = operator.open_ends(value)
    value, _ = applied(operator, [40, 70, 100, 130], value)
    assert operator.open_ends(value) == first
    value, _ = applied(operator, [300], value, 130)
    assert min(operator.open_ends(value)) > first[0]


def joined(app: App) -> Stream:
    left, right = orders(app), orders(app, "returns")
    return left.window_join("count", right, Tumbling(100), lambda a, b: (a.at_ms,), "at_ms bigint")


def near(app: App) -> Stream:
    left, right = orders(app), orders(app, "returns")
    return left.join("count", right, Interval(-5, 5), lambda a, b: (a.at_ms,), "at_ms bigint")


FITS: dict[str, Any] = {
    **{
        str(window): lambda app, window=window: orders(app).window(window).aggregate("count", n=Count())
        for window in TIMED
    },
    "window join": joined,
}
DOES_NOT_FIT: dict[str, Any] = {
    **{
        str(window): lambda app, window=window: orders(app).window(window).aggregate("count", n=Count())
        for window in (CountTumbling(3), CountSliding(4, 2))
    },
    "running aggregate": lambda app: orders(app).aggregate("count", n=Count()),
    "interval join": near,
}


def check(build: Any) -> None:
    """Would the manager take a plan that recreates the windows of this operator elsewhere?"""
    app = App("shop", groups=4)
    build(app).to("results")
    specs = compile_app(app).specs
    cloud = PlaceId("cloud")
    topology = Topology.tree(SiteId(cloud), {}, {SiteId(cloud): ("h1", "h2")})
    validity = Validity(Placement(topology, specs, ()), specs, lambda op, keys: ())
    places = topology.places(SiteId(cloud))
    (stage,) = split(COUNT, KeySet.everything(4), places[0], places[1])
    validity.check_stage(stage, MECHANISMS["window-recreation"], lambda op: [])


@pytest.mark.parametrize("build", FITS.values(), ids=FITS)
def test_windows_of_time_can_be_recreated(build: Any) -> None:
    check(build)


@pytest.mark.parametrize("build", DOES_NOT_FIT.values(), ids=DOES_NOT_FIT)
def test_what_has_no_windows_of_time_is_refused(build: Any) -> None:
    with pytest.raises(
        PlanError, match="'window-recreation' needs an operator that is windowed; shop/count is not"
    ) as no:
        check(build)
    assert no.value.remedy == "use live"
