"""A host's query that can be started again: from its checkpoint, in the session that it had or in a new one."""

# pyspark is optional, also where types are checked.
# mypy: disable-error-code="import-not-found, import-untyped"

from collections.abc import Callable
from contextlib import suppress
from subprocess import TimeoutExpired
from typing import TYPE_CHECKING, Any

from py4j.protocol import Py4JError

from peregrine.spark.host import HostConfig, start
from peregrine.spark.listener import Progress, ProgressListener

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

REASON_CHARACTERS = 500
DYING_S = 5.0
_DEAD = (Py4JError, OSError)  # what a call raises when the process of Spark has died


class HostQuery:
    def __init__(self, session: Callable[[], "SparkSession"], config: HostConfig) -> None:
        self.name = "host"
        self._session = session
        self._config = config
        self._stopped = False
        self._listener = ProgressListener()
        self.query: StreamingQuery = start(session(), config)

    def failure(self) -> str | None:
        if self._stopped:
            return None
        try:
            if self.query.isActive:
                return None
        except _DEAD:
            return how_spark_died()
        return str(self.query.exception() or "the query has ended")[:REASON_CHARACTERS]

    def progress(self) -> Progress:
        return self._listener.hear(self.query)

    def restart(self) -> None:
        if running_jvm() is None:
            forget_session()
        self.query = start(self._session(), self._config)

    def stop(self) -> None:
        self._stopped = True
        with suppress(*_DEAD):
            self.query.stop()
        self.end_processes()

    def end_processes(self) -> None:
        """Those of continuous places: they would serve on for a while without the query."""
        self._config.attaching().end()


def running_jvm() -> int | None:
    """The process in which the driver of this one's session runs, if there is a session. It ends a moment after us."""
    from pyspark import SparkContext

    jvm: Any = SparkContext._jvm
    try:
        return None if jvm is None else int(jvm.java.lang.ProcessHandle.current().pid())
    except _DEAD:
        return None


def how_spark_died() -> str:
    """It does not answer any more: in a moment the system knows why."""
    from pyspark import SparkContext

    gateway: Any = SparkContext._gateway
    try:
        code = gateway.proc.wait(DYING_S)
    except (AttributeError, TimeoutExpired):  # somebody else has found it dead before us, or it is not
        return "Spark's process does not answer"
    return f"Spark's process has ended: {f'signal {-code}' if code < 0 else f'code {code}'}"


def forget_session(patience_s: float | None = None) -> None:
    """Spark's process has died, or ends now: without this the next session would be looked for in it."""
    from pyspark import SparkContext
    from pyspark.sql import SparkSession

    dead: Any = SparkContext._gateway
    if dead is not None:
        with suppress(*_DEAD):
            dead.shutdown()
    if dead is not None and dead.proc is not None:  # else somebody else has started it
        dead.proc.stdin.close()
        try:
            dead.proc.wait(patience_s)
        except TimeoutExpired:
            dead.proc.kill()
            dead.proc.wait()
    SparkContext._gateway = SparkContext._jvm = SparkContext._active_spark_context = None
    SparkSession._instantiatedSession = None
