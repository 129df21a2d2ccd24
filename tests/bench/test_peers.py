"""The experiment `peers` without the peers: what is skipped, how results are read, proved, and what they amount to."""

import struct
import sys
from pathlib import Path

import numpy as np
import pytest
from made_cells import definition

from peregrine.bench.engine.definition import Cell, Setting, cells, load_all
from peregrine.bench.engine.runner import run
from peregrine.bench.peers import build, catalogue, results
from peregrine.bench.peers import run as running
from peregrine.bench.peers.child import Child
from peregrine.bench.peers.seen import Facts, Seen
from peregrine.errors import ConfigurationError, PeregrineError, UnknownName
from peregrine.measure import Outputs
from peregrine.proof import Proof
from peregrine.workloads import road

KEYS, PER_S = 3, 1000
HOLDS = Proof(rows_in=4, rows_out=4, lost=0, repeated=0, out_of_order=0, states=0, states_that_differ=())
TEXT = """
title = "t"
figure = "f"
shows = "s"
expect = "e"
kind = "peers"
reuse = false
measures = ["max_rows_per_s"]

[sweep]
setting = "rows_per_s"

[quick]
values = [1500]

[full]
values = [1500]

[[variants]]
name = "one"
mechanism = "{}"
"""


def told(number, at_ms, wrong=0.0):
    """A result as a peer's program writes it."""
    averages = results.expected(number + 1, KEYS)
    average = float(averages[number]) + wrong
    return struct.pack("<qqd?", number, int(at_ms * 1e6), average, average > road.LIMIT)


def found(folder, *attempts):
    for nth, records in enumerate(attempts):
        (folder / f"{nth}{results.SUFFIX}").write_bytes(b"".join(records))
    return results.read(folder)


def cell(mechanism="flink-thread/rescale"):
    return Cell("peers", "one", 1500.0, "1,500", 0, Setting(mechanism=mechanism))


# --- what is there, and what is not ---


def test_every_run_of_the_experiment_is_known_and_runs_alone():
    peers = load_all()["peers"]
    named = [each.setting.mechanism for each in cells(peers, "quick")]
    assert sorted(named) == sorted(catalogue.RUNS)
    assert not peers.reuse


def test_a_run_that_no_system_knows_is_refused(tmp_path):
    with pytest.raises(UnknownName, match=r"flink-thread/teleport"):
        definition(tmp_path, TEXT.format("flink-thread/teleport"))


def test_a_mechanism_of_the_core_is_no_run_of_a_peer(tmp_path):
    with pytest.raises(UnknownName, match="'live'"):
        definition(tmp_path, TEXT.format("live"))


def test_what_is_not_built_is_skipped_with_a_line_and_tried_again_the_next_time(tmp_path, monkeypatch):
    monkeypatch.setenv(catalogue.HOME, str(tmp_path / "nowhere"))
    news = []
    for _ in range(2):
        wrong = run(definition(tmp_path, TEXT.format("bytewax/steady")), "quick", tmp_path, say=news.append)
        assert wrong == []
    lines = [each.news for each in news if each.news]
    assert lines == [f"skipped: bytewax is not built in {tmp_path / 'nowhere' / 'bytewax'}: run make peers"] * 2


def test_the_python_of_a_system_that_is_not_built_is_refused(tmp_path, monkeypatch):
    monkeypatch.setenv(catalogue.HOME, str(tmp_path))
    with pytest.raises(ConfigurationError, match="make peers"):
        catalogue.python_of("flink-process")


def test_peregrine_and_spark_need_no_environment_of_their_own():
    assert catalogue.not_built("peregrine") == catalogue.not_built("spark") == ""


def test_a_package_that_cannot_be_installed_is_told_and_leaves_nothing_behind(tmp_path):
    said = []
    built = build.build(tmp_path, said.append, {"bytewax": "peregrine-has-no-such-package"}, ["--no-index"])
    assert built == []
    assert "cannot be installed here, so its runs will be skipped" in said[-1]
    assert not (tmp_path / "bytewax").exists()


def test_what_is_installed_is_not_installed_again(tmp_path):
    (tmp_path / "bytewax").mkdir()
    (tmp_path / "bytewax" / catalogue.STAMP).touch()
    assert build.build(tmp_path, lambda text: None, {"bytewax": "no such package"}) == ["bytewax"]


# --- results ---


def test_the_averages_are_those_of_the_road():
    rows = 50
    lines = road.results(rows, KEYS)
    should = {seq: payload for line in lines.values() for seq, payload in line}
    mine = results.expected(rows, KEYS).tolist()
    assert [road.told(each, each > road.LIMIT) for each in mine] == [should[seq] for seq in range(rows)]


def test_latency_is_from_when_a_row_was_due(tmp_path):
    mine = found(tmp_path, [told(n, 1000 + n + 5) for n in range(4)])
    outputs = mine.outputs(began_ns=1_000_000_000, rows_per_s=PER_S)
    assert outputs.latency_ms.tolist() == [5.0] * 4


def test_results_that_come_again_behind_a_checkpoint_count_once(tmp_path):
    mine = found(tmp_path, [told(n, 10 + n) for n in range(4)], [told(n, 50 + n) for n in range(2, 7)])
    assert (mine.again, len(mine.records)) == (2, 7)
    assert mine.records["emitted_ns"].tolist() == [10e6, 11e6, 12e6, 13e6, 54e6, 55e6, 56e6]
    assert mine.prove(KEYS).holds


def test_a_record_that_was_torn_off_was_never_written(tmp_path):
    mine = found(tmp_path, [told(0, 1), told(1, 2), told(2, 3)[:7]])
    assert mine.records["seq"].tolist() == [0, 1]


def test_no_results_are_an_error(tmp_path):
    with pytest.raises(PeregrineError, match="no results"):
        results.read(tmp_path)


@pytest.mark.parametrize(
    ("records", "fault"),
    [
        ([told(0, 1), told(2, 2)], "lost"),
        ([told(0, 1), told(1, 2, wrong=0.5)], "repeated"),
        ([told(3, 1), told(0, 2), told(1, 3), told(2, 4)], "out_of_order"),
    ],
)
def test_what_is_wrong_with_results_is_found(tmp_path, records, fault):
    proof = found(tmp_path, records).prove(KEYS)
    assert getattr(proof, fault) == 1
    assert not proof.holds


def test_vehicles_may_overtake_each_other(tmp_path):
    assert found(tmp_path, [told(1, 1), told(0, 2), told(2, 3), told(4, 4), told(3, 5)]).prove(KEYS).holds


def test_the_rate_is_that_of_a_stretch(tmp_path):
    mine = found(tmp_path, [told(n, n) for n in range(100)])
    assert mine.rows_per_s(10, 60) == 1000.0


# --- figures ---


def test_what_a_process_saw_is_read_as_it_was_written(tmp_path):
    outputs = Outputs(np.array([1.0, 2.0]), np.array([0.5, 0.25]))
    seen = Seen(Facts(HOLDS, 1.0, 9.0, requested_ms=2.0, ended_ms=3.0, bytes_moved=7), outputs)
    seen.write(tmp_path / "answer.json")
    again = Seen.read(tmp_path / "answer.json")
    assert again.facts == seen.facts
    assert again.outputs is not None
    assert again.outputs.latency_ms.tolist() == [0.5, 0.25]


def test_silence_of_a_stop_and_a_start_counts_as_disruption():
    """As usual 5 ms, then nothing from 1,100 on for 2 s; what waited comes out at once."""
    emitted = np.concatenate([np.arange(0.0, 1100.0), np.full(2000, 3100.0), np.arange(3101.0, 4000.0)])
    latency = np.concatenate([np.tile([4.0, 6.0], 550), np.arange(2000.0, 0.0, -1.0), np.full(899, 5.0)])
    seen = Seen(Facts(HOLDS, 0.0, 4000.0, requested_ms=1000.0, ended_ms=3000.0), Outputs(emitted, latency))
    cost = seen.measured(cell(), 1.0).cost
    assert cost is not None
    assert cost.calm.mean_ms == pytest.approx(5.0)
    assert cost.freeze_ms == pytest.approx(2001.0)
    assert cost.peak_jitter_ms == pytest.approx(1995.0)
    assert cost.disruption_ms == pytest.approx(1991.0)
    assert cost.duration_ms == 2000.0


def test_a_run_in_which_nothing_changes_tells_its_steady_state_and_no_cost():
    outputs = Outputs(np.arange(100.0), np.full(100, 3.0))
    mine = Seen(Facts(HOLDS, 10.0, 90.0), outputs).measured(cell("bytewax/steady"), 1.0)
    assert mine.cost is None
    assert mine.calm is not None
    assert (mine.calm.mean_ms, mine.calm.rows) == (3.0, 80)


def test_a_run_at_saturation_tells_its_rate(tmp_path):
    news = []
    mine = Seen(Facts(HOLDS, 0.0, 1.0, max_rows_per_s=123_456.0)).measured(cell("bytewax/saturated"), 1.0)
    made = definition(tmp_path, TEXT.format("bytewax/saturated"))
    assert run(made, "quick", tmp_path, say=news.append, find=lambda group, first: [mine]) == []
    assert news[-1].news == "123,456 rows/s"


# --- processes ---


def test_a_process_that_fails_is_told_with_its_last_words(monkeypatch):
    monkeypatch.setattr(catalogue, "not_built", lambda system: "")
    (mine,) = running.find([cell("flink-thread/teleport")], True)
    assert mine.failed
    assert "flink-thread/teleport: exit code" in mine.trouble


def test_a_program_is_asked_and_answers_in_lines(tmp_path):
    program = "import sys\nfor line in sys.stdin: print('noise'); print(line, end='', flush=True)"
    child = Child([sys.executable, "-c", program], tmp_path / "log")
    try:
        assert child.ask(parallelism=2) == {"parallelism": 2}
    finally:
        child.end()


def test_a_program_that_ends_instead_of_answering_is_told_with_its_last_words(tmp_path):
    child = Child([sys.executable, "-c", "raise SystemExit('no room')"], tmp_path / "log")
    try:
        with pytest.raises(PeregrineError, match="no room"):
            child.hear()
    finally:
        child.end()


def test_a_program_that_would_go_on_is_ended(tmp_path):
    note = tmp_path / "pid"
    program = f"import os, time; open({str(note)!r}, 'w').write(str(os.getpid())); time.sleep(600)"
    child = Child([sys.executable, "-c", program], tmp_path / "log", answers=False)
    while not (note.exists() and note.read_text()):
        child.check()
    child.end()
    assert not Path(f"/proc/{note.read_text()}").exists()
