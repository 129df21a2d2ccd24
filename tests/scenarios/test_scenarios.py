"""Scenario files that a person can read: above the `---` what is done, below it the story that the run tells.

`UPDATE_SCENARIOS=1 pytest tests/scenarios` writes the stories anew; the difference to review is in the version control.
"""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from peregrine.core.mechanisms import MECHANISMS
from peregrine.errors import ConfigurationError
from peregrine.sim.retelling import retell
from peregrine.sim.script import Script, load, parse

FILES = sorted(Path(__file__).parent.glob("*.txt"))
AT_A_GLANCE_LINES = 50
SEEDS = 3

HEAD = """\
site cloud
site edge1 under cloud, 10 ms
app roam
car1 at edge1 sends 5 rows of car1 every 10 ms from 0
"""


def named(path: Path) -> str:
    return path.stem


@pytest.mark.parametrize("path", FILES, ids=named)
def test_the_run_tells_the_expected_story(path: Path) -> None:
    script = load(path)
    retold = retell(script)
    assert not retold.violations
    if os.environ.get("UPDATE_SCENARIOS"):
        path.write_text(script.head + retold.story)
    else:
        assert retold.story == script.expected, "if it should be so: UPDATE_SCENARIOS=1 pytest tests/scenarios"


@pytest.mark.parametrize("path", FILES, ids=named)
def test_the_outcome_is_right_however_long_things_take(path: Path) -> None:
    """The same script with delays, batches and losses by chance: another story, and no violation."""
    script = load(path)
    assert [retell(script, seed).violations for seed in range(SEEDS)] == [()] * SEEDS


@pytest.mark.parametrize("path", FILES, ids=named)
def test_a_scenario_is_read_at_one_glance(path: Path) -> None:
    assert path.read_text().startswith("# "), "say what it is about in a comment first"
    assert len(path.read_text().splitlines()) <= AT_A_GLANCE_LINES


def test_every_mechanism_has_a_scenario() -> None:
    told = "".join(path.read_text() for path in FILES)
    assert [name for name in MECHANISMS if f"migrate {name} " not in told] == []


def test_a_story_does_not_depend_on_the_order_of_hashes() -> None:
    path = next(path for path in FILES if path.stem == "progressive")
    told = [
        subprocess.run(
            [sys.executable, "-m", "peregrine", "simulate", "--script", str(path)],
            env={**os.environ, "PYTHONHASHSEED": seed},
            capture_output=True,
            text=True,
            check=True,
        ).stdout
        for seed in ("1", "2")
    ]
    assert told == [load(path).expected] * 2


def mistake(text: str) -> ConfigurationError:
    with pytest.raises(ConfigurationError) as raised:
        parse(text, "some.txt")
    return raised.value


@pytest.mark.parametrize(
    ("line", "what", "remedy"),
    [
        ("at 10 explode edge1", "cannot read 'at 10 explode edge1'", "write one of these"),
        ("at 10 migrate live roam/track car1 cloud", "cannot read", "write one of these"),
        ("at 10 migrate warp roam/track car1 cloud -> edge1", "unknown mechanism 'warp'", "pause"),
        ("at 10 migrate live roam/trick car1 cloud -> edge1", "unknown operator 'roam/trick'", "roam/track"),
        ("at 10 migrate live roam/track car1 cloud -> edge9", "unknown site 'edge9'", "edge1"),
        ("at 10 migrate live roam/track car1 cloud -> edge1/h1", "unknown place 'edge1/h1'", "edge1"),
        ("at 10 migrate live roam/track g:99 cloud -> edge1", "group 99", "0 to 7"),
        ("at 10 migrate live roam/track car1 cloud -> edge1 chunks 0", "0 chunks", "one chunk or more"),
        ("at 10 cancel", "unknown plan", "none defined"),
        ("at 10 crash router edge9 for 5", "unknown site 'edge9'", "edge1"),
        ("at 10 crash source car9 for 5", "unknown source 'car9'", "car1"),
        ("at 10 break link cloud for 5", "is the root", "below the root"),
        ("at 10 car9 moves to edge1", "unknown source 'car9'", "car1"),
        ("app win", "a second application", "keep one"),
        ("site edge2 under cloud, 10 ms", "after the application", "all sites first"),
        ("car1 at edge1 sends 5 rows of car1 every 10 ms from 0", "there already", "its own name"),
        ("car2 at edge1 sends 0 rows of car1 every 10 ms from 0", "cannot read", "write one of these"),
    ],
)
def test_a_mistake_is_told_with_its_place_and_a_remedy(line: str, what: str, remedy: str) -> None:
    error = mistake(f"# title\n{HEAD}{line}\n---\n")
    assert error.what.startswith("some.txt, line 6: ")
    assert what in error.what
    assert remedy in error.remedy


def test_a_key_cannot_start_below_its_source() -> None:
    sites = "site cloud\nsite edge1 under cloud, 10 ms\nsite edge2 under cloud, 10 ms\napp roam\n"
    sends, place = "car1 at edge1 sends 5 rows of car1 every 10 ms from 0\n", "place roam/track car1 at edge2\n"
    for text in (sites + sends + place, sites + place + sends):
        error = mistake(text)
        assert error.what.startswith("some.txt, line 6: roam/track at edge2 would not be above car1")


@pytest.mark.parametrize(
    ("text", "what"),
    [
        ("", "line 1: no application yet"),
        ("site cloud\n", "line 2: no application yet"),
        ("app roam\n", "line 1: no site yet"),
        ("site cloud\nsite edge1\n", "line 2: a second root 'edge1'"),
        ("site edge1 under cloud, 10 ms\n", "line 1: unknown site 'cloud'"),
        ("site cloud\napp roam\n", "line 3: nobody sends"),
        ("site cloud\napp cars\n", "line 2: unknown application 'cars'"),
        ("site cloud\napp plain\nm at cloud sends 1 rows of m every 1 ms from 0\nat 5 m moves to cloud\n", "line 4: "),
    ],
)
def test_a_script_must_be_whole(text: str, what: str) -> None:
    assert what in mistake(text).what


def test_spaces_and_comments_do_not_matter() -> None:
    def of(text: str) -> Script:
        return parse(text, "some.txt")

    spaced = HEAD.replace(" at edge1", "   at  edge1") + "\n# nothing\n  \n"
    assert retell(of(spaced + "---\nstory\n")).story == retell(of(HEAD)).story
    assert of(spaced + "---\nstory\n").expected == "story\n"
    assert of(HEAD).head == HEAD + "---\n"
