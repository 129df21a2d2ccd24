"""Defining applications: what is written is what runs, and what cannot run is refused where it is written."""

import pytest

from peregrine import App, Avg, Count, Interval, Tumbling
from peregrine.app.compile import compile_app
from peregrine.errors import ConfigurationError, UnknownName

SPEEDS = "vehicle string, speed double, at_ms bigint"


def tm() -> App:
    app = App("tm", groups=4)
    speeds = app.source("speeds", SPEEDS, event_time="at_ms", delay="1 second", senders=["gate1", "gate2"])
    averages = speeds.key_by("vehicle").aggregate("average", average=Avg("speed"))
    averages.filter("fast", lambda row: row.average > 100).to("alerts")
    return app


def test_a_function_behind_an_operator_runs_inside_of_it() -> None:
    specs = compile_app(tm()).specs
    assert specs["tm/fast"].inline and specs["tm/fast"].stateless
    assert not specs["tm/average"].inline
    assert specs["tm/results/alerts"].sink


def test_a_function_behind_a_source_has_a_place_of_its_own() -> None:
    app = App("tm")
    speeds = app.source("speeds", SPEEDS)
    speeds.filter("fast", lambda row: row.speed > 100).to("alerts")
    spec = compile_app(app).specs["tm/fast"]
    assert spec.stateless and not spec.inline


def test_the_plan_is_told_to_people() -> None:
    told = tm().describe()
    assert [line.split()[0] for line in told.splitlines()] == ["tm", "speeds", "average", "fast", "alerts"]
    assert "by vehicle" in told and "within average" in told and "<- speeds" in told


def test_windows_wait_for_the_senders_of_all_that_feeds_them() -> None:
    app = App("two")
    left = app.source("left", SPEEDS, event_time="at_ms", senders=["a", "b"])
    right = app.source("right", SPEEDS, event_time="at_ms", senders=["c"], delay="2 seconds")
    one = left.key_by("vehicle").window(Tumbling("1 second")).aggregate("one", n=Count())
    one.key_by("n").window(Tumbling("1 second")).aggregate("of_one", windows=Count()).to("windows")
    pairs = left.key_by("vehicle").join(
        "pairs", right.key_by("vehicle"), Interval("-1 second", "1 second"), _pair, "v string"
    )
    pairs.to("paired")
    compiled = compile_app(app)
    assert compiled.operators["two/one"].watermark.sources == ("a", "b")
    assert compiled.operators["two/one"].clocks_to == (("two/of_one", 16),)
    assert compiled.operators["two/of_one"].watermark.sources == ("two/one/a", "two/one/b")
    assert not compiled.operators["two/of_one"].time_from_rows
    assert set(compiled.operators["two/pairs"].watermark.sources) == {"a", "b", "c"}
    assert compiled.operators["two/pairs"].watermark.delay_ms == 2000
    assert compiled.sources["left"].clocked == (("two/one", 16), ("two/pairs", 16))


def _pair(left: object, right: object) -> dict[str, str]:
    return {"v": "x"}


def test_a_reading_goes_to_every_operator_that_takes_it_with_its_key_and_time() -> None:
    app = tm()
    app.stream("speeds").map("kmh", lambda row: {"kmh": row.speed * 3.6}, "kmh double").to("all")
    ingress = compile_app(app).sources["speeds"]
    readings = ingress.readings({"vehicle": "car1", "speed": 2.5, "at_ms": 7}, "gate1", now_ms=99)
    assert [(each.op, each.key, each.time_ms, each.created_ms) for each in readings] == [
        ("tm/average", "car1", 7, 99),
        ("tm/kmh", "gate1", 7, 99),
    ]


@pytest.mark.parametrize(
    ("wrong", "what"),
    [
        (lambda app: app.stream("spedes"), "spedes"),
        (lambda app: app.stream("speeds").key_by("car"), "car"),
        (lambda app: app.stream("speeds").filter("average", lambda row: True), "average"),
        (lambda app: app.stream("speeds").side("late"), "late"),
        (lambda app: app.source("more", SPEEDS, event_time="vehicle"), "vehicle"),
        (lambda app: app.source("more", SPEEDS, delay="a while"), "a while"),
        (lambda app: app.source("more", "speed dubble"), "dubble"),
        (lambda app: app.source("two words", SPEEDS), "two words"),
        (lambda app: app.stream("speeds").key_by("speed"), "speed"),
        (lambda app: app.stream("speeds").map("m", lambda: 1, "a int"), "m"),
        (lambda app: app.stream("speeds").union(app.stream("average")), "union"),
        (lambda app: App("other").stream("speeds"), "speeds"),
    ],
)
def test_a_bad_definition_is_refused_with_its_name_and_a_remedy(wrong: object, what: str) -> None:
    with pytest.raises(ConfigurationError) as refused:
        wrong(tm())  # type: ignore[operator]
    assert what in refused.value.what and refused.value.remedy


def test_the_place_of_the_definition_is_named() -> None:
    app = tm()
    with pytest.raises(ConfigurationError, match=r"test_model\.py, line \d+.*average.*test_model\.py, line \d+"):
        app.stream("speeds").filter("average", lambda row: True)


def test_streams_of_two_applications_do_not_mix() -> None:
    with pytest.raises(ConfigurationError, match="other"):
        tm().stream("speeds").union(App("other").source("speeds", SPEEDS))


def test_an_application_needs_a_result_and_uses_all_of_its_streams() -> None:
    app = App("empty")
    speeds = app.source("speeds", SPEEDS)
    with pytest.raises(ConfigurationError, match="no result"):
        compile_app(app)
    speeds.to("all")
    speeds.filter("unused", lambda row: True)
    with pytest.raises(ConfigurationError, match="unused"):
        compile_app(app)


def test_keys_of_a_join_have_the_same_types() -> None:
    app = App("join")
    left, right = app.source("left", "a string"), app.source("right", "a bigint")
    with pytest.raises(ConfigurationError, match=r"string.*bigint"):
        left.key_by("a").join("pairs", right.key_by("a"), Interval(0, 0))


def test_an_unknown_source_of_a_result_is_named() -> None:
    with pytest.raises(UnknownName, match="stream of tm"):
        tm().stream("nothing")
