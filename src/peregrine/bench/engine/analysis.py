"""What the cells found, put together by Spark SQL: medians of repetitions (or the worst), ratios, phases, latencies."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import msgspec

from peregrine.bench.engine.definition import MEASURES, Setting
from peregrine.bench.engine.store import SAMPLES, SUMMARY, Failure, Store

Row = Mapping[str, Any]

# A jitter within what the steady state has anyway counts as that: two of them cannot be told apart.
_FELT = "greatest({}, steady_p99_ms - steady_mean_ms)"
WORST = {"handover"}  # is said of each hand-over, so the worst of all repetitions counts
LESSONS = 5  # from which on predictions are judged
_TAUGHT = f"CASE WHEN lessons >= {LESSONS} THEN abs(predicted_{{}} / nullif({{}}, 0) - 1) END"
CELLS = f"""
    SELECT experiment, variant, mechanism, x, any_value(x_label) AS x_label, any_value(app) AS app,
           count(coalesce(duration_ms, steady_mean_ms, max_rows_per_s)) AS runs,
           {", ".join(f"{'max' if name in WORST else 'median'}({name}) AS {name}" for name in MEASURES)},
           median({_FELT.format("jitter_ms")}) AS felt_jitter_ms,
           median({_FELT.format("jitter_p99_ms")}) AS felt_jitter_p99_ms,
           min(jitter_ms) AS least_jitter_ms, max(jitter_ms) AS most_jitter_ms,
           median({_TAUGHT.format("duration_ms", "duration_ms")}) AS duration_error,
           median({_TAUGHT.format("bytes", "bytes_moved")}) AS bytes_error,
           median(steady_mean_ms) AS steady_mean_ms, median(steady_p99_ms) AS steady_p99_ms,
           sum(rows_out) AS rows_out, sum(lost) AS lost, sum(repeated) AS repeated,
           sum(out_of_order) AS out_of_order, sum(states_that_differ) AS states_that_differ,
           sum(violations) AS violations, max(trouble) AS trouble, any_value(size) AS size,
           min(changes) AS changes, any_value(setting) AS setting, collect_set(machine) AS machines
    FROM summary GROUP BY experiment, variant, mechanism, x ORDER BY experiment, x, variant
"""
# What the others are held against: the first of these that an experiment has.
REFERENCES = ("live", "streamed", "incremental", "drive", "warm", "adaptive", "hourly")
_NONE_AT_ALL = ("disruption_ms", "downtime_ms", "recovery_ms")


def _times(measure: str) -> str:
    """Of one that was not disrupted at all, a millisecond, which is what clocks can tell. Else over nothing there is no
    ratio.
    """
    if measure in _NONE_AT_ALL:
        return f"one.{measure} / greatest(other.{measure}, 1) AS {measure}"
    column = f"felt_{measure}" if measure.startswith("jitter") else measure
    return f"one.{column} / nullif(other.{column}, 0) AS {measure}"


RATIOS = f"""
    WITH known AS (
        SELECT *, CASE variant {" ".join(f"WHEN '{name}' THEN {nth}" for nth, name in enumerate(REFERENCES))} END AS nth
        FROM cells
    ),
    chosen AS (SELECT experiment, min(nth) AS nth FROM known GROUP BY experiment)
    SELECT one.experiment, one.variant, one.x, one.x_label, other.variant AS reference,
           {", ".join(map(_times, MEASURES))}
    FROM chosen
    JOIN known other ON other.experiment = chosen.experiment AND other.nth = chosen.nth
    JOIN known one ON one.experiment = other.experiment AND one.x = other.x AND one.variant <> other.variant
    WHERE one.runs > 0 AND other.runs > 0
    ORDER BY experiment, x, variant
"""
PHASES = """
    SELECT experiment, variant, x, any_value(x_label) AS x_label, phase, median(ms) AS ms
    FROM (SELECT experiment, variant, x, x_label, explode(phases_ms) AS (phase, ms) FROM summary)
    GROUP BY experiment, variant, x, phase ORDER BY experiment, x, variant, phase
"""
CURVES = """
    SELECT summary.experiment, variant, x, x_label, at_ms, results, samples.median_ms, slowest_ms
    FROM samples JOIN summary ON samples.digest = summary.digest AND samples.experiment = summary.experiment
    WHERE repetition = 0 ORDER BY summary.experiment, x, variant, at_ms
"""
MACHINES = "SELECT machine, count(*) AS cells FROM summary GROUP BY machine ORDER BY cells DESC"


@dataclass(frozen=True)
class Analysed:
    cells: list[Row]  # one of each value of the sweep and variant
    ratios: list[Row]  # how many times as much as the reference
    phases: list[Row]
    curves: list[Row]
    machines: list[Row]


def analyse(store: Store, spark: Any) -> Analysed:
    store.check_there_is_something()
    if not store.files("summary"):
        return Analysed(_with_failures([], store.failures()), [], [], [], [])
    for kind, schema in (("summary", SUMMARY), ("samples", SAMPLES)):
        table = spark.read.option("mergeSchema", True).parquet(*map(str, store.files(kind)))
        absent = [f"CAST(NULL AS DOUBLE) AS {name}" for name in schema.names if name not in table.columns]
        table.selectExpr("*", *absent).createOrReplaceTempView(kind)  # older files lack what newer ones have
    spark.sql(CELLS).createOrReplaceTempView("cells")
    cells, *more = (spark.sql(query).toArrow().to_pylist() for query in (CELLS, RATIOS, PHASES, CURVES, MACHINES))
    cells = [{**cell, "carried_out": carried_out(cell["changes"], cell["setting"])} for cell in cells]
    return Analysed(_with_failures(cells, store.failures()), *more)


def carried_out(changes: float | None, setting: str) -> float | None:
    """Which share of the changes that were told while trains went on."""
    if changes is None:
        return None
    said = msgspec.json.decode(setting, type=Setting)
    return float(changes / (said.times_told(said.changes_s) * said.at_once))


def _with_failures(cells: Sequence[Row], failures: Sequence[Failure]) -> list[Row]:
    """`failed` says why, beside what other repetitions found or without any figure."""
    why = {(each.experiment, each.variant, each.x): each for each in failures}
    found = []
    for cell in cells:
        each = why.pop((cell["experiment"], cell["variant"], cell["x"]), None)
        found.append(cell if each is None else {**cell, "failed": each.why})
    return found + [_without_figures(each) for each in why.values()]


def _without_figures(failure: Failure) -> Row:
    named = {name: getattr(failure, name) for name in failure.__struct_fields__ if name != "why"}
    return {**dict.fromkeys(MEASURES), **named, "runs": 0, "trouble": "", "failed": failure.why}
