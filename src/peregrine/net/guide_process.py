"""`python -m peregrine.net.guide_process --config FILE`: the guide as a process (see serving.py)."""

import argparse
import logging
import sys
from collections.abc import Callable
from pathlib import Path

from peregrine.net.guide_server import GuideServer
from peregrine.net.guide_settings import GuideSettings
from peregrine.net.serving import serve


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(
        prog="peregrine.net.guide_process", description="The guide: tells devices which router to use."
    )
    parser.add_argument("--config", type=Path, required=True, help="a file with GuideSettings as JSON")
    given = parser.parse_args(arguments)
    return run(lambda: GuideSettings.load(given.config))


def run(settings: Callable[[], GuideSettings]) -> int:
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(levelname)s %(name)s %(message)s")
    return serve(lambda: GuideServer(settings()))


if __name__ == "__main__":
    sys.exit(main())
