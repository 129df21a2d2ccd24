"""`python -m peregrine.spark.host_process --config FILE`: a host as a Spark application of its own, on this machine.

Prints a line of JSON, {"pid": ...}, when its query runs, and then answers requests that come by its standard input: one
JSON object on a line, one line back. Ends when that closes, on SIGTERM and SIGINT, and when its parent is gone, and
takes Spark with it. If the query fails it ends with code 1 and the reason in its log; started again it goes on from its
checkpoint. The queries of DataFrame operators are started and stopped by such requests, too: a process that was started
again has none until it is told.
"""

# pyspark is optional, also where types are checked.
# mypy: disable-error-code="import-not-found"

import argparse
import os
import signal
import sys
import threading
from pathlib import Path
from typing import IO, Any

import msgspec

from peregrine.errors import ConfigurationError, PeregrineError, UnknownName
from peregrine.spark import host
from peregrine.spark.hosted import HostedTransforms
from peregrine.spark.listener import Progress, ProgressListener
from peregrine.spark.session import open_session
from peregrine.types import PlaceId

LOOK_EVERY_S = 0.5
FAILED, WRONG = 1, 2  # exit codes: it could not go on; it was told something wrong


class HostSettings(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """`host` as in one process; `master` and `spark` (settings) say how it runs. Executors must be on this machine."""

    host: host.HostConfig
    master: str
    directory: str  # for what Spark has to put somewhere
    spark: dict[str, str] = {}

    @classmethod
    def load(cls, path: Path) -> "HostSettings":
        try:
            return msgspec.json.decode(path.read_bytes(), type=cls, dec_hook=_path)
        except OSError as error:
            raise ConfigurationError(f"cannot read {path}: {error}", "give the path of a host's settings") from error
        except msgspec.DecodeError as error:
            raise ConfigurationError(f"{path}: {error}", "correct the file; HostSettings names its fields") from error

    def save(self, path: Path) -> None:
        path.write_bytes(msgspec.json.format(msgspec.json.encode(self, enc_hook=str)))


def _path(kind: type, value: Any) -> Any:
    return kind(value)


class Ask(msgspec.Struct, frozen=True):
    what: str  # states, progress; of DataFrame operators: start, stop, failure
    file: str = ""  # where states are to be written, or where the operator is that is to start
    place: str = ""  # of a DataFrame operator
    number: int = 0


class Answer(msgspec.Struct, frozen=True):
    progress: Progress | None = None
    failure: str = ""
    error: str = ""
    remedy: str = ""  # if the error is a mistake of the user
    number: int = 0  # of what was asked


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="peregrine.spark.host_process", description="A host as a Spark application.")
    parser.add_argument("--config", type=Path, required=True, help="a file with HostSettings as JSON")
    given = parser.parse_args(arguments)
    parent = os.getppid()
    answers = _own_output()
    end = threading.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: end.set())
    try:
        settings = HostSettings.load(given.config)
        spark = _session(settings)
    except PeregrineError as error:
        print(error, file=sys.stderr)
        return WRONG
    try:
        query = host.start(spark, settings.host)
        transforms = HostedTransforms(spark)
        asked = _Asked(spark, query, settings, transforms)
        threading.Thread(target=_serve, args=(asked, answers, end), daemon=True).start()
        _say(answers, {"pid": os.getpid()})
        while query.isActive and os.getppid() == parent:
            if end.wait(LOOK_EVERY_S):
                break
        if failure := query.exception():
            print(failure, file=sys.stderr, flush=True)
            return FAILED
        transforms.stop_all()
        query.stop()
        return 0
    finally:
        spark.stop()
        settings.host.attaching().end()


def _own_output() -> IO[bytes]:
    """Answers go where standard output was; what Spark and operators print goes to the log."""
    mine = os.dup(1)
    os.dup2(2, 1)
    return os.fdopen(mine, "wb")


def _session(settings: HostSettings) -> Any:
    if settings.master.startswith("local"):
        os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")  # the workers of a `local-cluster` listen, too
    if settings.master.startswith("local-cluster"):
        os.environ["SPARK_HOME"] = str(_spark_home(Path(settings.directory)))
    return open_session(f"host {settings.host.checkpoint.name}", more=settings.spark, master=settings.master)


def _spark_home(directory: Path) -> Path:
    """Workers of a `local-cluster` write into the home of Spark: let that be a place of their own."""
    import pyspark

    home = directory / "spark-home"
    home.mkdir(parents=True, exist_ok=True)
    for part in Path(pyspark.__file__).parent.iterdir():
        link = home / part.name
        if not link.is_symlink():
            link.symlink_to(part)
    return home


def _serve(asked: "_Asked", answers: IO[bytes], end: threading.Event) -> None:
    try:
        for line in sys.stdin.buffer:
            ask = msgspec.json.decode(line, type=Ask)
            try:
                answer = asked.answer(ask)
            except ConfigurationError as error:
                answer = Answer(error=error.what, remedy=error.remedy)
            except Exception as error:  # whatever Spark raises is the answer
                answer = Answer(error=f"{type(error).__name__}: {error}")
            _say(answers, msgspec.structs.replace(answer, number=ask.number))
    finally:
        end.set()  # who does not answer any more is started again


class _Asked:
    """What can be asked of this process."""

    def __init__(self, spark: Any, query: Any, settings: HostSettings, transforms: HostedTransforms) -> None:
        self._spark = spark
        self._query = query
        self._checkpoint = settings.host.checkpoint
        self._transforms = transforms
        self._listener = ProgressListener()

    def answer(self, ask: Ask) -> Answer:
        match ask.what:
            case "states":
                found = host.states(self._spark, self._checkpoint)
                Path(ask.file).write_bytes(msgspec.msgpack.encode([(*at, blob) for at, blob in found.items()]))
            case "progress":
                return Answer(self._listener.hear(self._query))
            case "start":
                self._transforms.start(Path(ask.file))
            case "stop":
                self._transforms.stop(PlaceId(ask.place))
            case "failure":
                return Answer(failure=self._transforms.failure(PlaceId(ask.place)) or "")
            case _:
                raise UnknownName("question", ask.what, ["states", "progress", "start", "stop", "failure"])
        return Answer()


def _say(answers: IO[bytes], what: Any) -> None:
    answers.write(msgspec.json.encode(what) + b"\n")
    answers.flush()


if __name__ == "__main__":
    sys.exit(main())
