"""`peregrine bench`: the papers' experiments on this machine.

Figures go to stdout, how far it is to stderr. The exit code is 1 if a proof did not hold, a cell failed, or (of
`check`) a rule is broken.
"""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn
from rich.table import Table
from rich.text import Text

from peregrine.errors import UnknownName

if TYPE_CHECKING:
    from peregrine.bench.engine.analysis import Analysed
    from peregrine.bench.engine.definition import Definition
    from peregrine.bench.engine.runner import Only
    from peregrine.bench.engine.runner import Progress as News

app = typer.Typer(
    name="bench",
    help="Run the papers' experiments on Spark, and compare: quick by default, resumable.",
    no_args_is_help=True,
)

Full = Annotated[bool, typer.Option("--full/--quick", help="All values and repetitions, which takes hours; or less.")]
Folder = Annotated[Path, typer.Option("--out", help="Where results are kept.", file_okay=False)]
Again = Annotated[bool, typer.Option("--again", help="Also what is there already.")]
Variants = Annotated[list[str] | None, typer.Option("--variant", help="Only this one; may be given again.")]
Labels = Annotated[list[str] | None, typer.Option("--value", help="Only where the axis says this, as 80 or '10 MiB'.")]
RESULTS = Path("build/bench")
_STYLES = {"pass": "bold green", "fail": "bold red", "not run": "yellow"}


@app.command("list")
def show_list(full: Full = False, out: Folder = RESULTS) -> None:
    """What there is, and how much of it has been run."""
    from peregrine.bench.engine.definition import cells, load_all
    from peregrine.bench.engine.store import Store

    store = Store(out, _size(full))
    table = Table(box=None, padding=(0, 2, 0, 0), header_style="dim", pad_edge=False)
    for column in ("name", "cells", "run", "what"):
        table.add_column(column, justify="right" if column in ("cells", "run") else "left", no_wrap=column != "what")
    for definition in load_all().values():
        every = cells(definition, _size(full))
        what = Text(definition.title).append(f"\n{definition.figure}", style="dim")
        done = sum(map(store.has, every))
        table.add_row(Text(definition.name, style="cyan"), str(len(every)), str(done), what)
    Console().print(table)


@app.command()
def run(
    names: Annotated[list[str], typer.Argument(metavar="NAME...", show_default=False)],
    variant: Variants = None,
    value: Labels = None,
    full: Full = False,
    again: Again = False,
    out: Folder = RESULTS,
) -> None:
    """Run experiments; cells whose results are there with the same definition are skipped."""
    from peregrine.bench.engine.definition import load_all
    from peregrine.bench.engine.runner import Only

    known = load_all()
    for name in names:
        if name not in known:
            raise UnknownName("experiment", name, list(known))
    _run([known[name] for name in names], full, again, out, Only(variant or (), value or ()))


@app.command("all")
def run_all(full: Full = False, again: Again = False, out: Folder = RESULTS) -> None:
    """Run all experiments, as `run` does."""
    from peregrine.bench.engine.definition import load_all

    _run(list(load_all().values()), full, again, out)


@app.command()
def report(full: Full = False, out: Folder = RESULTS) -> None:
    """One HTML page with the papers' figures beside ours, and the pictures as PNG files."""
    from peregrine.bench.engine import check as checking
    from peregrine.bench.engine import report as reporting
    from peregrine.bench.engine.definition import load_all

    found, known = _analysed(out, _size(full)), load_all()
    checked = checking.check(checking.load(), found.cells, _values(known, _size(full)))
    path = reporting.write(out / _size(full) / "report", _size(full), known, found, checked)
    Console().print(str(path), soft_wrap=True)


@app.command()
def check(full: Full = False, out: Folder = RESULTS) -> None:
    """What must hold (bench/expected.toml), evaluated on the last run: pass, fail or not run."""
    from peregrine.bench.engine import check as checking
    from peregrine.bench.engine.definition import load_all

    cells = _analysed(out, _size(full)).cells
    checked = checking.check(checking.load(), cells, _values(load_all(), _size(full)))
    table = Table(box=None, padding=(0, 2, 0, 0), header_style="dim", pad_edge=False)
    for column in ("", "found", "bound", "rule"):
        table.add_column(column, justify="right" if column in ("found", "bound") else "left", no_wrap=column != "rule")
    for each in checked:
        times = "" if each.rule.kind in ("most", "least") else "x"
        value = "" if each.value is None else f"{each.value:,.2f}{times}"
        target = each.rule.target
        rule = Text(each.rule.name).append(f"\n{each.told}" if each.told else "", style="dim")
        verdict = Text(each.verdict, style=_STYLES[each.verdict])
        table.add_row(verdict, value, "" if target is None else f"{target.bound} {target.value:g}{times}", rule)
    Console().print(table)
    if any(each.verdict is checking.Verdict.FAIL for each in checked):
        raise typer.Exit(1)


def _size(full: bool) -> str:
    return "full" if full else "quick"


def _values(known: "dict[str, Definition]", size: str) -> dict[str, int]:
    return {name: len(getattr(definition, size).values) for name, definition in known.items()}


def _analysed(out: Path, size: str) -> "Analysed":
    from peregrine.bench.engine.analysis import analyse
    from peregrine.bench.engine.store import Store
    from peregrine.spark.session import open_session

    store = Store(out, size)
    store.check_there_is_something()  # before Spark takes its time
    spark = open_session("peregrine bench", log_file=store.folder / "spark.log")
    try:
        return analyse(store, spark)
    finally:
        spark.stop()


def _run(definitions: "list[Definition]", full: bool, again: bool, out: Path, only: "Only | None" = None) -> None:
    from peregrine.bench.engine import runner
    from peregrine.bench.engine.definition import cells

    only = only or runner.Only()

    console = Console(stderr=True)
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    wrong: list[str] = []
    with Progress(*columns, console=console, transient=True, disable=not console.is_terminal) as progress:
        for nth, definition in enumerate(definitions):
            task = progress.add_task(definition.name, total=len(only.of(cells(definition, _size(full)))))

            def say(news: "News", task: object = task, name: str = definition.name) -> None:
                progress.update(task, completed=news.done, description=f"{name}: {news.cell.name}")  # type: ignore[arg-type]
                if news.news:
                    style = "red" if news.wrong else "dim"
                    console.print(Text(f"{name}: {news.cell.name}: {news.news}", style=style), soft_wrap=True)

            wrong += runner.run(definition, _size(full), out, again, say, only=only, cold=nth == 0)
            progress.remove_task(task)
    for each in wrong:
        Console().print(Text(each, style="bold red"), soft_wrap=True)
    if wrong:
        raise typer.Exit(1)
