"""A file becomes one frozen configuration, or one error with every mistake in its place."""

from dataclasses import FrozenInstanceError
from pathlib import Path

import pytest

from peregrine.config import BatchSettings, Config, Limits, MigrationSettings, MobilitySettings, load, parse
from peregrine.core.topology import Link, Topology
from peregrine.errors import ConfigurationError
from peregrine.types import SiteId

TREE = """
[topology]
root = "cloud"

[sites.cloud]
hosts = ["h1", "h2"]
cpu_price = 0.04

[sites.edge1]
parent = "cloud"
latency_ms = 20
bandwidth_mbps = 100
price_per_gb = 0.09
"""

GRAPH = """
[topology]
root = "cloud"

[sites.edge]
hosts = ["h1"]

[[links]]
a = "edge"
b = "cloud"
latency_ms = 50
bandwidth_mbps = 10

[[links]]
a = "edge"
b = "region"
latency_ms = 10
bandwidth_mbps = 10

[[links]]
a = "region"
b = "cloud"
latency_ms = 7
bandwidth_mbps = inf
"""


def mistakes(text: str, **options: tuple[str, ...]) -> list[str]:
    with pytest.raises(ConfigurationError) as raised:
        parse(text, "p.toml", **options)
    return raised.value.what.splitlines()


def test_sites_with_parents_become_a_tree() -> None:
    cloud, edge = SiteId("cloud"), SiteId("edge1")
    assert parse(TREE).topology == Topology.tree(
        cloud, {edge: (cloud, Link(20, 100, 0.09))}, {cloud: ("h1", "h2")}, {cloud: 0.04}
    )


def test_links_become_the_tree_of_the_cheapest_paths() -> None:
    topology = parse(GRAPH).topology
    assert topology.parent(SiteId("edge")) == "region"
    assert topology.places(SiteId("edge")) == ("edge/h1",)
    assert len(topology.unused) == 1


def test_a_link_may_lose_frames() -> None:
    tree = parse(TREE.replace("latency_ms = 20", "latency_ms = 20\nloss = 0.2")).topology
    assert tree.link(SiteId("edge1")) == Link(20, 100, 0.09, 0.2)


def test_a_root_is_all_that_a_file_needs_and_the_rest_has_defaults() -> None:
    config = parse('[topology]\nroot = "cloud"')
    assert config == Config(Topology.tree(SiteId("cloud")))
    assert config.mobility == MobilitySettings(dwell_ms=5000)
    assert config.migration == MigrationSettings(caught_up_lag_rows=0, mechanism="live", chunks=1)
    assert config.limits == Limits(host_lag_rows=100_000)


def test_what_is_written_replaces_the_defaults() -> None:
    config = parse(
        TREE + '[mobility]\ndwell_ms = 0\n[migration]\nmechanism = "pause"\nchunks = 8\n[limits]\nhost_lag_rows = 5'
        "\n[batches]\ntrigger_ms = 150"
    )
    assert config.mobility == MobilitySettings(dwell_ms=0)
    assert config.migration == MigrationSettings(mechanism="pause", chunks=8)
    assert config.limits == Limits(host_lag_rows=5)
    assert config.batches == BatchSettings(trigger_ms=150)


def test_a_configuration_cannot_be_changed() -> None:
    with pytest.raises(FrozenInstanceError):
        parse(TREE).limits = Limits()  # type: ignore[misc]


def test_every_mistake_is_told_at_once_each_with_its_place() -> None:
    text = """
    [topology]
    root = "cloud"
    [sites.edge1]
    parent = "clowd"
    latency_ms = -1
    bandwidth_mbps = 0
    [mobility]
    dwel_ms = 1
    [migration]
    chunks = 0
    [limit]
    host_lag_rows = 1
    [sites.cloud]
    """
    assert mistakes(text) == [
        "p.toml: [limit]: unknown section 'limit'; did you mean 'limits'?",
        "p.toml: [sites.edge1] latency_ms: must be finite and at least 0, not -1",
        "p.toml: [sites.edge1] bandwidth_mbps: must be above 0, not 0",
        "p.toml: [sites.edge1] parent: unknown site 'clowd'; did you mean 'cloud'?",
        "p.toml: [mobility] dwel_ms: unknown key 'dwel_ms'; did you mean 'dwell_ms'?",
        "p.toml: [migration] chunks: must be at least 1, not 0",
    ]


@pytest.mark.parametrize(
    ("text", "mistake"),
    [
        ("", "[topology] root: is missing"),
        ("[topology]\nroot = 3", "[topology] root: must be a name in quotes, not 3"),
        ('[topology]\nroot = "a b"', "[topology] root: is not a name: 'a b'; use at least one character, and no '/'"),
        ('topology = "cloud"', "topology: must be a section, written [topology]"),
        ('root = "cloud"\n[topology]\nroot = "cloud"', "root: unknown section 'root'; known are batches, limits"),
        (TREE + "[links]\na = 1", "links: must be a section, written [[links]]"),
        (TREE + "[sites]\nx = 3", "[sites.x]: must be a section, not 3"),
        (TREE + '[sites."a/b"]\n', "[sites.'a/b']: is not a name: 'a/b'"),
        (TREE + "[sites.edge2]\n", "[sites.edge2] parent: is missing"),
        (TREE.replace('"h2"', '"h1"'), "[sites.cloud] hosts: names 'h1' twice"),
        (TREE.replace('"h2"', '"h,2"'), "[sites.cloud] hosts: is not a name: 'h,2'"),
        (TREE.replace("[sites.cloud]", "[sites.cloud]\nlatency_ms = 1"), "[sites.cloud] latency_ms: the root has no"),
        (TREE.replace('parent = "cloud"', 'parent = "edge1"'), "[sites.edge1] parent: a site is not its own parent"),
        (TREE.replace("latency_ms = 20", "latency_ms = nan"), "[sites.edge1] latency_ms: must be finite"),
        (TREE.replace("latency_ms = 20", "latency_ms = 1\nloss = 1"), "[sites.edge1] loss: must be below 1, not 1"),
        (TREE.replace("latency_ms = 20", "latency_ms = 1\nloss = -1"), "[sites.edge1] loss: must be finite"),
        (TREE.replace("latency_ms = 20", "latency_ms = true"), "[sites.edge1] latency_ms: must be a number, not True"),
        (TREE.replace("latency_ms = 20", "latency_ms = 1" + "0" * 400), "[sites.edge1] latency_ms: must be finite"),
        (TREE.replace("bandwidth_mbps = 100\n", ""), "[sites.edge1] bandwidth_mbps: is missing"),
        (
            TREE.replace('root = "cloud"', 'root = "clod"'),
            "[topology] root: unknown site 'clod'; did you mean 'cloud'?",
        ),
        (TREE + "[mobility]\ndwell_ms = 1.5", "[mobility] dwell_ms: must be a whole number, not 1.5"),
        (TREE + "[mobility]\ndwell_ms = false", "[mobility] dwell_ms: must be a whole number, not False"),
        (TREE + "[batches]\ntrigger_ms = -1", "[batches] trigger_ms: must be at least 0, not -1"),
        (TREE + "[limits]\nhost_lag_rows = 0", "[limits] host_lag_rows: must be at least 1, not 0"),
        (GRAPH + '[sites.x]\nparent = "cloud"', "[sites.x] parent: a file with [[links]] describes every link there"),
        (
            GRAPH + '[[links]]\na = "x"\nb = "x"\nlatency_ms = 1\nbandwidth_mbps = 1',
            "[[links]] #4 b: the link joins 'x'",
        ),
        (GRAPH + GRAPH[GRAPH.index("[[links]]") :], "[[links]] #4 b: 'edge' and 'cloud' are linked already by"),
        (GRAPH + '[[links]]\na = "x"\nlatency_ms = 1\nbandwidth_mbps = 1', "[[links]] #4 b: is missing"),
        (GRAPH + '[[links]]\na = "x"\nb = "y"\nlatency_ms = 1\nbandwidth_mbps = 1', "[[links]] #4 a: no path leads"),
        (
            GRAPH.replace('root = "cloud"', 'root = "clod"'),
            "[topology] root: unknown site 'clod'; did you mean 'cloud'",
        ),
        (GRAPH + "[sites.alone]\n", "[sites.alone]: no link leads to this site"),
    ],
)
def test_a_mistake_is_told_with_its_place(text: str, mistake: str) -> None:
    assert mistakes(text)[0].startswith(f"p.toml: {mistake}")


def test_a_wrong_root_is_the_only_mistake_that_it_causes() -> None:
    assert len(mistakes(TREE.replace('root = "cloud"', 'root = "clod"'))) == 1


def test_a_cycle_is_told_once_at_its_first_site() -> None:
    link = "latency_ms = 1\nbandwidth_mbps = 1\n"
    text = f'{TREE}[sites.b]\nparent = "a"\n{link}[sites.a]\nparent = "b"\n{link}'
    assert mistakes(text) == ["p.toml: [sites.a] parent: the parents form a cycle: a -> b -> a"]


def test_a_mechanism_that_nobody_has_is_a_mistake_where_the_mechanisms_are_known() -> None:
    text = TREE + '[migration]\nmechanism = "liv"'
    assert parse(text).migration.mechanism == "liv"
    assert mistakes(text, mechanisms=("live", "pause")) == [
        "p.toml: [migration] mechanism: unknown mechanism 'liv'; did you mean 'live'?"
    ]


def test_text_that_is_not_toml_is_told_with_its_line() -> None:
    assert "line 2" in mistakes("[topology]\nroot = cloud")[0]
    assert "is not TOML" in mistakes(TREE + "[sites.edge1]\n")[0]


def test_an_error_says_what_to_do() -> None:
    with pytest.raises(ConfigurationError) as raised:
        parse("", "p.toml")
    assert raised.value.remedy == "correct p.toml and load it again"


def test_a_file_is_loaded_and_named_in_its_mistakes(tmp_path: Path) -> None:
    path = tmp_path / "p.toml"
    path.write_text("\ufeff" + TREE.replace("\n", "\r\n"), encoding="utf-8", newline="")
    assert load(path) == parse(TREE)
    path.write_text("")
    with pytest.raises(ConfigurationError, match="root: is missing") as raised:
        load(str(path))
    assert raised.value.what.startswith(f"{path}: ")


def test_a_file_that_cannot_be_read_is_a_configuration_error(tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError, match="cannot be read"):
        load(tmp_path / "absent.toml")
    (tmp_path / "bytes.toml").write_bytes(b"\xff\xfe\x00")
    with pytest.raises(ConfigurationError, match="is not UTF-8"):
        load(tmp_path / "bytes.toml")


def test_a_site_says_how_its_host_runs() -> None:
    text = TREE.replace("cpu_price = 0.04", 'cpu_price = 0.04\nrunner = "continuous"')
    assert parse(text).runners == {SiteId("cloud"): "continuous"}
    assert mistakes(TREE + 'runner = "fast"') == [
        "p.toml: [sites.edge1] runner: must be 'microbatch' or 'continuous', not 'fast'"
    ]
