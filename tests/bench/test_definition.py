from pathlib import Path

import pytest
from made_cells import TEXT, definition

from peregrine.bench.engine.analysis import REFERENCES
from peregrine.bench.engine.applications import APPLICATIONS
from peregrine.bench.engine.definition import BY_STRATEGY, SIZES, Cell, cells, load, load_all, variants_of
from peregrine.core.mechanisms import MECHANISMS
from peregrine.errors import ConfigurationError

ALL = load_all()


@pytest.mark.parametrize("name", ALL)
def test_every_experiment_stands_for_cells_that_differ(name: str) -> None:
    for size in SIZES:
        found = cells(ALL[name], size)
        assert found
        assert len({cell.digest for cell in found}) == len(found)


@pytest.mark.parametrize("name", ALL)
def test_every_experiment_says_what_it_shows_and_what_the_paper_has(name: str) -> None:
    found = ALL[name]
    assert found.shows and found.expect
    assert found.figure.startswith(
        ("Falcon, ", "Spacker, ", "Shepherd, ", "Survey, ", "ISQD, ", "Peregrine's own: ", "no paper: ")
    )


@pytest.mark.parametrize("name", [name for name in ALL if name.startswith(("isqd", "shepherd"))])
def test_what_differs_from_the_paper_is_said_and_its_figures_stand_beside_ours(name: str) -> None:
    assert ALL[name].missing
    assert ALL[name].points or name == "shepherd-10", "its text has no dollars"


@pytest.mark.parametrize("name", ALL)
def test_what_the_paper_says_has_a_place_in_a_picture(name: str) -> None:
    found = ALL[name]
    there = [each for size in SIZES for each in cells(found, size)]
    xs = {None, *(each.x for each in there), *(each.x_label for each in there), *found.extrapolate}
    for point in found.points:
        assert point.measure in found.measures and point.x in xs, point


@pytest.mark.parametrize("name", [name for name in ALL if ALL[name].kind not in ("mechanisms", "peers")])
def test_where_there_is_something_to_compare_one_variant_is_the_reference(name: str) -> None:
    names = [each.name for each in variants_of(ALL[name])]
    assert len(names) == 1 or set(names) & set(REFERENCES)


def test_the_quick_size_is_part_of_what_is_shown_of_the_papers() -> None:
    told = " ".join(each.figure for each in ALL.values())
    for number in (2, 8, 10, 11, 12, 13, 14):
        assert f" {number}" in told
    assert "tables XVII and XVIII" in told and "table II" in told


def test_figure_8_has_all_applications_of_falcon_and_all_mechanisms_that_keep_state() -> None:
    found = cells(ALL["falcon-8"], "quick")
    assert {cell.setting.app for cell in found} == {"tm", "q5", "q6", "q7", "q8", "toll", "accident"}
    assert {cell.setting.mechanism for cell in found} == set(MECHANISMS) - {"drain", "shed"}


def test_a_sweep_sets_its_setting_and_nothing_else(tmp_path: Path) -> None:
    made = cells(definition(tmp_path), "full")
    assert [(cell.variant, cell.x, cell.repetition) for cell in made] == [
        (variant, x, repetition) for x in (20, 320) for variant in ("live", "restart") for repetition in (0, 1)
    ]
    assert {cell.setting.round_trip_ms for cell in made} == {20, 320}
    assert {cell.setting.rows_per_s for cell in made} == {1500}


def test_a_sweep_may_lead_into_the_parameters_and_the_feed(tmp_path: Path) -> None:
    text = TEXT.replace('"round_trip_ms"', '"feed.vehicles"').replace(
        "[sweep]", "[base]\nfeed = {vehicles = 3}\n[sweep]"
    )
    assert [cell.setting.feed for cell in cells(definition(tmp_path, text), "quick")][::2] == [
        {"vehicles": 20},
        {"vehicles": 320},
    ]


def test_a_case_sets_several_things_at_once(tmp_path: Path) -> None:
    text = TEXT.replace('"round_trip_ms"', '"case"').replace("[20, 320]", '["near", "far"]') + (
        "[cases]\nnear = {round_trip_ms = 2, feed = {vehicles = 4}}\nfar = {share = 1.0}\n"
    )
    near, _, far, _ = cells(definition(tmp_path, text), "quick")
    assert (near.x_label, near.setting.round_trip_ms, near.setting.feed) == ("near", 2, {"vehicles": 4})
    assert (far.x_label, far.setting.round_trip_ms, far.setting.share) == ("far", 80, 1.0)


def test_the_digest_changes_with_what_a_cell_does_and_with_nothing_else(tmp_path: Path) -> None:
    one = cells(definition(tmp_path), "quick")
    retitled = cells(definition(tmp_path, TEXT.replace("live is flat", "who knows")), "quick")
    other = TEXT.replace("low = 10000", "low = 9").replace("title =", 'missing = "much"\ntitle =')
    quoted = cells(definition(tmp_path, other), "quick")
    slower = cells(definition(tmp_path, TEXT.replace("[sweep]", "[base]\nrows_per_s = 100\n[sweep]")), "quick")
    assert [cell.digest for cell in one] == [cell.digest for cell in retitled] == [cell.digest for cell in quoted]
    assert not {cell.digest for cell in one} & {cell.digest for cell in slower}


def test_replicas_and_chunks_come_with_the_mechanism_that_needs_them(tmp_path: Path) -> None:
    text = TEXT.replace('["live", "restart"]', '["live", "replica", "progressive", "restart"]')
    found = {cell.variant: cell.setting.strategy for cell in cells(definition(tmp_path, text), "quick")}
    assert found == {
        "live": "by-arrival",
        "replica": "by-arrival, ratio:1",
        "progressive": "by-arrival, chunks:4",
        "restart": "by-arrival",
    }


def test_a_variant_may_be_left_out_where_it_takes_too_long(tmp_path: Path) -> None:
    text = TEXT.replace(
        "values = [20, 320]\n", 'values = [20, 320]\nwithout = [{variants = ["restart"], values = [320]}]\n', 1
    )
    assert [(cell.variant, cell.x) for cell in cells(definition(tmp_path, text), "quick")] == [
        ("live", 20),
        ("restart", 20),
        ("live", 320),
    ]


@pytest.mark.parametrize(
    ("wrong", "right", "told"),
    [
        ('"restart"]', '"restort"]', "unknown mechanism in made.toml 'restort'"),
        ('measures = ["jitter_ms"]', 'measures = ["jitter"]', "unknown measure in made.toml 'jitter'"),
        (
            "values = [20, 320]",
            'values = [20, 320]\nwithout = [{variants = ["pause"], values = [20]}]',
            "unknown variant in made.toml 'pause'",
        ),
        ('variant = "restart"', 'variant = "pause"', "unknown variant in made.toml 'pause'"),
        ("title =", "titel =", "made.toml: Object contains unknown field `titel`"),
        ("values = [20, 320]", "values = []", "made.toml: [quick] has no values"),
        ('"round_trip_ms"', '"round_trip"', "made.toml: [quick] with sweep 'round_trip'"),
        ("[20, 320]", "[-20, 320]", "made.toml: [quick] with sweep 'round_trip_ms'"),
        ('"round_trip_ms"', '"feed.cars"', "made.toml: readings has no feed 'cars'"),
        ('"round_trip_ms"', '"app"', "Expected `str`, got `int`"),
        ("repetitions = 2", "repetitions = 0", "Expected `int` >= 1"),
        ("[sweep]", '[base]\nstrategy = "warm-first"\n[sweep]', "unknown strategy 'warm-first'"),
        ("[sweep]", "[sweep", "made.toml"),
    ],
)
def test_a_mistake_is_told_with_its_place(tmp_path: Path, wrong: str, right: str, told: str) -> None:
    with pytest.raises(ConfigurationError) as found:
        definition(tmp_path, TEXT.replace(wrong, right, 1))
    assert told in str(found.value)


def test_a_file_that_is_not_there_is_told(tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError):
        load(tmp_path / "nothing.toml")


@pytest.mark.parametrize("name", APPLICATIONS)
def test_the_rows_of_an_application_go_on_second_after_second(name: str) -> None:
    application = APPLICATIONS[name]
    first, second = (application.slice(nth, 100, 2, 5000, {}) for nth in (0, 1))
    assert set(first) == set(application.streams)
    for stream in application.streams:
        assert first[stream].schema == second[stream].schema
        assert max(first[stream]["sent_us"].to_pylist(), default=0) < 1_000_000
        assert all(1_000_000 <= at < 2_000_000 for at in second[stream]["sent_us"].to_pylist())


def test_adaptive_is_a_variant_without_a_mechanism_of_its_own() -> None:
    adaptive = next(each for each in variants_of(ALL["spacker-8"]) if each.name == "adaptive")
    assert adaptive.mechanism == BY_STRATEGY
    assert isinstance(cells(ALL["spacker-8"], "quick")[0], Cell)
