"""The DataFrame operators of a host process: queries in its session, beside that of the host.

Whoever started the process says which, and asks how they are. They travel as code does (spark/registry.py): in a file
that only this user may write, and read.
"""

# pyspark is optional, also where types are checked.
# mypy: disable-error-code="import-not-found"

from pathlib import Path
from typing import TYPE_CHECKING, Any

from pyspark import cloudpickle

from peregrine.errors import ConfigurationError
from peregrine.spark.registry import dumps
from peregrine.spark.transform import TransformConfig, TransformQuery
from peregrine.types import PlaceId

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


class HostedTransforms:
    """One hand at a time."""

    def __init__(self, spark: "SparkSession") -> None:
        self._spark = spark
        self._queries: dict[PlaceId, TransformQuery] = {}

    def start(self, file: Path) -> None:
        """Returns when the query runs, from its checkpoint on. One of the same place is replaced."""
        config = _load(file)
        self.stop(config.place)
        self._queries[config.place] = TransformQuery(lambda: self._spark, config)

    def stop(self, place: PlaceId) -> None:
        query = self._queries.pop(place, None)
        if query is not None:
            query.stop()

    def failure(self, place: PlaceId) -> str | None:
        """Why it does not run."""
        query = self._queries.get(place)
        return query.failure() if query is not None else "its Spark application has begun anew"

    def stop_all(self) -> None:
        for place in list(self._queries):
            self.stop(place)


def save(config: TransformConfig, file: Path) -> None:
    file.write_bytes(dumps(config))


def _load(file: Path) -> TransformConfig:
    loads: Any = cloudpickle.loads
    try:
        config: TransformConfig = loads(file.read_bytes())
    except ImportError as error:
        raise ConfigurationError(
            f"the Spark application of a site cannot load a DataFrame operator: {error}",
            "install the module in which its function is, or define the function where the application is started",
        ) from error
    return config
