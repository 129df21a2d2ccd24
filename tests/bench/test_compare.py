import math
from pathlib import Path

import pytest

from peregrine.bench import compare


def test_equal_runs_have_the_ratio_one_and_no_interval() -> None:
    (found,) = compare.compare([({"a": 2.0}, {"a": 2.0})] * 3)
    assert (found.ratio, found.low, found.high) == (1.0, 1.0, 1.0)


def test_what_is_slower_here_is_above_one_with_an_interval_around_it() -> None:
    (found,) = compare.compare([({"a": 1.0}, {"a": 1.1}), ({"a": 2.0}, {"a": 2.6}), ({"a": 1.0}, {"a": 1.2})])
    assert found.low < found.ratio < found.high
    assert found.ratio == pytest.approx((1.1 * 1.3 * 1.2) ** (1 / 3))
    spread = math.log(found.high / found.ratio)
    assert spread == pytest.approx(math.log(found.ratio / found.low))


def test_one_pair_says_nothing_of_how_sure_it_is() -> None:
    (found,) = compare.compare([({"a": 1.0}, {"a": 1.5})])
    assert found.high == math.inf


def test_what_only_one_tree_measures_is_not_compared() -> None:
    assert [each.what for each in compare.compare([({"a": 1.0}, {"a": 1.0, "b": 3.0})])] == ["a"]


def test_rates_are_turned_round_so_that_more_is_worse() -> None:
    slow = compare.throughput(compare.Run({"rows_per_s": {"10": 1e5}, "proofs": {"10 keys": {"rows_out": 2e6}}}, 4.0))
    fast = compare.throughput(compare.Run({"rows_per_s": {"10": 2e5}, "proofs": {"10 keys": {"rows_out": 2e6}}}, 2.0))
    assert slow == {"throughput: µs a row, 10 keys": 10.0, "throughput: CPU s a million rows": 2.0}
    assert all(fast[name] == value / 2 for name, value in slow.items())


def test_a_process_counts_with_what_it_started() -> None:
    busy = "import time\nwhile time.process_time() < 0.3: pass"
    words = ("-c", f"import subprocess, sys, json; subprocess.run([sys.executable, '-c', {busy!r}]); print('{{}}')")
    assert compare.run(words, Path.cwd()).cpu_s >= 0.3
