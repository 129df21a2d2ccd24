"""One TOML file becomes one frozen configuration.

The sites are names on one machine, with a router process each; latency, bandwidth and loss of their links are emulated.
No key says where a site is, or which Spark cluster it has.

A file is validated whole when it is loaded: every mistake is found, each with its place, and they are raised together.
What a key may hold is written once, in the tables below, and its default once, in the settings' fields. Nothing here
acts on a configuration.

    [topology]                    [sites.edge1]                     [[links]]   # instead of parents: a general graph
    root = "cloud"                parent = "cloud"                  a = "edge1"
    [mobility]                    latency_ms = 20                   b = "cloud"
    dwell_ms = 5000               bandwidth_mbps = 100              latency_ms = 20
                                  loss = 0.01                       bandwidth_mbps = 100
                                  hosts = ["h1", "h2"]
                                  runner = "continuous"
"""

import difflib
import math
import sys
import tomllib
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeAlias, get_args

from peregrine.core.graph import cycles, unreachable
from peregrine.core.topology import NAME, Edge, Link, Topology
from peregrine.errors import ConfigurationError, UnknownName
from peregrine.types import Runner, SiteId

RUNNERS = get_args(Runner)


@dataclass(frozen=True, slots=True)
class MobilitySettings:
    dwell_ms: int = 5000  # how long a source stays at an edge before its keys follow it there


@dataclass(frozen=True, slots=True)
class MigrationSettings:
    caught_up_lag_rows: int = 0  # a host that is at most this far behind its log has caught up
    mechanism: str = "live"
    chunks: int = 1


@dataclass(frozen=True, slots=True)
class BatchSettings:
    trigger_ms: int = 0  # how often a batch begins; 0: as soon as the one before it has ended


@dataclass(frozen=True, slots=True)
class Limits:
    host_lag_rows: int = 100_000  # a router pushes back when its host is further behind


@dataclass(frozen=True, slots=True)
class Config:
    topology: Topology
    runners: Mapping[SiteId, Runner] = field(default_factory=dict)  # of sites whose hosts do not run in micro-batches
    mobility: MobilitySettings = MobilitySettings()
    migration: MigrationSettings = MigrationSettings()
    limits: Limits = Limits()
    batches: BatchSettings = BatchSettings()


def load(path: str | Path, mechanisms: Collection[str] = ()) -> Config:
    """The configuration in a file. Where `mechanisms` are given, the file may name no other."""
    try:
        text = Path(path).read_bytes().decode("utf-8-sig")
    except OSError as error:
        raise ConfigurationError(f"{path}: cannot be read: {error.strerror}", "name a file that exists") from error
    except UnicodeDecodeError as error:
        raise ConfigurationError(f"{path}: is not UTF-8 text: {error}", "save the file as UTF-8") from error
    return parse(text, str(path), mechanisms)


def parse(text: str, name: str = "<config>", mechanisms: Collection[str] = ()) -> Config:
    """The configuration in a text; `name` stands for the file in the list of mistakes."""
    try:
        document = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise ConfigurationError(f"{name}: is not TOML: {error}", "correct the line that it names") from error
    reading = _Reading(name)
    sections = reading.sections(document)
    topology = _topology(reading, sections)
    tables = {site: table for site, table in sections.get("sites", {}).items() if isinstance(table, dict)}
    runners = {SiteId(site): table["runner"] for site, table in tables.items() if "runner" in table}
    mobility = reading.table("[mobility]", sections.get("mobility", {}), _MOBILITY)
    migration = reading.table("[migration]", sections.get("migration", {}), _MIGRATION)
    limits = reading.table("[limits]", sections.get("limits", {}), _LIMITS)
    batches = reading.table("[batches]", sections.get("batches", {}), _BATCHES)
    mechanism = migration.get("mechanism")
    if mechanism is not None and mechanisms and mechanism not in mechanisms:
        reading.mistake("[migration]", "mechanism", _unknown("mechanism", mechanism, mechanisms))
    reading.finish()
    assert topology is not None, "a topology is absent only where a mistake was found"
    return Config(
        topology,
        runners,
        MobilitySettings(**mobility),
        MigrationSettings(**migration),
        Limits(**limits),
        BatchSettings(**batches),
    )


# What a key may hold. A check answers with the problem, or with None.

Check: TypeAlias = Callable[[object], str | None]


def _whole(least: int) -> Check:
    def check(value: object) -> str | None:
        if not isinstance(value, int) or isinstance(value, bool):
            return f"must be a whole number, not {value!r}"
        return None if value >= least else f"must be at least {least}, not {value}"

    return check


def _amount(value: object) -> str | None:
    if not isinstance(value, int | float) or isinstance(value, bool):
        return f"must be a number, not {value!r}"
    return None if 0 <= value <= sys.float_info.max else f"must be finite and at least 0, not {value}"


def _bandwidth(value: object) -> str | None:
    if value == math.inf:
        return None  # a link without a limit
    return _amount(value) or (None if value else f"must be above 0, not {value}")


def _share(value: object) -> str | None:
    if isinstance(value, int | float) and value >= 1:
        return f"must be below 1, not {value}"
    return _amount(value)


def _name(value: object) -> str | None:
    if not isinstance(value, str):
        return f"must be a name in quotes, not {value!r}"
    if not NAME.fullmatch(value):
        return f"is not a name: {value!r}; use at least one character, and no '/', ',' or white space"
    return None


def _names(value: object) -> str | None:
    if not isinstance(value, list):
        return f"must be a list of names, not {value!r}"
    problems = [problem for problem in map(_name, value) if problem]
    if problems:
        return problems[0]
    twice = [name for name, count in Counter(value).items() if count > 1]
    return f"names {twice[0]!r} twice" if twice else None


def _runner(value: object) -> str | None:
    return None if value in RUNNERS else f"must be {' or '.join(map(repr, RUNNERS))}, not {value!r}"


def check_runner(runner: str) -> None:
    if runner not in RUNNERS:
        raise UnknownName("runner", runner, list(RUNNERS))


_TOPOLOGY: Mapping[str, Check] = {"root": _name}
_LINK: Mapping[str, Check] = {
    "latency_ms": _amount,
    "bandwidth_mbps": _bandwidth,
    "price_per_gb": _amount,
    "loss": _share,
}
_LINK_NEEDS = ("latency_ms", "bandwidth_mbps")
_SITE: Mapping[str, Check] = {"parent": _name, "hosts": _names, "cpu_price": _amount, "runner": _runner, **_LINK}
_GRAPH_LINK: Mapping[str, Check] = {"a": _name, "b": _name, **_LINK}
_MOBILITY: Mapping[str, Check] = {"dwell_ms": _whole(0)}
_MIGRATION: Mapping[str, Check] = {"caught_up_lag_rows": _whole(0), "mechanism": _name, "chunks": _whole(1)}
_LIMITS: Mapping[str, Check] = {"host_lag_rows": _whole(1)}
_BATCHES: Mapping[str, Check] = {"trigger_ms": _whole(0)}
_SECTIONS = ("topology", "sites", "links", "mobility", "migration", "limits", "batches")


@dataclass(slots=True)
class _Reading:
    """One pass over one file, with the mistakes found so far."""

    name: str
    mistakes: list[str] = field(default_factory=list)

    def mistake(self, section: str, key: str, problem: str) -> None:
        place = " ".join(part for part in (section, key) if part)
        self.mistakes.append(f"{self.name}: {place}: {problem}")

    def sections(self, document: Mapping[str, Any]) -> dict[str, Any]:
        """The sections that exist and have the right form."""
        good = {}
        for section, content in document.items():
            form, wanted = (list, "[[links]]") if section == "links" else (dict, f"[{section}]")
            if section not in _SECTIONS:
                place = f"[{section}]" if isinstance(content, dict) else section
                self.mistake(place, "", _unknown("section", section, _SECTIONS))
            elif not isinstance(content, form):
                self.mistake(section, "", f"must be a section, written {wanted}")
            else:
                good[section] = content
        return good

    def table(
        self, section: str, content: object, checks: Mapping[str, Check], needs: Iterable[str] = ()
    ) -> dict[str, Any]:
        """The values without a mistake."""
        if not isinstance(content, dict):
            self.mistake(section, "", f"must be a section, not {content!r}")
            return {}
        good = {}
        for key, value in content.items():
            if key not in checks:
                self.mistake(section, key, _unknown("key", key, checks))
            elif problem := checks[key](value):
                self.mistake(section, key, problem)
            else:
                good[key] = value
        for key in needs:
            if key not in content:
                self.mistake(section, key, "is missing")
        return good

    def finish(self) -> None:
        if self.mistakes:
            raise ConfigurationError("\n".join(self.mistakes), f"correct {self.name} and load it again")


def _topology(reading: _Reading, sections: Mapping[str, Any]) -> Topology | None:
    """The topology, or None after a mistake."""
    before = len(reading.mistakes)
    root = reading.table("[topology]", sections.get("topology", {}), _TOPOLOGY, needs=("root",)).get("root")
    tables: dict[str, Any] = sections.get("sites", {})
    for name in tables:
        if problem := _name(name):
            reading.mistake(f"[sites.{name!r}]", "", problem)
    sites = {SiteId(name): reading.table(_at(name), table, _SITE) for name, table in tables.items()}
    sites = {site: values for site, values in sites.items() if isinstance(tables[site], dict)}
    hosts = {site: tuple(values["hosts"]) for site, values in sites.items() if "hosts" in values}
    prices = {site: values["cpu_price"] for site, values in sites.items() if "cpu_price" in values}
    if "links" in sections:
        edges = _edges(reading, sections["links"], root, sites)
        if len(reading.mistakes) == before:
            return Topology.from_graph(SiteId(str(root)), edges, hosts, prices)
    else:
        parents = _parents(reading, root, sites, tables)
        if len(reading.mistakes) == before:
            return Topology.tree(SiteId(str(root)), parents, hosts, prices)
    return None


def _parents(
    reading: _Reading, root: str | None, sites: Mapping[SiteId, dict[str, Any]], tables: Mapping[str, dict[str, Any]]
) -> dict[SiteId, tuple[SiteId, Link]]:
    """The tree that the sites' parents describe."""
    named = {*sites, *(values["parent"] for values in sites.values() if "parent" in values)}
    if root and sites and root not in named:
        reading.mistake("[topology]", "root", _unknown("site", root, named))
        root = None
    # Without a root nobody can say which site needs no parent, nor which parent need not be described.
    known = {*sites, root} if root else named
    parents = {}
    for site, values in sites.items():
        if site == root:
            for key in sorted(values.keys() & {"parent", *_LINK}):
                reading.mistake(_at(site), key, "the root has no link to a parent")
            continue
        missing = [key for key in ("parent", *_LINK_NEEDS) if key not in tables[site]]
        for key in missing if root else ():
            reading.mistake(_at(site), key, "is missing")
        parent = values.get("parent")
        if parent == site:
            reading.mistake(_at(site), "parent", "a site is not its own parent")
        elif parent is not None and parent not in known:
            reading.mistake(_at(site), "parent", _unknown("site", parent, known))
        elif parent is not None:
            parents[site] = SiteId(parent)
    for ring in cycles(parents):
        reading.mistake(_at(ring[0]), "parent", f"the parents form a cycle: {' -> '.join((*ring, ring[0]))}")
    return {site: (parent, _link(sites[site])) for site, parent in parents.items() if _complete(sites[site])}


def _edges(reading: _Reading, links: list[Any], root: str | None, sites: Mapping[SiteId, dict[str, Any]]) -> list[Edge]:
    """The graph that the links describe."""
    for site, values in sites.items():
        for key in sorted(values.keys() & {"parent", *_LINK}):
            reading.mistake(_at(site), key, "a file with [[links]] describes every link there")
    edges: list[Edge] = []
    first: dict[SiteId, str] = {}
    pairs: dict[frozenset[str], str] = {}
    for number, content in enumerate(links, start=1):
        section = f"[[links]] #{number}"
        values = reading.table(section, content, _GRAPH_LINK, needs=("a", "b", *_LINK_NEEDS))
        if "a" not in values or "b" not in values:
            continue
        a, b = SiteId(values["a"]), SiteId(values["b"])
        if a == b:
            reading.mistake(section, "b", f"the link joins {a!r} to itself")
        elif before := pairs.get(frozenset((a, b))):
            reading.mistake(section, "b", f"{a!r} and {b!r} are linked already by {before}")
        else:
            pairs[frozenset((a, b))] = section
            first.setdefault(a, f"{section} a")
            first.setdefault(b, f"{section} b")
            if _complete(values):
                edges.append((a, b, _link(values)))
    if root and first and root not in first:
        reading.mistake("[topology]", "root", _unknown("site", root, first))
    elif root and len(edges) == len(links):
        for site in unreachable(SiteId(root), edges):
            reading.mistake(first[site], "", f"no path leads from {site!r} to the root {root!r}")
        for site in sorted(sites.keys() - {root, *first}):
            reading.mistake(_at(site), "", "no link leads to this site")
    return edges


def _complete(values: Mapping[str, Any]) -> bool:
    return all(key in values for key in _LINK_NEEDS)


def _link(values: Mapping[str, Any]) -> Link:
    return Link(**{key: float(values[key]) for key in _LINK if key in values})


def _at(site: str) -> str:
    return f"[sites.{site}]"


def _unknown(kind: str, name: str, known: Iterable[str]) -> str:
    names = sorted(known)
    nearest = difflib.get_close_matches(name, names, 1)
    hint = f"did you mean {nearest[0]!r}?" if nearest else f"known are {', '.join(names[:20])}"
    return f"unknown {kind} {name!r}; {hint}"
