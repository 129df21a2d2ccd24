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


def test_the_least_of_a_line_is_judged_in_what_the_rule_says() -> None:
    rule = {"kind": "least", "measure": "freeze_ms", "one": "live", "at_least": 2, "per": 1000}
    found = [cell("live", 1, freeze_ms=2500.0), cell("live", 2, freeze_ms=1500.0), cell("other", 1, freeze_ms=1.0)]
    assert (verdict(found, **rule).verdict, verdict(found, **rule).value) == (Verdict.FAIL, 1.5)
    assert (verdict(found, **rule, x=1).verdict, verdict(found, **rule, x="1").value) == (Verdict.PASS, 2.5)
    assert verdict(found, **rule, x=3).verdict is Verdict.NOT_RUN


def test_a_rule_of_one_size_says_nothing_of_the_other() -> None:
    found = [cell("live", 1, disruption_ms=9.0, size="quick"), cell("restart", 1, disruption_ms=10.0, size="quick")]
    assert verdict(found, **RATIO).verdict is Verdict.FAIL
    assert verdict(found, **RATIO, size="quick").verdict is Verdict.FAIL
    other = verdict(found, **RATIO, size="full")
    assert (other.verdict, other.told) == (Verdict.NOT_RUN, "of the full size only")


def test_what_must_be_of_one_run_is_not_judged_across_two() -> None:
    def of_runs(*machines):
        names = ("live", "restart")
        return [cell(name, 1, machines=[each]) for name, each in zip(names, machines, strict=True)]

    assert verdict(of_runs("a", "a"), **RATIO, same_run=True).verdict is Verdict.FAIL
    assert verdict(of_runs("a", "b"), **RATIO).verdict is Verdict.FAIL
    assert verdict(of_runs("a", "b"), **RATIO, same_run=True).verdict is Verdict.NOT_RUN


def failed(variant, x, **figures):
    return cell(variant, x, runs=0, failed="no Java") | dict.fromkeys(MEASURES) | figures


def test_what_is_said_of_a_cell_that_failed_does_not_hold() -> None:
    found = [cell("live", 1), cell("restart", 1, disruption_ms=900.0), failed("restart", 2)]
    everywhere = verdict(found, **RATIO)
    assert (everywhere.verdict, everywhere.told) == (Verdict.FAIL, "e: restart, 2: no Java")
    assert verdict(found, **RATIO, x=1).verdict is Verdict.PASS
    assert verdict(found, **(RATIO | {"one": "pause"})).verdict is Verdict.NOT_RUN, "of another variant"
    assert verdict([failed("warm", 1)], kind="most", measure="dip", at_most=1).verdict is Verdict.FAIL
    goal = {"kind": "goal", "one": "adaptive", "weights": {"jitter_ms": 1}, "at_most": 1.25}
    assert verdict([cell("adaptive", 0), failed("fast", 0)], **goal).verdict is Verdict.FAIL
    proof = verdict(found, kind="proof")
    assert (proof.verdict, proof.told) == (Verdict.FAIL, "e: restart, 2: no Java")


def test_one_repetition_that_failed_is_not_hidden_by_the_others() -> None:
    found = [cell("live", 1, disruption_ms=1.0, failed="a plan was aborted"), cell("restart", 1, disruption_ms=900.0)]
    assert verdict(found, **RATIO).verdict is Verdict.FAIL
    assert "a plan was aborted" in verdict(found, kind="proof").told


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


def test_the_least_of_a_whole_sweep_needs_it_whole_and_of_one_value_only_this() -> None:
    rule = {"kind": "least", "experiment": "e", "measure": "carried_out", "one": "live", "at_least": 1}
    found = [cell("live", 1, carried_out=1.0)]
    whole, one = check.check([Rule(name="r", **rule), Rule(name="r", **rule, x=1)], found, {"e": 2})
    assert (whole.verdict, whole.told, one.verdict) == (Verdict.NOT_RUN, "1 of 2 values", Verdict.PASS)


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
    told = verdict([cell("live", 2, lost=1, violations=3)], kind="proof").told
    assert told == "e: live, 2: lost 1, violations 3"
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
        there = cells(definition, rule.size or "quick")
        assert rule.x is None or rule.x in {x for each in there for x in (each.x, each.x_label)}
        assert rule.kind == "goal" or rule.measure in (*MEASURES, *check.UNDRAWN)


def test_forty_trains_thirty_two_edges_and_eight_stations_have_rules() -> None:
    """Of issue 6: what its experiments must hold, and where."""
    known = load_all()
    rules = [rule for rule in check.load() if rule.experiment in ("isqd-10", "isqd-10b", "isqd-shapes", "falcon-9")]
    forty = [rule for rule in rules if (rule.experiment, rule.size, rule.x) == ("isqd-10", "full", 0.1)]
    assert {rule.measure for rule in forty} == {"deployment_ms", "event_time_ms", "carried_out", "freeze_ms"}
    (cell_of, *_) = [each for each in cells(known["isqd-10"], "full") if each.x == 0.1]
    said = cell_of.setting
    assert (said.trains, said.apps, said.changes_s, said.change_every_s) == (40, 10, 120, 0.1)
    assert ("isqd-10b", 0.25) in {(rule.experiment, rule.x) for rule in rules}
    assert ("isqd-shapes", None) in {(rule.experiment, rule.x) for rule in rules}
    assert ("falcon-9", "full", "32 edges") in {(rule.experiment, rule.size, rule.x) for rule in rules}
    for size in ("quick", "full"):
        assert {each.setting.edges for each in cells(known["isqd-shapes"], size)} >= {8}


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ('[[rules]]\nname = "a"\nkind = "guess"\n', "kind 'guess'"),
        ('[[rules]]\nname = "a"\nkind = "ratio"\n', "has no bound"),
        ('[[rules]]\nname = "a"\nkind = "ratio"\nat_leest = 3\n', "at_leest"),
        ('[[rules]]\nname = "a"\nkind = "least"\n', "has no bound"),
        ('[[rules]]\nname = "a"\nkind = "ratio"\nat_least = 3\nsize = "huge"\n', "huge"),
        ("rules = 3", "rules"),
    ],
)
def test_a_mistake_in_what_is_expected_is_told(tmp_path: Path, text: str, told: str) -> None:
    path = tmp_path / "expected.toml"
    path.write_text(text)
    with pytest.raises(ConfigurationError, match=told):
        check.load(path)
