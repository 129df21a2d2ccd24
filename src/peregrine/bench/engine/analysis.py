"""What the cells found, put together by Spark SQL: medians of repetitions (or the worst), ratios, phases, latencies."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from peregrine.bench.engine.definition import MEASURES
from peregrine.bench.engine.store import SAMPLES, SUMMARY, Store

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
           max(trouble) AS trouble
    FROM summary GROUP BY experiment, variant, mechanism, x ORDER BY experiment, x, variant
"""
# Of one that was not disrupted at all, a millisecond, which is what clocks can tell. Over nothing there is no ratio.
RATIOS = """
    SELECT one.experiment, one.variant, one.x, one.x_label,
           one.disruption_ms / greatest(live.disruption_ms, 1) AS disruption_ms,
           one.felt_jitter_ms / nullif(live.felt_jitter_ms, 0) AS jitter_ms,
           one.freeze_ms / nullif(live.freeze_ms, 0) AS freeze_ms,
           one.duration_ms / nullif(live.duration_ms, 0) AS duration_ms,
           one.bytes_on_links / nullif(live.bytes_on_links, 0) AS bytes_on_links
    FROM cells one JOIN cells live ON one.experiment = live.experiment AND one.x = live.x AND live.variant = 'live'
    WHERE one.variant <> 'live' AND one.runs > 0 AND live.runs > 0
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
    ratios: list[Row]  # how many times as much as `live`
    phases: list[Row]
    curves: list[Row]
    machines: list[Row]


def analyse(store: Store, spark: Any) -> Analysed:
    store.check_there_is_something()
    for kind, schema in (("summary", SUMMARY), ("samples", SAMPLES)):
        table = spark.read.option("mergeSchema", True).parquet(*map(str, store.files(kind)))
        absent = [f"CAST(NULL AS DOUBLE) AS {name}" for name in schema.names if name not in table.columns]
        table.selectExpr("*", *absent).createOrReplaceTempView(kind)  # older files lack what newer ones have
    spark.sql(CELLS).createOrReplaceTempView("cells")
    found = [spark.sql(query).toArrow().to_pylist() for query in (CELLS, RATIOS, PHASES, CURVES, MACHINES)]
    return Analysed(*found)
