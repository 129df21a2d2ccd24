"""What a person sees of a run on Spark, and the figures at its end, from a run that is only told."""

import json
import re
from collections.abc import Iterator
from dataclasses import replace
from io import StringIO
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from rich.console import Console

from peregrine.control import view
from peregrine.control.drive import CLOUD, EDGE1, EDGE2, PLAN, Course, Marks
from peregrine.control.figures import Figures, as_dict, figures, show
from peregrine.control.supervisor import Incident
from peregrine.control.watch import Watch
from peregrine.core.keyspace import KeySet
from peregrine.core.messages import Attached, Reached, Report
from peregrine.core.migrate import Migration
from peregrine.core.replication import StateMoved
from peregrine.measure import PHASES
from peregrine.proof import Proof
from peregrine.types import MigrationId, PlaceId, SiteId, SourceId
from peregrine.workloads import tm

COURSE = Course()
README = Path(__file__).parents[2] / "README.md"
FINE = Proof(1000, 1000, 0, 0, 0, 10, ())
WAIT_MS = 100
STEADY_MS, MOVED_MS, DROVE_MS, ENDED_MS = 2_000, 12_000, 20_000, 32_000
STEPS = ("begun", "snapshot", "sent", "restored", "switched", "done")


def migration(id: str, keys: list[str], source: SiteId, target: SiteId) -> Migration:
    return Migration(
        MigrationId(id),
        tm.MOV_AVG,
        KeySet.of_keys(tm.GROUPS, keys),
        PlaceId(source),
        PlaceId(target),
        anchor=target,
        mechanism="live",
        gate=CLOUD,
        store=CLOUD,
    )


MOVES = {
    MOVED_MS: migration(f"{PLAN}.0.0", COURSE.half, CLOUD, EDGE1),
    DROVE_MS: migration("roam0-up.0.0", [COURSE.driver], EDGE1, CLOUD),
    24_000: migration("roam1-down.0.0", [COURSE.driver], CLOUD, EDGE2),
}


class Told:
    """A watch on a clock of its own. Every 100 ms ten rows come out; of what moves, some are late."""

    def __init__(self, late_ms: float = 500.0) -> None:
        self.now_ms = 0.0
        self.watch = Watch(dict.fromkeys(COURSE.cars, CLOUD), now_ms=lambda: self.now_ms)
        self.watch.find = {each.id: each for each in MOVES.values()}.get
        self._late_ms = late_ms

    def run(self) -> Iterator[float]:
        """Step by step, so that a test can look in between."""
        for car in COURSE.cars:
            self.watch.on_news(Attached(EDGE1 if car in COURSE.half else EDGE2, SourceId(car), 0))
        for at_ms in range(0, ENDED_MS, WAIT_MS):
            self.now_ms = float(at_ms)
            self._tell(at_ms)
            self.watch.on_sent(150)
            late = {key for begin, m in MOVES.items() if begin + 200 <= at_ms < begin + 500 for key in m.keys.plus}
            waited = [100.0 + at_ms % 7 + self._late_ms * (car in late) for car in COURSE.cars]
            self.watch.on_results(pa.table({"key": COURSE.cars, "created_ms": [int(at_ms - each) for each in waited]}))
            yield self.now_ms

    def _tell(self, at_ms: int) -> None:
        if at_ms == DROVE_MS:
            self.watch.on_news(Attached(EDGE2, SourceId(COURSE.driver), at_ms))
        for begin_ms, moving in MOVES.items():
            number, rest = divmod(at_ms - begin_ms, 200)
            if rest == 0 and 0 <= number < len(STEPS):
                step = STEPS[number]
                if step in ("snapshot", "sent", "restored"):
                    self.watch.on_news(Reached(EDGE1, moving.id, step))
                else:
                    self.watch.on_news(Report(EDGE1, moving.id, step, StateMoved(39 * (step == "done"))))


def told(late_ms: float = 500.0) -> Watch:
    run = Told(late_ms)
    assert sum(1 for _ in run.run()) == ENDED_MS // WAIT_MS
    return run.watch


def found(watch: Watch, proof: Proof = FINE) -> Figures:
    return figures(COURSE, watch, Marks(0, STEADY_MS, MOVED_MS, DROVE_MS, ENDED_MS), proof)


def printed(what: object, width: int = 100) -> str:
    paper = StringIO()
    Console(file=paper, width=width).print(what)
    return paper.getvalue()


# --- watching ---


def test_keys_belong_to_their_new_place_when_it_says_so() -> None:
    run = Told()
    owners = {now_ms: dict(run.watch.owners) for now_ms in run.run()}
    assert owners[MOVED_MS + 900]["car0"] == CLOUD and owners[MOVED_MS + 1000]["car0"] == EDGE1
    assert {key for key, owner in run.watch.owners.items() if owner == EDGE1} == set(COURSE.half) - {COURSE.driver}
    assert run.watch.owners[COURSE.driver] == run.watch.connected[COURSE.driver] == EDGE2


def test_outputs_are_of_the_keys_that_are_asked_for() -> None:
    watch = told()
    everything, half, rest = watch.outputs(), watch.outputs(COURSE.half), watch.outputs(but=COURSE.half)
    assert len(half) == len(rest) == len(everything) / 2 == watch.rows_out / 2
    assert half.latency_ms.max() > 500 > rest.latency_ms.max()
    assert len(Watch({}).outputs()) == 0


def test_news_that_come_again_after_the_end_change_nothing() -> None:
    watch = told()
    events, owners = list(watch.events), dict(watch.owners)
    watch.on_news(Report(EDGE1, MOVES[MOVED_MS].id, "done"))
    watch.on_news(Report(EDGE1, MigrationId("unknown.0.0"), "done"))
    assert (watch.events, watch.owners) == (events, owners)


def test_what_happens_to_a_process_is_an_event() -> None:
    watch = Watch({})
    watch.on_news(Incident("router edge1", "restarted", "killed"))
    assert [text for _, text in watch.events] == ["router edge1 restarted: killed"]


# --- the picture on a terminal ---


def test_every_phase_is_seen_and_the_picture_keeps_its_size() -> None:
    run = Told()
    pictures = [printed(view.picture(COURSE, run.watch, 80), 80)]
    pictures += [printed(view.picture(COURSE, run.watch, 80), 80) for now_ms in run.run() if now_ms % 200 == 0]
    assert {len(picture.splitlines()) for picture in pictures} == {len(pictures[0].splitlines())}
    assert {len(line) for picture in pictures for line in picture.splitlines()} == {80}
    seen = "\n".join(pictures)
    for phase in PHASES.values():
        assert view.MEANING[phase] in seen
    for text in ("rows in 1,500/s, out 100/s", "p99 of 10 s", "moving car2: edge1 → cloud", "(following car0–car4)"):
        assert text in seen


def test_the_last_bar_is_full_while_rows_are_late() -> None:
    run, looks = Told(late_ms=5000), (11_900, 12_400)
    before, late = (printed(view.picture(COURSE, run.watch, 80), 80) for now_ms in run.run() if now_ms in looks)
    assert before.count("█") == 0 and late.count("█") == 1


def test_without_a_terminal_there_are_lines(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(view, "LINE_S", 0.0)
    watch, paper = told(), StringIO()
    with view.shown(Console(file=paper, width=100), COURSE, watch):
        watch.say("the end")
    lines = paper.getvalue().splitlines()
    for text in ("12.0 s  car0–car4: cloud → edge1  begun", "25.0 s  car2: cloud → edge2  done", "31.9 s  the end"):
        assert any(line.strip() == text for line in lines), text
    assert "\x1b" not in paper.getvalue()


def test_on_a_terminal_the_last_picture_stays() -> None:
    watch, paper = told(), StringIO()
    with view.shown(Console(file=paper, force_terminal=True, width=100, height=40), COURSE, watch):
        pass
    assert "Peregrine on Spark" in paper.getvalue() and "last moved car2: cloud → edge2" in paper.getvalue()


# --- the figures at the end ---


def test_every_reconfiguration_has_its_cost_and_the_other_keys_felt_nothing() -> None:
    costs = found(told()).reconfigurations
    assert [str(each.journey) for each in costs] == [
        "car0–car4: cloud → edge1",
        "car2: edge1 → cloud",
        "car2: cloud → edge2",
    ]
    for each in costs:
        assert each.moved.disruption_ms == 400
        assert each.moved.peak_jitter_ms == pytest.approx(500, abs=10)
        assert each.moved.duration_ms == 1000
        assert each.moved.state_movement_ms == 200
        assert each.moved.bytes_moved == 39
        assert set(each.moved.phases_ms) == set(PHASES.values())
        assert each.others.disruption_ms == 0


def test_the_end_shows_steady_state_costs_and_proof() -> None:
    paper = StringIO()
    show(Console(file=paper, width=80), found(told()))
    text = paper.getvalue()
    assert max(map(len, text.splitlines())) <= 80
    facts = dict(line.rsplit(maxsplit=1) for line in text.splitlines()[-6:])
    assert facts == {
        "rows in": "1,000",
        "rows out": "1,000",
        "lost": "0",
        "repeated": "0",
        "out of order": "0",
        "state": "identical",
    }
    for text_of_row in ("peak latency jitter", "reconfiguration duration", "catch-up", "state movement", "bytes moved"):
        assert text_of_row in text


def test_the_end_says_from_when_on_a_result_is_late() -> None:
    """5 sigma of a calm machine are little: without the threshold nobody can tell what a disruption of 400 ms means."""
    paper = StringIO()
    ended = found(told())
    show(Console(file=paper, width=80), ended)
    line = next(line for line in paper.getvalue().splitlines() if line.startswith("late from (mean + 5 sigma)"))
    assert [float(each) for each in line.split()[-3:]] == [
        round(each.moved.calm.mean_ms + 5 * each.moved.calm.sigma_ms) for each in ended.reconfigurations
    ]
    assert "make\na detour by way of the cloud until its key has followed" in paper.getvalue()


def test_a_proof_that_fails_shows_what_differs() -> None:
    paper = StringIO()
    show(Console(file=paper, width=80), found(told(), replace(FINE, lost=2, states_that_differ=("tm/mov_avg car1",))))
    assert "1 of 10 differ" in paper.getvalue()


def test_the_figures_are_plain_json() -> None:
    read = json.loads(json.dumps(as_dict(found(told()))))
    assert read["proof"]["holds"] is True
    assert read["reconfigurations"][0]["keys"] == COURSE.half
    assert read["reconfigurations"][0]["moved_keys"]["duration_ms"] == 1000
    assert read["steady"]["mean_ms"] == pytest.approx(103, abs=2)


@pytest.mark.parametrize(("suffix", "begins"), [("png", b"\x89PNG"), ("svg", b"<?xml")])
def test_the_picture_is_what_its_name_says(tmp_path: Path, suffix: str, begins: bytes) -> None:
    pytest.importorskip("matplotlib")
    from peregrine.control.picture import draw

    watch, file = told(), tmp_path / f"latency.{suffix}"
    draw(file, watch, found(watch))
    assert file.read_bytes().startswith(begins)


def test_the_picture_shows_late_rows_where_they_are() -> None:
    pytest.importorskip("matplotlib")
    from peregrine.control.picture import _binned

    at_s, median_ms, slowest_ms = _binned(told().outputs(COURSE.half).between(STEADY_MS), STEADY_MS)
    late = at_s[slowest_ms > 300]
    assert late.min() == pytest.approx((MOVED_MS - STEADY_MS) / 1000 + 0.25)
    assert np.all(median_ms <= slowest_ms)


def test_readme_shows_what_is_shown_at_the_end() -> None:
    """The numbers are of one run; what is measured, and that the proof held, is the same in every run. README leaves
    lines out at `...`; whatever it shows is there, in this order.
    """
    paper = StringIO()
    show(Console(file=paper, width=80), found(told()))
    shown = next(block for block in README.read_text("utf-8").split("```") if block.startswith("text\nSteady state"))
    rest = iter(labels(paper.getvalue()))
    assert [label for label in labels(shown.removeprefix("text\n")) if label != "..." and label not in rest] == []
    for fact in ("lost", "repeated", "out of order"):
        assert re.search(rf"^{fact} +0$", shown, re.MULTILINE)


def labels(text: str) -> list[str]:
    """What stands before the first wide gap of each line, but for lines that are set in."""
    return [re.split(r"\s{2,}", line)[0] for line in text.splitlines() if line[:1].strip()]
