"""A host on Spark and a router process: a key moves live between two places, and the router dies meanwhile."""

import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from harness import CLOUD, OP, SINK, keys, migration, sink, spec
from peregrine.control.auditing import audit_routers
from peregrine.core.messages import Begin, Report
from peregrine.core.state import decode
from peregrine.core.topology import Topology
from peregrine.net.device import Device
from peregrine.net.launch import RouterProcess
from peregrine.net.settings import RouterSettings, make_token, read_token
from peregrine.sim.operators import Ledger
from peregrine.types import PlaceId, Runner, SourceId

A, B = PlaceId("cloud/a"), PlaceId("cloud/b")


class Site:
    """A router process, a host of its two places, and a device."""

    def __init__(self, spark: Any, directory: Path, runner: Runner, python: str) -> None:
        from peregrine.spark import host, registry, served

        self.spark, self.directory, self.runner = spark, directory, runner
        make_token(directory / "token")
        self.router = self.start_router(0)
        registry.publish(directory / "operators", {OP: Ledger(SINK)})
        served.publish(
            directory / "served", {place: served.Served(self.router.address, runner=runner) for place in (A, B)}
        )
        self.config = host.HostConfig(
            directory / "served", directory / "token", directory / "operators", directory / "checkpoint", python=python
        )
        self.query = host.start(spark, self.config)
        token = read_token(directory / "token")
        self.device = Device(SourceId("s"), {CLOUD: self.router.address}, CLOUD, token)
        self.sent = 0

    def start_router(self, port: int) -> RouterProcess:
        topology = Topology.tree(CLOUD, {}, {CLOUD: ("a", "b")})
        token_file = self.directory / "token"
        settings = RouterSettings.of(
            CLOUD, topology, (spec(), sink()), self.directory / "router", token_file, port=port
        )
        return RouterProcess(settings, self.directory / "router.json", self.directory / "router.log")

    def send(self, count: int) -> None:
        for i in range(self.sent, self.sent + count):
            self.device.send(OP, f"k{i % 10}", b"%d" % i)
        self.sent += count

    def until(self, done: Callable[[], bool], patience_s: float = 90.0) -> None:
        deadline = time.monotonic() + patience_s
        while not done():
            assert self.query.isActive, self.query.exception()
            assert time.monotonic() < deadline, f"it takes too long: {self.router.client().status()}"
            time.sleep(0.1)

    def settled(self) -> None:
        assert self.device.flush(30.0), self.device.trouble
        client = self.router.client()
        self.until(lambda: (status := client.status()).ends == status.commits and status.results_end == self.sent)

    def close(self) -> None:
        self.query.stop()
        self.config.attaching().end()
        self.device.close()
        self.router.stop()


@pytest.fixture(
    params=[("microbatch", ""), ("continuous", ""), ("continuous", "/no/python")],
    ids=["microbatch", "continuous", "continuous where no process can be started"],
)
def site(spark: Any, tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[Site]:
    made = Site(spark, tmp_path, *request.param)
    yield made
    made.close()


def test_a_key_moves_live_and_the_router_dies_and_each_result_comes_once_and_in_order(site: Site) -> None:
    from peregrine.spark import host, served

    site.send(500)
    site.settled()
    site.router.client().offer(Begin(migration(keys("k3", "k4"), A, B, CLOUD, gate=CLOUD)))
    site.send(300)
    site.until(lambda: "done" in statuses(site.router))
    site.send(200)
    site.settled()

    site.send(500)
    site.router.kill()
    site.router = site.start_router(site.router.port)
    site.send(500)
    site.settled()

    table, _ = site.router.client().read_results(0)
    results = list(zip(table.column("key").to_pylist(), table.column("seq").to_pylist(), strict=True))
    assert sorted(seq for _, seq in results) == list(range(site.sent))
    for key in range(10):
        assert [seq for name, seq in results if name == f"k{key}"] == list(range(key, site.sent, 10))
    states = host.states(site.spark, site.config.checkpoint)
    at = {key: place for (place, _, _), blob in states.items() for key in decode(blob)}
    assert at == {f"k{key}": B if key in (3, 4) else A for key in range(10)}
    assert site.router.client().status().leftovers == []
    assert audit_routers([site.router.settings]) == []
    runners = {each.runner for each in served.served_by(str(site.config.served)).values()}
    assert runners == {"continuous" if site.runner == "continuous" and not site.config.python else "microbatch"}


def statuses(router: RouterProcess) -> list[str]:
    _, news = router.client().news(0)
    return [each.status for each in news if isinstance(each, Report)]
