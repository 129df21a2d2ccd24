"""The command `peregrine`.

The rule: what a command found goes to stdout, how far it is goes to stderr. 0 means that all is well, 1 that something
was found, 2 that the command could not do what it was asked; then stderr says what is wrong and what to do about it.
Commands import what they need when they run, so that --help and --version answer at once.
"""

import io
import json
import signal
import sys
from collections.abc import Sequence
from enum import StrEnum
from pathlib import Path
from time import perf_counter
from typing import TYPE_CHECKING, Annotated, NoReturn

import typer
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn
from rich.table import Table
from rich.text import Text

import peregrine
from peregrine.bench.cli import app as bench
from peregrine.errors import ConfigurationError, PeregrineError, UnknownName
from peregrine.net.guide_cli import guide

if TYPE_CHECKING:
    from peregrine.sim.runner import Totals
    from peregrine.sim.scenario import Options

SHOWN_SEEDS = 10
SHOWN_VIOLATIONS = 3

app = typer.Typer(
    name="peregrine",
    help="Keyed, stateful PySpark streams across cloud, region and edge, redeployed while they run.",
    no_args_is_help=True,
    add_completion=False,
    rich_markup_mode="markdown",  # paragraphs are filled, and brackets are only brackets
    pretty_exceptions_enable=False,
)
app.add_typer(bench)


def main(arguments: Sequence[str] | None = None) -> None:
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="replace")  # a terminal without block characters gets question marks, no error
    before = signal.signal(signal.SIGTERM, _end)
    try:
        app(args=list(arguments) if arguments is not None else None, prog_name="peregrine")
    except PeregrineError as error:
        print(f"peregrine: {error}", file=sys.stderr)
        sys.exit(2)
    finally:
        signal.signal(signal.SIGTERM, before)


def _end(number: int, frame: object) -> NoReturn:
    """On the way out everything that was started is ended, and what was put somewhere is removed, as with Ctrl-C."""
    sys.exit(128 + number)


def _show_version(wanted: bool) -> None:
    if wanted:
        print(f"peregrine {peregrine.__version__}")
        raise typer.Exit()


@app.callback()
def _peregrine(
    version: Annotated[
        bool, typer.Option("--version", help="Print the version and exit.", callback=_show_version, is_eager=True)
    ] = False,
) -> None:
    pass


class Faults(StrEnum):
    ALL = "all"
    NONE = "none"


@app.command()
def simulate(
    seeds: Annotated[int, typer.Option(min=1, help="How many seeds to run.")] = 1000,
    start: Annotated[int, typer.Option(min=0, help="The first seed.")] = 0,
    seed: Annotated[int | None, typer.Option(min=0, help="Run this seed only.", show_default=False)] = None,
    explain: Annotated[bool, typer.Option("--explain", help="Tell the story of one run; needs --seed.")] = False,
    mechanism: Annotated[
        str | None,
        typer.Option(help="Migrate with this mechanism only (see: peregrine mechanisms).", show_default=False),
    ] = None,
    sites: Annotated[int | None, typer.Option(min=1, help="How many sites; else drawn.", show_default=False)] = None,
    faults: Annotated[Faults, typer.Option(help="Crashes, broken links and slow hosts, or none of them.")] = Faults.ALL,
    topology_changes: Annotated[
        bool, typer.Option("--topology-changes", help="Sites and links come, go and change their places meanwhile.")
    ] = False,
    continuous: Annotated[
        bool, typer.Option("--continuous", help="Most hosts apply rows one by one, and processes are taken over.")
    ] = False,
    processes: Annotated[int, typer.Option(min=1, help="How many processes share the seeds.")] = 2,
    as_json: Annotated[bool, typer.Option("--json", help="Print the outcome as one JSON object.")] = False,
    scale: Annotated[
        int | None,
        typer.Option(min=1, help="Instead, run one large deployment: how many edges.", show_default=False),
    ] = None,
    keys: Annotated[
        int | None, typer.Option(min=1, help="How many keys there are; with --scale. Default: 100 per edge.")
    ] = None,
    seconds: Annotated[float, typer.Option(min=1, help="Simulated seconds; with --scale.")] = 4.0,
    script: Annotated[
        Path | None, typer.Option(help="Instead, tell the story of one scenario file.", show_default=False)
    ] = None,
) -> None:
    """Search for a run that differs from the same run without any change.

    Each seed draws a hierarchy of sites, applications, what their sources send, and everything that is reconfigured or
    fails meanwhile. Its results and states are compared with a run in which nothing happens. A seed always gives the
    same run: the command that replays a violation is printed with it. The exit code is 1 if there was any.
    """
    if script is not None:
        _retell(script)
        return
    if scale is not None:
        _run_scale(scale, keys, seconds, seed if seed is not None else start, as_json)
        return
    from peregrine.core.mechanisms import MECHANISMS
    from peregrine.sim.scenario import Options

    if mechanism is not None and mechanism not in MECHANISMS:
        raise UnknownName("mechanism", mechanism, list(MECHANISMS))
    options = Options(mechanism, sites, faults is Faults.ALL, topology_changes=topology_changes, continuous=continuous)
    if explain:
        _explain(seed, options, as_json)
    else:
        _search(range(start, start + seeds) if seed is None else range(seed, seed + 1), options, processes, as_json)


def _retell(path: Path) -> None:
    from peregrine.sim import retelling, script

    retold = retelling.retell(script.load(path))
    print(retold.story, end="")
    if retold.violations:
        raise typer.Exit(1)


def _explain(seed: int | None, options: "Options", as_json: bool) -> None:
    if seed is None or as_json:
        raise ConfigurationError("--explain tells one run to a person", "add --seed N and leave out --json")
    from peregrine.sim import runner, story

    played = runner.play(seed, options)
    Console().print(story.explain(played))
    if played.result.violations:
        raise typer.Exit(1)


def _search(seeds: range, options: "Options", processes: int, as_json: bool) -> None:
    from peregrine.sim import runner

    totals = runner.Totals()
    interrupted = False
    began = perf_counter()
    with _progress("{task.fields[rows]:,} rows  {task.fields[violations]} violating") as progress:
        task = progress.add_task("seeds", total=len(seeds), rows=0, violations=0)

        def on_result(result: runner.SeedResult) -> None:
            totals.add(result)
            progress.update(task, advance=1, rows=totals.rows, violations=len(totals.violating))

        try:
            runner.run_many(seeds, options, processes, on_result)
        except KeyboardInterrupt:
            interrupted = True
    elapsed_s = perf_counter() - began
    totals.violating.sort(key=lambda result: result.seed)
    if as_json:
        print(json.dumps(_as_dict(totals, seeds, options, elapsed_s, interrupted)))
    else:
        _print_search(totals, options, elapsed_s, f"stopped after {totals.runs} of {len(seeds)}" if interrupted else "")
    if totals.violating or interrupted:
        raise typer.Exit(1 if totals.violating else 130)


def _progress(news: str) -> Progress:
    console = Console(stderr=True)
    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TextColumn(news),
        TimeElapsedColumn(),
    )
    return Progress(*columns, console=console, transient=True, disable=not console.is_terminal)


def _of_changes(totals: "Totals") -> dict[str, int]:
    return {name: getattr(totals, name) for name in ("rehomed", "put_off", "late", "detours", "amiss")}


def _print_search(totals: "Totals", options: "Options", elapsed_s: float, stopped: str) -> None:
    console = Console()
    table = _facts()
    table.add_row("runs", f"{totals.runs:,}" + (f"  ({stopped})" if stopped else ""))
    table.add_row("rows", f"{totals.rows:,}")
    table.add_row("migrations", f"{totals.migrations.total():,}")
    for name, count in totals.migrations.most_common():
        table.add_row(f"  {name}", f"{count:,}", style="dim")
    if options.topology_changes:
        table.add_row("changes of parents", f"{totals.rehomed:,}")
        table.add_row("changes put off", f"{totals.put_off:,}")
        table.add_row("sites that were late", f"{totals.late:,}")
        table.add_row("lost links gone round", f"{totals.detours:,}")
        table.add_row("operators left amiss", f"{totals.amiss:,}")
    table.add_row("cancelled", f"{totals.cancelled:,}")
    table.add_row("refused plans", f"{totals.refused:,}")
    table.add_row("crashes", f"{totals.crashes:,}")
    table.add_row("events/s", f"{totals.events / elapsed_s:,.0f}")
    table.add_row("seconds", f"{elapsed_s:.1f}")
    table.add_row("violations", f"{len(totals.violating)}", style="bold red" if totals.violating else "bold green")
    console.print(table)
    for result in totals.violating[:SHOWN_SEEDS]:
        console.print()
        for violation in result.violations[:SHOWN_VIOLATIONS]:
            console.print(Text(violation), style="red", soft_wrap=True)
        if len(result.violations) > SHOWN_VIOLATIONS:
            console.print(Text(f"... {len(result.violations) - SHOWN_VIOLATIONS} more"), style="red")
        console.print(Text(f"replay: {replay_command(result.seed, options)}"), style="bold", soft_wrap=True)
    if len(totals.violating) > SHOWN_SEEDS:
        console.print(f"\n... {len(totals.violating) - SHOWN_SEEDS} more violating seeds")


def replay_command(seed: int, options: "Options") -> str:
    words = ["peregrine simulate", f"--seed {seed}", "--explain"]
    if options.mechanism is not None:
        words.append(f"--mechanism {options.mechanism}")
    if options.sites is not None:
        words.append(f"--sites {options.sites}")
    if not options.faults:
        words.append("--faults none")
    if options.topology_changes:
        words.append("--topology-changes")
    if options.continuous:
        words.append("--continuous")
    return " ".join(words)


def _as_dict(
    totals: "Totals", seeds: range, options: "Options", elapsed_s: float, interrupted: bool
) -> dict[str, object]:
    return {
        "seeds": [seeds.start, seeds.stop],
        "runs": totals.runs,
        "interrupted": interrupted,
        "rows": totals.rows,
        "migrations": dict(sorted(totals.migrations.items())),
        "cancelled": totals.cancelled,
        "refused": totals.refused,
        **(_of_changes(totals) if options.topology_changes else {}),
        "crashes": totals.crashes,
        "events": totals.events,
        "events_per_s": round(totals.events / elapsed_s),
        "seconds": round(elapsed_s, 3),
        "violations": [
            {"seed": each.seed, "violations": list(each.violations), "replay": replay_command(each.seed, options)}
            for each in totals.violating
        ],
    }


def _run_scale(edges: int, keys: int | None, seconds: float, seed: int, as_json: bool) -> None:
    from peregrine.sim.scale import run_scale

    with _progress("{task.fields[news]}") as progress:
        task = progress.add_task("scale", total=100, news="")

        def on_progress(fraction: float, news: str) -> None:
            progress.update(task, completed=round(100 * fraction), news=news)

        report = run_scale(edges=edges, keys=keys, seconds=seconds, seed=seed, progress=on_progress)
    if as_json:
        print(json.dumps(report.as_dict()))
    else:
        table = Table(show_header=False, box=None, padding=(0, 2, 0, 0))
        for name, value in report.table():
            table.add_row(Text(name), Text(value))
        Console().print(table)
    if not report.passed:
        raise typer.Exit(1)


def _facts() -> Table:
    table = Table(show_header=False, box=None, padding=(0, 2, 0, 0))
    table.add_column()
    table.add_column(justify="right")
    return table


@app.command()
def demo(
    picture: Annotated[
        Path, typer.Option(help="Where the picture of the latency goes: .png, .svg or .pdf.", dir_okay=False)
    ] = Path("peregrine-demo.png"),
    json_file: Annotated[
        Path | None, typer.Option("--json", help="Write all figures to this file.", dir_okay=False, show_default=False)
    ] = None,
    continuous: Annotated[bool, typer.Option("--continuous", help="Apply rows as they come, not in batches.")] = False,
    simulated: Annotated[
        bool, typer.Option("--simulated", help="In the simulator instead: seconds, without Spark and Java.")
    ] = False,
    fast: Annotated[bool, typer.Option("--fast", help="With --simulated: lines, without waiting.")] = False,
) -> None:
    """Watch two reconfigurations of a running stream, and the proof that it did not notice.

    Ten cars, one cloud and two edges, 80 ms from the cloud and back (emulated): a router process for each site, their
    hosts on Spark, all on this machine. Half of the cars' keys move from the cloud to an edge while rows flow, then a
    car drives to the other edge and its key follows. The exit code is 1 if a row was lost, repeated or out of order, or
    if a state differs from that of a run without any change.
    """
    if fast and not simulated:
        raise ConfigurationError("--fast is for the simulator; on Spark, time is what it is", "add --simulated")
    if not (_simulated_demo(fast) if simulated else _spark_demo(picture, json_file, continuous)):
        raise typer.Exit(1)


def _simulated_demo(fast: bool) -> bool:
    from peregrine.demo import run_demo

    return run_demo(Console(), fast)


def _spark_demo(picture: Path, json_file: Path | None, continuous: bool) -> bool:
    from peregrine.control.demo import STOPPED, run_demo

    try:
        return run_demo(Console(), picture, json_file, "continuous" if continuous else "microbatch")
    except KeyboardInterrupt:
        print(STOPPED, file=sys.stderr)
        raise typer.Exit(130) from None


@app.command()
def calibrate(
    out: Annotated[
        Path | None,
        typer.Option(
            help="Where it is kept. [default: $XDG_STATE_HOME/peregrine/calibration.json, "
            "where every deployment looks for it]",
            dir_okay=False,
            show_default=False,
        ),
    ] = None,
) -> None:
    """Measure what migrations take on this machine, so that plans know what is much here and what is little.

    It takes one to two minutes, in a deployment of its own that is thrown away. Without it the adaptive strategy
    decides by defaults, and previews of plans say so.
    """
    from peregrine.control import calibrated, calibrating
    from peregrine.plan.calibration import DEFAULTS, Costs, derived

    with _progress("") as progress:
        task = progress.add_task("", total=len(calibrating.STEPS), completed=-1)
        costs = calibrating.calibrate(lambda step: progress.update(task, advance=1, description=step))
    file = out or calibrated.usual_file()
    calibrated.write(file, costs)
    much, usual = derived(costs), Costs()
    table = _compared("measured")
    table.add_row("a round: a chunk, however small", f"{costs.round_ms:,.0f} ms", f"{usual.round_ms:,.0f} ms")
    table.add_row("a megabyte of state", f"{costs.ms_per_mb:,.1f} ms", f"{usual.ms_per_mb:,.1f} ms")
    table.add_row("a key", f"{costs.ms_per_key:,.2f} ms", f"{usual.ms_per_key:,.2f} ms")
    table.add_row("rows that come through", f"{costs.rows_per_s:,.0f}/s", f"{usual.rows_per_s:,.0f}/s")
    overheads = (f"{each.replica_overhead:.0%} longer" for each in (costs, usual))
    table.add_row("a batch, with a replica of every key, all of them touched", *overheads)
    Console().print(table)
    table = _compared("what follows")
    table.add_row("chunks, if more has to travel than", f"{much.round_bytes:,.0f} B", f"{DEFAULTS.round_bytes:,.0f} B")
    table.add_row("or more keys than", f"{much.round_keys:,.0f}", f"{DEFAULTS.round_keys:,.0f}")
    ratios = (f"{each.low_access_ratio:.0%}" for each in (much, DEFAULTS))
    table.add_row("replicas, if a second touches fewer keys than", *ratios)
    table.add_row("hot keys first, from", f"{much.high_rows_per_s:,.0f}/s", f"{DEFAULTS.high_rows_per_s:,.0f}/s")
    Console().print(table)
    Console().print(str(file), soft_wrap=True)


def _compared(what: str) -> Table:
    table = Table(box=None, padding=(0, 2, 0, 0), header_style="bold", pad_edge=False)
    table.add_column(what, min_width=58)
    for column in ("here", "default"):
        table.add_column(column, justify="right", min_width=14)
    return table


@app.command()
def mechanisms() -> None:
    """List the ways to migrate keys, and where they belong in the survey "To Migrate or Not to Migrate"."""
    from peregrine.core.mechanisms import MECHANISMS
    from peregrine.core.mechanisms.program import Movement

    table = Table(box=None, padding=(0, 2, 1, 0), header_style="bold")
    for column in ("mechanism", "track", "state moves"):
        table.add_column(column, no_wrap=True)
    table.add_column("what it does")
    for each in MECHANISMS.values():
        traits = {
            "state by way of a store": not each.direct,
            "helped by copies that are kept ahead of time": each.checkpoint_assisted,
            "chunk after chunk": each.chunked,
            "outputs may change order": not each.ordered,
            "loses state, as declared": not each.lossless,
            "can be taken back before the switch": each.abortable,
            f"needs: {', '.join(sorted(each.needs))}": bool(each.needs),
        }
        what = Text(each.summary)
        for line in (each.survey, "; ".join(trait for trait, has in traits.items() if has)):
            what.append(f"\n{line}" if line else "", style="dim")
        state = "not" if each.movement is Movement.NONE else each.movement
        table.add_row(Text(each.name, style="cyan"), each.track.removesuffix("-track"), state, what)
    Console().print(table)


app.command()(guide)
