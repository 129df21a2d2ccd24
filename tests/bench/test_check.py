from pathlib import Path

import pytest

from peregrine.bench.engine import check
from peregrine.bench.engine.check import Rule, Verdict
from peregrine.bench.engine.definition import MEASURES, cells, load_all, variants_of
from peregrine.errors import ConfigurationError


def cell(variant, x, experiment="e", mechanism="live", **figures):
    found = dict.fromkeys(MEASURES, 10.0) | {"felt_jitter_ms": figures.get("jitter_ms", 10.0)} | figures
    named = {"experiment": experiment, "variant": variant, "mechanism": mechanism, "x": x, "x_label": f"{x}"}
    sound = {"runs": 1, "rows_out": 5, "lost": 0, "repeated": 0, "out_of_order": 0, "states_that_differ": 0}
    return sound | named | found


def verdict(cells, **rule):
    (found,) = check.check([Rule(**{"name": "r", "experiment": "e", **rule})], cells)
    return found


RATIO = {"kind": "ratio", "measure": "disruption_ms", "one": "restart", "other": "live", "at_least": 50}


def test_a_ratio_is_judged_where_it_is_asked_for_or_where_it_is_worst() -> None:
    found = [
        cell("live", 1, disruption_ms=0.0),
        cell("restart", 1, disruption_ms=900.0),
        cell("live", 2, disruption_ms=100.0),
        cell("restart", 2, disruption_ms=400.0),
    ]
    assert (verdict(found, **RATIO, x=1).verdict, verdict(found, **RATIO, x=1).value) == (Verdict.PASS, 900.0)
    assert (verdict(found, **RATIO).verdict, verdict(found, **RATIO).value) == (Verdict.FAIL, 4.0)


def test_the_worst_of_a_line_is_judged() -> None:
    rule = {"kind": "most", "measure": "dip", "one": "warm", "at_most": 0.05}
    assert verdict([cell("warm", 1, dip=0.01), cell("cold", 1, dip=0.9)], **rule).verdict is Verdict.PASS
    assert verdict([cell("warm", 1, dip=0.01), cell("warm", 2, dip=0.06)], **rule).verdict is Verdict.FAIL


def test_what_was_not_run_is_neither_good_nor_bad() -> None:
    assert verdict([cell("live", 1)], **RATIO).verdict is Verdict.NOT_RUN
    assert verdict([cell("live", 1), cell("restart", 1, runs=0)], **RATIO).verdict is Verdict.NOT_RUN
    assert (
        verdict([cell("live", 1)], kind="spread", measure="jitter_ms", one="live", at_most=2).verdict is Verdict.NOT_RUN
    )
    assert verdict([], kind="proof").verdict is Verdict.NOT_RUN
    assert verdict([], kind="missing", why="nobody looked").told == "nobody looked"


def test_flat_is_most_over_least_and_growth_is_last_over_first() -> None:
    found = [cell("live", x, jitter_ms=y) for x, y in ((1, 10.0), (2, 25.0), (3, 12.0))]
    assert verdict(found, kind="spread", measure="jitter_ms", one="live", at_most=2).value == 2.5
    assert verdict(found, kind="growth", measure="jitter_ms", one="live", at_least=1.1).value == pytest.approx(1.2)
    assert verdict(found, kind="growth", measure="jitter_ms", one="live", at_least=1.1).verdict is Verdict.PASS


def test_what_is_said_of_a_whole_sweep_needs_all_of_its_values() -> None:
    rule = Rule(name="r", kind="spread", experiment="e", measure="jitter_ms", one="live", at_most=2)
    found = [cell("live", x, jitter_ms=10.0) for x in (1, 2)]
    (part,) = check.check([rule], found, {"e": 3})
    assert (part.verdict, part.told) == (Verdict.NOT_RUN, "2 of 3 values")
    (whole,) = check.check([rule], found, {"e": 2})
    assert whole.verdict is Verdict.PASS


def test_the_goal_is_near_the_best_in_each_phase_and_never_the_worst() -> None:
    goal = {"kind": "goal", "one": "adaptive", "weights": {"jitter_ms": 1, "duration_ms": 1}, "at_most": 1.25}

    def phase(x, adaptive, fast, smooth):
        named = {"adaptive": adaptive, "fast": fast, "smooth": smooth}
        return [cell(name, x, jitter_ms=jitter, duration_ms=ms) for name, (jitter, ms) in named.items()]

    near = phase(0, (100.0, 120.0), (200.0, 100.0), (100.0, 300.0))
    assert verdict(near, **goal).verdict is Verdict.PASS
    assert verdict(near + phase(1, (100.0, 250.0), (120.0, 100.0), (100.0, 300.0)), **goal).verdict is Verdict.FAIL
    worst = verdict(near + phase(1, (100.0, 300.0), (120.0, 100.0), (100.0, 290.0)), **goal)
    assert (worst.verdict, "worst" in worst.told) == (Verdict.FAIL, True)


def test_the_most_of_what_was_found_of_any_variant_counts() -> None:
    most = {"kind": "most", "measure": "duration_error", "at_most": 0.25}
    found = [
        cell("live", 1, duration_error=0.1),
        cell("pause", 1, duration_error=0.3),
        cell("x", 1, duration_error=None),
    ]
    assert (verdict(found, **most).verdict, verdict(found, **most).value) == (Verdict.FAIL, 0.3)
    assert verdict(found[:1], **most).verdict is Verdict.PASS
    assert verdict(found[2:], **most).verdict is Verdict.NOT_RUN


def test_a_proof_fails_by_any_cell_but_not_by_what_its_mechanism_declares() -> None:
    assert verdict([cell("live", 1)], kind="proof").verdict is Verdict.PASS
    assert verdict([cell("live", 1), cell("live", 2, lost=1)], kind="proof").verdict is Verdict.FAIL
    assert verdict([cell("live", 1, rows_out=0)], kind="proof").verdict is Verdict.FAIL
    unordered = cell("live-unordered", 1, mechanism="live-unordered", out_of_order=3)
    assert verdict([unordered], kind="proof").verdict is Verdict.PASS
    assert verdict([unordered | {"lost": 1}], kind="proof").verdict is Verdict.FAIL


def test_what_is_expected_names_experiments_variants_and_values_that_there_are() -> None:
    known = load_all()
    for rule in check.load():
        if rule.kind in ("proof", "missing"):
            continue
        definition = known[rule.experiment]
        names = {each.name for each in variants_of(definition)}
        assert {rule.one, rule.other} - {""} <= names
        assert rule.x is None or rule.x in {each.x for each in cells(definition, "quick")}
        assert rule.kind == "goal" or rule.measure in (*MEASURES, "duration_error", "bytes_error")


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ('[[rules]]\nname = "a"\nkind = "guess"\n', "kind 'guess'"),
        ('[[rules]]\nname = "a"\nkind = "ratio"\n', "has no bound"),
        ('[[rules]]\nname = "a"\nkind = "ratio"\nat_leest = 3\n', "at_leest"),
        ("rules = 3", "rules"),
    ],
)
def test_a_mistake_in_what_is_expected_is_told(tmp_path: Path, text: str, told: str) -> None:
    path = tmp_path / "expected.toml"
    path.write_text(text)
    with pytest.raises(ConfigurationError, match=told):
        check.load(path)
