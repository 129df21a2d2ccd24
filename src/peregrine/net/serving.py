"""What every process with a listener does around it: it says when it is ready, and ends when it is told or orphaned.

It prints one line of JSON, {"port": ..., "pid": ...}, when it is ready. It ends on SIGTERM or SIGINT, when its parent
is gone, and when its standard input is a pipe that closes: no such process outlives the one who started it.
"""

import json
import os
import signal
import stat
import sys
import threading
from collections.abc import Callable
from typing import Protocol

from peregrine.errors import PeregrineError

PARENT_EVERY_S = 0.5
WRONG = 2  # exit code: it was told something wrong


class Listener(Protocol):
    port: int

    def stop(self) -> None: ...


def serve(make: Callable[[], Listener]) -> int:
    """Until it is told to end; returns the exit code. From the main thread: signals are taken there."""
    parent = os.getppid()
    end = threading.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: end.set())
    try:
        listener = make()
    except PeregrineError as error:
        print(error, file=sys.stderr)
        return WRONG
    _watch_pipe(end)
    print(json.dumps({"port": listener.port, "pid": os.getpid()}), flush=True)
    while not end.wait(PARENT_EVERY_S) and os.getppid() == parent:
        pass
    listener.stop()
    return 0


def _watch_pipe(end: threading.Event) -> None:
    try:
        is_pipe = stat.S_ISFIFO(os.fstat(0).st_mode)
    except OSError:
        return  # no standard input

    def read_until_it_closes() -> None:
        while os.read(0, 4096):
            pass
        end.set()

    if is_pipe:
        threading.Thread(target=read_until_it_closes, name="parent", daemon=True).start()
