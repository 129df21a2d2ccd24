"""A run on Spark as a person sees it: a picture four times a second on a terminal, lines where there is none."""

import threading
from collections.abc import Iterator
from contextlib import contextmanager

import numpy as np
from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.panel import Panel
from rich.table import Table
from rich.text import Text

from peregrine.control.drive import CLOUD, EDGE1, EDGE2, Course
from peregrine.control.watch import Journey, Watch
from peregrine.measure import PHASES
from peregrine.types import SiteId

FRAME_S = 0.25
LINE_S = 5.0
MAX_WIDTH = 100
EVENTS = 6
RECENT_MS = 2000.0  # what "now" means for rates and latency
P99_MS = 10_000.0
CELL_MS = 1000.0
FULL = 3  # times the usual latency is a full bar: the first batches of Spark would dwarf the rest
BARS = "▁▂▃▄▅▆▇█"
COLOURS = {CLOUD: "magenta", EDGE1: "cyan", EDGE2: "green"}
MEANING = {
    "begin": "rows go to both places from here on; markers travel to both",
    "snapshot": "the old place works on; its host comes to the position of the snapshot",
    "state": "the state travels to the new place, behind the outputs that came before it",
    "catch-up": "the state is there; the new place applies the rows that waited, muted",
    "switch": "rows go to the new place alone; the last outputs of the old one go first",
}


@contextmanager
def shown(console: Console, course: Course, watch: Watch) -> Iterator[None]:
    """Draws in a thread of its own until the block ends."""
    stop = threading.Event()
    drawn = console.is_terminal and not console.is_dumb_terminal
    thread = threading.Thread(
        target=_draw if drawn else _tell, args=(console, course, watch, stop), name="view", daemon=True
    )
    thread.start()
    try:
        yield
    finally:
        stop.set()
        thread.join(timeout=5)


def _draw(console: Console, course: Course, watch: Watch, stop: threading.Event) -> None:
    with Live(console=console, auto_refresh=False) as live:
        while not stop.wait(FRAME_S):
            live.update(picture(course, watch, min(console.width, MAX_WIDTH)), refresh=True)
        live.update(picture(course, watch, min(console.width, MAX_WIDTH)), refresh=True)


def _tell(console: Console, course: Course, watch: Watch, stop: threading.Event) -> None:
    told, line_at_ms = 0, watch.began_ms
    while True:
        ending = stop.wait(FRAME_S)
        for at_ms, text in watch.events[told:]:
            console.print(Text(f"{_seconds(watch, at_ms):6.1f} s  {text}"), soft_wrap=True)
            told += 1
        if ending:
            return
        if watch.rows_out and watch.now_ms() - line_at_ms >= LINE_S * 1000:
            line_at_ms = watch.now_ms()
            console.print(Text(f"{_seconds(watch, line_at_ms):6.1f} s    {_rates(watch)}; {_latency(watch)}"))


# --- one picture ---


def picture(course: Course, watch: Watch, width: int) -> RenderableType:
    """Of the same height at any time."""
    title = Text.assemble(("Peregrine on Spark", "bold"), f"  {_seconds(watch, watch.now_ms()):.1f} s")
    parts: tuple[RenderableType, ...] = (_sites(course, watch), Text(), *_phase(watch), Text())
    parts += (Text(f"{_rates(watch)}   in all {watch.rows_in:,} in, {watch.rows_out:,} out"), Text(_latency(watch)))
    parts += (*_history(watch, width - 4), Text(), *_events(watch))
    for part in parts:
        if isinstance(part, Text):
            part.no_wrap, part.overflow = True, "ellipsis"
    return Panel(Group(*parts), title=title, title_align="left", width=width, border_style="dim", padding=(0, 1))


def _sites(course: Course, watch: Watch) -> Table:
    table = Table.grid(padding=(0, 2))
    for style in ("", "dim", ""):
        table.add_column(no_wrap=True, style=style)
    for site, branch, trunk in ((CLOUD, "", "│"), (EDGE1, "├─ ", "│"), (EDGE2, "└─ ", " ")):
        name = Text.assemble((branch, "dim"), (site, f"bold {COLOURS[site]}"))
        table.add_row(name, "keys", _keys(watch, site))
        if site != CLOUD:
            cars = Text(" ".join(car for car in course.cars if watch.connected.get(car) == site))
            cars.highlight_words([course.driver], "bold yellow" if site == EDGE2 else "")
            table.add_row(Text(f"{trunk}  {course.latency_ms:g} ms", style="dim"), "cars", cars)
    return table


def _keys(watch: Watch, site: SiteId) -> Text:
    """Who works for a key is bright; who only follows, or finishes what it has, is dim."""
    journey = watch.under_way
    moving = journey.keys if journey is not None else []
    works_at, other_at, does = SiteId(""), SiteId(""), ""
    if journey is not None:
        works_at, other_at, does = journey.source, journey.target, "following"
        if "switched" in journey.steps:
            works_at, other_at, does = other_at, works_at, "finishing"
    works = [key for key, owner in watch.owners.items() if (works_at if key in moving else owner) == site]
    text = Text(" ".join(works), style=f"bold {COLOURS[site]}")
    if journey is not None and other_at == site:
        text.append(f"{'  ' if works else ''}({does} {journey.what})", style="not bold dim")
    return text


def _phase(watch: Watch) -> Iterator[Text]:
    journey = watch.under_way
    if journey is None:
        last = next(iter(list(watch.journeys.values())[::-1]), None)
        yield Text("rows flow" if watch.rows_out else "no rows yet", style="bold")
        yield Text(f"last moved {last}" if last is not None else "nothing has moved yet")
        yield Text()
        return
    yield Text(f"moving {journey}", style="bold")
    yield _steps(journey)
    yield Text(MEANING[journey.phase], style="italic")


def _steps(journey: Journey) -> Text:
    reached = {PHASES.get(step) for step in list(journey.steps)}
    line = Text()
    for phase in PHASES.values():
        style = "bold black on yellow" if phase == journey.phase else "yellow" if phase in reached else "dim"
        line.append(f" {phase} ", style=style)
        line.append(" ▸ ", style="dim")
    return line.append(" done ", style="dim")


def _rates(watch: Watch) -> str:
    since_ms = max(watch.now_ms() - RECENT_MS, watch.began_ms)
    over_s = max(watch.now_ms() - since_ms, 1.0) / 1000
    rows_in, rows_out = watch.rows_in_since(since_ms) / over_s, watch.rows_out_since(since_ms) / over_s
    return f"rows in {rows_in:,.0f}/s, out {rows_out:,.0f}/s"


def _latency(watch: Watch) -> str:
    now, ten = (watch.latencies_since(watch.now_ms() - span_ms) for span_ms in (RECENT_MS, P99_MS))
    if not len(ten):
        return "latency -"
    mean = f"{now.mean():,.0f} ms" if len(now) else "-"
    return f"latency {mean}, p99 of {P99_MS / 1000:g} s {np.percentile(ten, 99):,.0f} ms"


def _history(watch: Watch, width: int) -> Iterator[Text]:
    """Where the migrations lie, each with its number; below it the mean latency of each second until now."""
    first_ms = watch.now_ms() - width * CELL_MS
    marks = [" "] * width
    for number, journey in enumerate(list(watch.journeys.values()), start=1):
        begin, end = min(journey.steps.values()), max(journey.steps.values()) if journey.ended else watch.now_ms()
        cells = range(max(_cell(begin, first_ms), 0), min(_cell(end, first_ms), width - 1) + 1)
        for cell in cells:
            marks[cell] = str(number) if cell == cells[0] else "─"
    sums, counts = np.zeros(width), np.zeros(width)
    for each in list(watch.arrived):
        cell = _cell(each.at_ms, first_ms)
        if 0 <= cell < width:
            sums[cell] += each.latency_ms.sum()
            counts[cell] += len(each.latency_ms)
    means = np.divide(sums, counts, out=np.zeros(width), where=counts > 0)
    top = max(FULL * float(np.median(means[counts > 0])) if counts.any() else 0.0, 1.0)
    levels = np.minimum(means / top * len(BARS), len(BARS) - 1).astype(int)
    bars = "".join(BARS[level] if count else " " for level, count in zip(levels, counts, strict=True))
    yield Text("".join(marks), style="bold yellow")
    yield Text(bars, style="green")
    yield Text(f"mean of each second; a full bar is {top:,.0f} ms or more" if counts.any() else "", style="dim")


def _cell(at_ms: float, first_ms: float) -> int:
    return int((at_ms - first_ms) // CELL_MS)


def _events(watch: Watch) -> Iterator[Text]:
    last = watch.events[-EVENTS:]
    for at_ms, text in last:
        yield Text.assemble((f"{_seconds(watch, at_ms):6.1f} s  ", "dim"), text)
    yield from (Text() for _ in range(EVENTS - len(last)))


def _seconds(watch: Watch, at_ms: float) -> float:
    return (at_ms - watch.began_ms) / 1000
