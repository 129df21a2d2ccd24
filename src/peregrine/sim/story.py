"""One run told to a person: what there was, what happened when, and whether it came out as it should.

The rule: text of a run is never read as markup, because keys and sites may be called anything.
"""

from collections.abc import Iterable

from rich.console import Group, RenderableType
from rich.padding import Padding
from rich.table import Table
from rich.text import Text
from rich.tree import Tree

from peregrine.core.topology import Topology
from peregrine.sim.runner import Played, SeedResult
from peregrine.sim.scenario import Scenario
from peregrine.sim.simulation import Simulation
from peregrine.types import OpId, SiteId

# The first that occurs in a line of the story gives it its style.
STYLES = (
    ("submitted", "bold cyan"),
    ("cancelled", "yellow"),
    ("aborted", "yellow"),
    ("crashes", "red"),
    ("breaks", "red"),
    ("is slow", "red"),
    ("is back", "green"),
    ("moves from", "magenta"),
    ("gave up", "bold red"),
    ("at rest", "bold"),
    (" done", "cyan"),
)


def explain(played: Played) -> RenderableType:
    scenario = played.run.scenario
    return Group(
        _heading(f"Seed {scenario.seed}"),
        site_tree(scenario.topology),
        _heading("Operators"),
        Padding(_operators(scenario), (0, 0, 0, 2)),
        _heading("Sources"),
        Padding(_sources(scenario), (0, 0, 0, 2)),
        _heading("What happened"),
        Padding(_timeline(played.run), (0, 0, 0, 2)),
        _heading("Verdict"),
        *(Padding(line, (0, 0, 0, 2)) for line in _verdict(played.result)),
    )


def site_tree(topology: Topology) -> Tree:
    def label(site: SiteId) -> Text:
        text = Text(site, style="bold")
        hosts = [place.partition("/")[2] for place in topology.places(site)]
        if any(hosts):
            text.append(f"  hosts {', '.join(hosts)}", style="not bold")
        if site != topology.root:
            link = topology.link(site)
            text.append(f"  {link.latency_ms:g} ms, {link.bandwidth_mbps:g} Mbit/s", style="not bold dim")
        return text

    def grow(tree: Tree, site: SiteId) -> Tree:
        for child in topology.children(site):
            grow(tree.add(label(child)), child)
        return tree

    return grow(Tree(label(topology.root), guide_style="dim"), topology.root)


def _operators(scenario: Scenario) -> Table:
    table = _plain_table("operator", "kind", "groups", "feeds", "keys start at")
    home = scenario.topology.main_place(scenario.topology.root)
    for op, spec in sorted(scenario.specs.items()):
        if spec.sink:
            continue
        traits = {"stateless": spec.stateless, "windowed": spec.windowed, "sources roam": spec.roaming}
        kind = ", ".join(trait for trait, has in traits.items() if has) or "stateful"
        _add(table, op, kind, str(spec.groups), ", ".join(spec.feeds), _starts(scenario, op, home))
    return table


def _starts(scenario: Scenario, op: OpId, home: str) -> str:
    placed = [f"{{{keys.describe()}}} {place}" for of, keys, place in scenario.initial if of == op]
    return "; ".join([*placed, f"{'all others' if placed else 'all'} {home}"])


def _sources(scenario: Scenario) -> Table:
    table = _plain_table("source", "at", "rows", "for", "moves")
    for script in scenario.sources:
        feeds = "; ".join(f"{op} {{{keys.describe()}}}" for op, keys in scenario.feeds[script.id])
        moves = ", ".join(f"{at_ms:.0f} ms to {site}" for at_ms, site in script.moves)
        _add(table, script.id, script.site, str(len(script.sends)), feeds, moves or "stays")
    return table


def _timeline(run: Simulation) -> Table:
    table = Table.grid(padding=(0, 2))
    table.add_column(justify="right", no_wrap=True)
    table.add_column()
    told = set()
    for at_ms, what in run.world.story:
        if what in told and ("(said" in what or what.startswith("rehoming")):
            continue  # the manager asks, and routers answer, again and again
        told.add(what)
        style = next((style for word, style in STYLES if word in what), "")
        table.add_row(Text(f"{at_ms:.1f} ms", style="dim"), Text(what, style=style))
    return table


def _verdict(result: SeedResult) -> Iterable[Text]:
    migrations = ", ".join(f"{count} {name}" for name, count in result.migrations.items()) or "none"
    yield Text(f"migrations: {migrations}; cancelled {result.cancelled}, refused {result.refused}")
    yield Text(f"crashes: {result.crashes}; results: {result.rows}; events: {result.events}")
    yield Text(f"digest: {result.digest}")
    if not result.violations:
        yield Text("no violation: results and states are those of the run without any change", style="bold green")
    for violation in result.violations:
        yield Text(f"violation: {violation}", style="bold red")


def _heading(text: str) -> Padding:
    return Padding(Text(text, style="bold underline"), (1, 0, 0, 0))


def _plain_table(*columns: str) -> Table:
    table = Table(box=None, padding=(0, 2, 0, 0), header_style="dim")
    for column in columns:
        table.add_column(column, overflow="fold")
    return table


def _add(table: Table, *cells: str) -> None:
    table.add_row(*(Text(cell) for cell in cells))
