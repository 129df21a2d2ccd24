"""`python -m peregrine.net.router_process --config FILE`: the router of one site as a process (see serving.py)."""

import argparse
import logging
import os
import sys
from pathlib import Path

from peregrine.net.router_server import RouterServer
from peregrine.net.serving import serve
from peregrine.net.settings import RouterSettings

FAILED = 1  # exit code: it could not go on


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="peregrine.net.router_process", description="The router of one site.")
    parser.add_argument("--config", type=Path, required=True, help="a file with RouterSettings as JSON")
    given = parser.parse_args(arguments)
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(levelname)s %(name)s %(message)s")
    return serve(lambda: RouterServer(RouterSettings.load(given.config), _give_up))


def _give_up(error: BaseException) -> None:
    """A log failed: nothing more may happen in this process. What was promised is in the journal."""
    print(error, file=sys.stderr, flush=True)
    os._exit(FAILED)


if __name__ == "__main__":
    sys.exit(main())
