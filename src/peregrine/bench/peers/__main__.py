"""One run of one system, in a process of its own: `python -m peregrine.bench.peers SETTING ANSWER`."""

import os
import signal
import sys
import tempfile
import threading
from collections.abc import Callable
from pathlib import Path

import msgspec

from peregrine.bench.engine.definition import Setting
from peregrine.bench.peers.catalogue import parts
from peregrine.bench.peers.seen import Seen
from peregrine.errors import PeregrineError


def main() -> int:
    signal.signal(signal.SIGTERM, lambda *told: sys.exit(1))  # so that what was started is ended on the way out
    threading.Thread(target=_end_with_the_parent, daemon=True).start()
    setting = msgspec.json.decode(sys.argv[1], type=Setting)
    system, way = parts(setting.mechanism)
    try:
        with tempfile.TemporaryDirectory(prefix="peregrine-peer-") as directory:
            _run_of(system)(way, setting, Path(directory)).write(Path(sys.argv[2]))
    except PeregrineError as error:
        print(f"peregrine: {error}", file=sys.stderr)
        return 1
    return 0


def _run_of(system: str) -> Callable[[str, Setting, Path], Seen]:
    """Imported here: each needs what the others may not have."""
    if system == "peregrine":
        from peregrine.bench.peers import ours

        return ours.run
    if system == "spark":
        from peregrine.bench.peers import plain

        return plain.run
    if system == "bytewax":
        from peregrine.bench.peers import bytewax

        return bytewax.run
    from peregrine.bench.peers import flink

    mode = system.removeprefix("flink-")
    return lambda way, setting, directory: flink.run(mode, way, setting, directory)


def _end_with_the_parent() -> None:
    while os.read(0, 4096):
        pass
    os.kill(os.getpid(), signal.SIGTERM)


if __name__ == "__main__":
    sys.exit(main())
