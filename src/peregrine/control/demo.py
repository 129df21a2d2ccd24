"""`peregrine demo`: two reconfigurations of a running stream on routers and Spark, watched, measured and proven."""

import json
import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import FrameType

from rich.console import Console
from rich.text import Text

from peregrine.control import drive
from peregrine.control.drive import Course
from peregrine.control.figures import Figures, as_dict, figures, show
from peregrine.control.view import shown
from peregrine.control.watch import Watch
from peregrine.errors import ConfigurationError
from peregrine.types import Runner

STOPPED = "stopped: the routers and Spark have ended, nothing is left running"


def run_demo(
    console: Console,
    picture: Path | None = None,
    json_file: Path | None = None,
    runner: Runner = "microbatch",
) -> bool:
    """True if the stream did not notice. A KeyboardInterrupt comes through when everything has been put away."""
    for path in (picture, json_file):
        if path is not None and not path.absolute().parent.is_dir():
            raise ConfigurationError(f"there is no directory {path.absolute().parent}", "make it, or name another file")
    course = Course(runner=runner)
    watch = drive.watch_of(course)
    with interrupted_once() as again, shown(console, course, watch):
        proof, marks = drive.run(course, watch, ready=again)
    found = figures(course, watch, marks, proof)
    show(console, found)
    if json_file is not None:
        json_file.write_text(json.dumps(as_dict(found), indent=2) + "\n")
        console.print(Text(f"\nfigures: {json_file}"), soft_wrap=True)
    if picture is not None:
        _draw(console, picture, watch, found)
    return proof.holds


def _draw(console: Console, path: Path, watch: Watch, found: Figures) -> None:
    try:
        from peregrine.control.picture import draw
    except ImportError:
        console.print("\nno picture: matplotlib is not installed (pip install 'peregrine-spark[charts]')")
        return
    draw(path, watch, found)
    console.print(Text(f"\npicture of the latency over time: {path}"), soft_wrap=True)


@contextmanager
def interrupted_once() -> Iterator[Callable[[], None]]:
    """Ctrl-C interrupts the first time; then it is ignored until everything has been put away.

    Spark installs a handler of its own when a session begins: what is yielded puts ours back.
    """

    def interrupt(number: int, frame: FrameType | None) -> None:
        signal.signal(signal.SIGINT, signal.SIG_IGN)
        raise KeyboardInterrupt

    def install() -> None:
        if threading.current_thread() is threading.main_thread():
            signal.signal(signal.SIGINT, interrupt)

    before = signal.getsignal(signal.SIGINT)
    install()
    try:
        yield install
    finally:
        if threading.current_thread() is threading.main_thread():
            signal.signal(signal.SIGINT, before)
