"""`python -m peregrine.net.router_process --config FILE`: the router of one site as a process.

Prints one line of JSON, {"port": ..., "pid": ...}, when it is ready. Ends on SIGTERM or SIGINT, when its parent is
gone, and when its standard input is a pipe that closes: no router outlives the one who started it.
"""

import argparse
import json
import logging
import os
import signal
import stat
import sys
import threading
from pathlib import Path

from peregrine.errors import PeregrineError
from peregrine.net.router_server import RouterServer
from peregrine.net.settings import RouterSettings

PARENT_EVERY_S = 0.5
FAILED, WRONG = 1, 2  # exit codes: it could not go on; it was told something wrong


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="peregrine.net.router_process", description="The router of one site.")
    parser.add_argument("--config", type=Path, required=True, help="a file with RouterSettings as JSON")
    given = parser.parse_args(arguments)
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(levelname)s %(name)s %(message)s")
    parent = os.getppid()
    end = threading.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: end.set())
    try:
        server = RouterServer(RouterSettings.load(given.config), _give_up)
    except PeregrineError as error:
        print(error, file=sys.stderr)
        return WRONG
    _watch_pipe(end)
    print(json.dumps({"port": server.port, "pid": os.getpid()}), flush=True)
    while not end.wait(PARENT_EVERY_S) and os.getppid() == parent:
        pass
    server.stop()
    return 0


def _give_up(error: BaseException) -> None:
    """A log failed: nothing more may happen in this process. What was promised is in the journal."""
    print(error, file=sys.stderr, flush=True)
    os._exit(FAILED)


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


if __name__ == "__main__":
    sys.exit(main())
