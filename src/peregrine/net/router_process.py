"""`python -m peregrine.net.router_process --config FILE`: the router of one site as a process (see serving.py)."""

import argparse
import logging
import os
import sys
from importlib import import_module
from pathlib import Path

from peregrine.net.router_server import RouterServer
from peregrine.net.serving import serve
from peregrine.net.settings import RouterSettings

FAILED = 1  # exit code: it could not go on


class WithoutPandas:
    """Arrow looks for pandas when it makes its first array. A router needs none, and its first row would wait half a
    second for it: of the import system, the part that says that there is no such module.
    """

    @staticmethod
    def find_spec(name: str, path: object = None, target: object = None) -> None:
        if name == "pandas":
            raise ModuleNotFoundError("a router does without pandas", name=name)


# How long a thread of Python may keep others waiting: a call is answered in less than what is usual (5 ms).
SWITCH_S = 0.0005


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="peregrine.net.router_process", description="The router of one site.")
    parser.add_argument("--config", type=Path, required=True, help="a file with RouterSettings as JSON")
    given = parser.parse_args(arguments)
    sys.setswitchinterval(SWITCH_S)
    import_module("pyarrow.compute")  # Arrow does that when a batch is first split, with rows waiting
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(levelname)s %(name)s %(message)s")
    return serve(lambda: RouterServer(RouterSettings.load(given.config), _give_up))


def _give_up(error: BaseException) -> None:
    """A log failed: nothing more may happen in this process. What was promised is in the journal."""
    print(error, file=sys.stderr, flush=True)
    os._exit(FAILED)


if __name__ == "__main__":
    sys.meta_path.insert(0, WithoutPandas())
    sys.exit(main())
