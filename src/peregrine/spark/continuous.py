"""`python -m peregrine.spark.continuous NAME PID SETTINGS`: the process of a continuous host on an executor of Spark.

Started by a task of the host's query (spark/attaching.py), which has no process of its own: tasks attach to it once in
an epoch. NAME is that of its socket, PID the process in which Spark runs Python. It follows the logs of its places,
applies entries as they come, and hands outputs over at once. It ends when it is told to, when that process has ended,
and when no task has come for a while.
"""

import gc
import logging
import os
import select
import socket
import sys
import threading
import time
from importlib import import_module

import msgspec
import pyarrow as pa

from peregrine.errors import PeregrineError
from peregrine.spark.applying import Applier
from peregrine.spark.following import Following
from peregrine.spark.talk import Answer, Attach, Done, End, Failed, Load, Need, Ping, Question, Settings, Talk
from peregrine.types import PlaceId

BACKLOG = 16
SWITCH_S = 0.0005  # as in a router: rows and tasks do not wait for each other's 5 ms
log = logging.getLogger(__name__)


class Host:
    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._applier = Applier(
            settings.served,
            settings.registry,
            settings.chunk_bytes,
            settings.sizes,
            settings.chunks_durable,
            ahead=True,
        )
        self._places: dict[PlaceId, Following] = {}
        self._lock = threading.Lock()
        self._asked_s = time.monotonic()

    def answer(self, question: Question) -> Answer:
        self._asked_s = time.monotonic()
        match question:
            case Attach():
                shard = self._place(question.place).take(question)
                return Need() if shard is None else shard
            case Load(attach, loaded):
                place = self._place(attach.place)
                place.load(attach.op, attach.shard, loaded)
                shard = place.take(attach)
                return Need() if shard is None else shard
            case Ping() | End():
                return Done(os.getpid())

    def is_forgotten(self) -> bool:
        return time.monotonic() - self._asked_s > self._settings.lease_s

    def _place(self, name: PlaceId) -> Following:
        with self._lock:
            if name not in self._places:
                self._places[name] = Following(
                    name, self._settings.served, self._settings.token_file, self._settings.shards,
                    self._applier, self._settings.patience_s,
                )  # fmt: skip
            return self._places[name]


def main(arguments: list[str]) -> int:
    name, watched, given = arguments
    settings = msgspec.json.decode(given, type=Settings)
    logging.basicConfig(level=logging.WARNING, format="continuous %(levelname)s %(message)s")
    listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        listener.bind(f"\0{name}")
    except OSError:
        return 0  # somebody was faster
    listener.listen(BACKLOG)
    host = Host(settings)
    pa.array([0])  # Arrow looks for pandas with the first array: not with the first row
    import_module("pyarrow.compute")
    threading.Thread(target=_watch, args=(int(watched), host), name="watch", daemon=True).start()
    gc.collect()
    gc.freeze()
    sys.setswitchinterval(SWITCH_S)
    while True:
        connection, _ = listener.accept()
        threading.Thread(target=_serve, args=(host, connection), name="task", daemon=True).start()


def _serve(host: Host, connection: socket.socket) -> None:
    try:
        talk = Talk(connection)
        while (question := talk.next_question()) is not None:
            with talk.beating():
                answer = _answer(host, question)
            talk.answer(answer)
            if isinstance(question, End):
                _end("it was told to")
            if isinstance(answer, Failed):
                _end(answer.what)
    except OSError as error:
        log.warning("a task has gone: %s", error)
    finally:
        connection.close()


def _answer(host: Host, question: Question) -> Answer:
    try:
        return host.answer(question)
    except PeregrineError as error:
        return Failed(error.what, error.remedy)
    except Exception as error:  # whatever it is, the task that asked must know
        log.exception("a question could not be answered")
        return Failed(f"{type(error).__name__}: {error}", "see the log of the executor")


def _watch(pid: int, host: Host) -> None:
    """Ends this process with that one, also if it has ended before."""
    try:
        watched = os.pidfd_open(pid)
    except OSError:
        _end("the process that started it has gone")
    while not select.select([watched], [], [], 1.0)[0]:
        if host.is_forgotten():
            _end("no task has come for a while")
    _end("Spark's Python has ended")


def _end(why: str) -> None:
    """Nothing is lost with it, so nothing is closed."""
    log.warning("pid=%d ends: %s", os.getpid(), why)
    os._exit(0)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
