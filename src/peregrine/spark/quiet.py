"""What py4j and PySpark print when Spark's process has died, pages of tracebacks, is not printed.

They raise errors besides, which reach who called, and the supervisor says in one line what has died and what it does
about it.
"""

# pyspark is optional, also where types are checked.
# mypy: disable-error-code="import-not-found, import-untyped"

import logging
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

log = logging.getLogger(__name__)


def quieten(spark: "SparkSession") -> None:
    """May be called again, and has to be for each session. Who sets the level of logger `py4j` hears all of it."""
    from py4j import java_gateway

    # Part of what it says it tells the root logger, which installs a handler if there is none.
    java_gateway.logging = java_gateway.logger
    py4j = logging.getLogger("py4j")
    if py4j.level == logging.NOTSET:
        py4j.setLevel(logging.CRITICAL)
    # It reads updates of accumulators from Spark's process; its base class prints that this has ended.
    server: Any = spark.sparkContext._accumulatorServer
    server.handle_error = lambda request, address: log.debug("accumulators=%r", "not read any more")
