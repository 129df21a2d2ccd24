"""`peregrine demo --simulated`: a live migration and a roaming car, drawn while the simulator runs them.

Virtual time runs as the clock does, and ten times slower while keys move. Without a terminal there are lines instead of
pictures and nobody waits.
"""

from collections.abc import Iterable
from time import monotonic, sleep

from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.panel import Panel
from rich.table import Table
from rich.text import Text

from peregrine.proof import Proof
from peregrine.sim import cars, checkers
from peregrine.sim.cars import Phase, Watch
from peregrine.sim.simulation import Simulation
from peregrine.types import SiteId

FRAMES_PER_S = 25
FRAME_MS = 1000 / FRAMES_PER_S
SLOWED = 10
MAX_WIDTH = 96
AROUND_MS = 150.0  # how long before and after a migration is, in the table at the end
OPENING_MS = 50.0  # after its end: what waited at the gate comes out
SCALE_MS = 160.0  # latency of the highest bar
BARS = "▁▂▃▄▅▆▇█"
BAR_STYLES = ("green", "green", "yellow", "yellow", "yellow", "red", "red", "red")
COLOURS = {cars.CLOUD: "magenta", cars.EDGE1: "cyan", cars.EDGE2: "green"}
LINES = (
    ("edge1's cars", tuple(car for car in cars.FIRST_HALF if car != cars.DRIVER)),
    (cars.DRIVER, (cars.DRIVER,)),
    ("edge2's cars", tuple(car for car in cars.CARS if car not in cars.FIRST_HALF)),
)


def run_demo(console: Console, fast: bool = False) -> bool:
    """True if the stream did not notice."""
    watch = Watch(Simulation(cars.scenario()))
    if console.is_terminal and not console.is_dumb_terminal and not fast:
        _play(console, watch)
    else:
        _tell(console, watch)
    proof = checkers.prove(watch.run)
    console.print("\nMoved while rows flowed: the time of each phase, and the latency around it", style="bold")
    console.print(_journeys(watch))
    console.print("\nCompared with a run in which nothing moved", style="bold")
    console.print(_proof(proof))
    for violation in proof.violations:
        console.print(Text(f"violation: {violation}", style="bold red"))
    return not proof.violations


def _play(console: Console, watch: Watch) -> None:
    world = watch.run.world
    with Live(console=console, auto_refresh=False) as live:
        due_s = monotonic()

        def frame() -> None:
            nonlocal due_s
            live.update(picture(watch, min(console.width, MAX_WIDTH)), refresh=True)
            due_s = max(due_s + 1 / FRAMES_PER_S, monotonic())
            sleep(max(due_s - monotonic(), 0.0))
            world.after(FRAME_MS / SLOWED if watch.under_way else FRAME_MS, frame)

        world.after(0.0, frame)
        watch.run.run()
        live.update(picture(watch, min(console.width, MAX_WIDTH)), refresh=True)


def _tell(console: Console, watch: Watch) -> None:
    console.print("One cloud, two edges 40 ms below it, ten cars; in virtual time:")
    watch.run.run()
    for at_ms, news in watch.news:
        console.print(Text(f"{at_ms / 1000:7.3f} s  {news}"), soft_wrap=True)


# --- one picture ---


def picture(watch: Watch, width: int) -> RenderableType:
    slow = f", slowed {SLOWED} times" if watch.under_way else ""
    title = Text.assemble(("Peregrine", "bold"), f"  {watch.now_ms / 1000:.2f} s", (slow, "yellow"))
    parts: tuple[RenderableType, ...] = (_sites(watch), Text(), *_phase(watch), Text())
    parts += (_latencies(watch, width - 26), Text(), _rates(watch))
    return Panel(Group(*parts), title=title, title_align="left", width=width, border_style="dim", padding=(0, 1))


def _sites(watch: Watch) -> Table:
    table = Table.grid(padding=(0, 2))
    table.add_column(no_wrap=True)
    table.add_column(no_wrap=True, style="dim")
    table.add_column()
    for site, branch, trunk in ((cars.CLOUD, "", "│"), (cars.EDGE1, "├─ ", "│"), (cars.EDGE2, "└─ ", " ")):
        name = Text.assemble((branch, "dim"), (site, f"bold {COLOURS[site]}"))
        table.add_row(name, "keys", _keys(watch, site))
        if site != cars.CLOUD:
            here = Text(" ".join(watch.connected(site)))
            here.highlight_words([cars.DRIVER], "bold yellow" if watch.now_ms >= cars.DRIVE_AT_MS else "")
            table.add_row(Text(f"{trunk}  40 ms", style="dim"), "cars", here)
    return table


def _keys(watch: Watch, site: SiteId) -> Text:
    """Who works for a key is bright; who only follows, or finishes what it has, is dim."""
    journey = watch.under_way
    if journey is None:
        return Text(" ".join(car for car in cars.CARS if watch.owner(car) == site), style=f"bold {COLOURS[site]}")
    moving = journey.migration.keys
    works_at, other_at, does = journey.source, journey.target, "copying"
    if journey.phase in (Phase.SWITCH, Phase.GATE):
        works_at, other_at, does = other_at, works_at, "finishing"
    works = [car for car in cars.CARS if (works_at if car in moving else watch.owner(car)) == site]
    text = Text(" ".join(works), style=f"bold {COLOURS[site]}")
    if other_at == site:
        text.append(f"{'  ' if works else ''}({does} {journey.what})", style="not bold dim")
    return text


def _phase(watch: Watch) -> Iterable[Text]:
    journey = watch.under_way
    if journey is not None:
        line = Text()
        for phase in Phase:
            reached = phase in journey.entered_ms
            style = "bold black on yellow" if phase is journey.phase else "yellow" if reached else "dim"
            line.append(f" {phase} ", style=style)
            line.append("" if phase is Phase.DONE else " ▸ ", style="dim")
        yield Text(f"moving {journey}", style="bold")
        yield line
        yield Text(cars.MEANING[journey.phase], style="italic")
        return
    yield Text("rows flow", style="bold")
    yield Text(_between(watch))
    yield Text()


def _between(watch: Watch) -> str:
    """What there is to know while nothing moves."""
    home = watch.owner(cars.DRIVER)
    if not watch.journeys:
        return f"every key is at the {cars.CLOUD}, 80 ms from the cars and back"
    if home == cars.EDGE1 and watch.now_ms < cars.DRIVE_AT_MS:
        return f"half of the keys are at {cars.EDGE1}, where their cars are"
    if home == cars.EDGE1:
        return f"{cars.DRIVER} has driven to {cars.EDGE2}: its rows make a detour over {cars.CLOUD} to {cars.EDGE1}"
    if home == cars.CLOUD:
        return f"{cars.DRIVER} is at {cars.EDGE2}; its key follows once it has stayed for {cars.DWELL_MS} ms"
    return f"{cars.DRIVER}'s key has followed it to {cars.EDGE2}"


def _latencies(watch: Watch, width: int) -> Table:
    table = Table.grid(padding=(0, 2))
    table.add_column(no_wrap=True, min_width=12)
    table.add_column(no_wrap=True, width=width)
    table.add_column(no_wrap=True, justify="right", min_width=6)
    table.add_row(Text("latency", style="dim"), _marks(watch, width), "")
    for name, keys in LINES:
        line = Text()
        last = None
        for mean in _means_ms(watch, keys, width):
            last = mean if mean is not None else last
            level = min(int((last or 0.0) / SCALE_MS * len(BARS)), len(BARS) - 1)
            line.append(BARS[level] if last is not None else " ", style=BAR_STYLES[level])
        table.add_row(Text(name), line, f"{last:.0f} ms" if last is not None else "")
    return table


def _means_ms(watch: Watch, keys: tuple[str, ...], width: int) -> list[float | None]:
    """The mean latency of each cell of the line that has begun."""
    cells: list[list[float]] = [[] for _ in range(_cell(watch.now_ms, width) + 1)]
    for sample in watch.samples:
        if sample.key in keys:
            cells[_cell(sample.at_ms, width)].append(sample.latency_ms)
    return [sum(cell) / len(cell) if cell else None for cell in cells]


def _cell(at_ms: float, width: int) -> int:
    return min(int(at_ms / cars.DURATION_MS * width), width - 1)


def _marks(watch: Watch, width: int) -> Text:
    """Above the bars: where the migrations lie, each with its number."""
    cells = [" "] * width

    for number, journey in enumerate(watch.journeys.values(), start=1):
        first = _cell(journey.entered_ms[Phase.COPY], width)
        last = _cell(journey.entered_ms.get(Phase.DONE, watch.now_ms), width)
        cells[first : last + 1] = [str(number), *("─" * (last - first))]
    return Text("".join(cells), style="bold yellow")


def _rates(watch: Watch) -> Text:
    since_ms = max(watch.now_ms - 500.0, 0.0)
    recent = sum(sample.at_ms >= since_ms for sample in watch.samples)
    per_s = recent / max(watch.now_ms - since_ms, 1.0) * 1000
    return Text(f"rows in {watch.rows_in:,}   rows out {watch.rows_out:,}   {per_s:,.0f} rows/s")


# --- the end ---


def _journeys(watch: Watch) -> Table:
    table = _table()
    table.add_column("live migration (ms)", no_wrap=True)
    for column in (*list(Phase)[:-1], "in all"):
        table.add_column(column, justify="right")
    for column in ("before", "worst", "after"):
        table.add_column(column, justify="right", style="cyan")
    for number, journey in enumerate(watch.journeys.values(), start=1):
        began_ms, ended_ms = journey.entered_ms[Phase.COPY], journey.entered_ms[Phase.DONE]
        keys = tuple(sorted(journey.migration.keys.plus))
        opened_ms = ended_ms + OPENING_MS
        table.add_row(
            f"{number}  {journey}",
            *(f"{journey.spent_ms(phase):.0f}" for phase in list(Phase)[:-1]),
            f"{journey.took_ms:.0f}",
            _mean(watch.latencies_ms(keys, began_ms - AROUND_MS, began_ms)),
            f"{max(watch.latencies_ms(keys, began_ms, opened_ms), default=0.0):.0f}",
            _mean(watch.latencies_ms(keys, opened_ms, opened_ms + AROUND_MS)),
        )
    return table


def _proof(proof: Proof) -> Table:
    table = _table()
    table.show_header = False
    table.add_column(min_width=26)
    table.add_column(justify="right")
    facts = (
        ("rows in", proof.rows_in, True),
        ("rows out", proof.rows_out, proof.rows_out == proof.rows_in),
        ("lost", proof.lost, not proof.lost),
        ("repeated", proof.repeated, not proof.repeated),
        ("out of order", proof.out_of_order, not proof.out_of_order),
        (f"states that differ, of {proof.states}", len(proof.states_that_differ), not proof.states_that_differ),
    )
    for name, count, fine in facts:
        table.add_row(name, Text(f"{count:,}", style="green" if fine else "bold red"))
    return table


def _mean(numbers: list[float]) -> str:
    return f"{sum(numbers) / len(numbers):.0f}" if numbers else "-"


def _table() -> Table:
    return Table(box=None, padding=(0, 1, 0, 0), header_style="dim", pad_edge=False)
