"""One Spark session for all tests of a worker, and a bench with a host and its router."""

import os
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest

from peregrine.core.intake import RouterConfig
from peregrine.core.messages import FromSource
from peregrine.core.operator import Operator, OpSpec
from peregrine.core.topology import Topology
from peregrine.errors import ConfigurationError
from peregrine.net.settings import make_token
from peregrine.types import OpId, PlaceId, SourceId

sys.path.insert(0, str(Path(__file__).parent))
from stand_in import StandIn

from harness import CLOUD, OP, SINK, row, rows, sink, spec
from left_behind import java_options

MOST_WORKERS = 3
PLACES = (PlaceId("cloud/a"), PlaceId("cloud/b"))
SPECS: dict[OpId, OpSpec] = {OP: spec(), SINK: sink()}


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """With `--dist loadgroup` the tests of a file stay together here, as with `loadfile`: they share a deployment."""
    here = Path(__file__).parent
    for item in items:
        if item.path.is_relative_to(here):
            item.add_marker(pytest.mark.xdist_group(item.path.stem))


@pytest.fixture(scope="session")
def spark() -> Iterator[Any]:
    if find_spec("pyspark") is None or find_spec("pandas") is None:
        pytest.skip("pyspark or pandas is not installed: pip install --editable '.[spark]'")
    if int(os.environ.get("PYTEST_XDIST_WORKER_COUNT", "1")) > MOST_WORKERS:
        pytest.skip("each worker has a Spark session of its own: run pytest -n 2 --dist loadfile tests/spark")
    from peregrine.spark.java import find_java
    from peregrine.spark.session import open_session

    try:
        find_java()
    except ConfigurationError as error:
        pytest.skip(str(error))
    session = open_session("tests")
    yield session
    session.stop()


@pytest.fixture
def java(monkeypatch: pytest.MonkeyPatch) -> None:
    """For tests with Spark applications in processes of their own."""
    # Several JVMs start at once, and a quick start is all that matters.
    monkeypatch.setenv("JAVA_TOOL_OPTIONS", java_options("-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC"))
    if find_spec("pyspark") is None:
        pytest.skip("pyspark is not installed: pip install --editable '.[spark]'")
    from peregrine.spark.java import find_java

    try:
        find_java()
    except ConfigurationError as error:
        pytest.skip(str(error))


class Bench:
    """A host of two places of one site. `feed` sends rows, `settled` waits until the host has committed all of them."""

    def __init__(self, spark: Any, directory: Path, operators: Mapping[OpId, Operator]) -> None:
        from peregrine.spark import host, registry, served

        self.spark = spark
        self.router = StandIn(RouterConfig(CLOUD, Topology.tree(CLOUD, {}, {CLOUD: ("a", "b")}), SPECS))
        self.registry = directory / "operators"
        registry.publish(self.registry, dict(operators))
        token_file = directory / "token"
        make_token(token_file)
        served.publish(directory / "served", {place: served.Served(self.router.address) for place in PLACES})
        self.config = host.HostConfig(
            directory / "served", token_file, self.registry, directory / "checkpoint", max_rows=500
        )
        self.query: Any = None
        self._seq = 0

    def start(self) -> None:
        from peregrine.spark import host

        self.query = host.start(self.spark, self.config)

    def stop(self) -> None:
        if self.query is not None:
            self.query.stop()

    def feed(self, count: int, keys: int = 10) -> None:
        given = [row(f"k{i % keys}", i) for i in range(self._seq, self._seq + count)]
        self._seq += count
        self.router.step(FromSource(SourceId("s"), ((self._seq - 1, rows(*given)),)))

    def settled(self) -> None:
        self.until(lambda: all(self.router.router.commits.get(p, 0) == log.end for p, log in self.router.logs.items()))

    def until(self, done: Callable[[], bool], patience_s: float = 90.0) -> None:
        deadline = time.monotonic() + patience_s
        while not done():
            assert self.query is None or self.query.isActive, self.query.exception()
            assert time.monotonic() < deadline, "it takes too long"
            time.sleep(0.02)


@pytest.fixture
def bench(spark: Any, tmp_path: Path) -> Iterator[Callable[[Mapping[OpId, Operator]], Bench]]:
    made: list[Bench] = []

    def make(operators: Mapping[OpId, Operator]) -> Bench:
        made.append(Bench(spark, tmp_path, operators))
        return made[-1]

    yield make
    for each in made:
        each.stop()
        each.router.shutdown()


def pytest_sessionfinish() -> None:
    """Callers that were killed on purpose could not clear up behind themselves."""
    if find_spec("pyspark") is not None:
        from peregrine.spark.session import clear_up

        clear_up()
