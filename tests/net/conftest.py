"""Makes `real_sites` importable, and ends every process that a test started."""

import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

sys.path.insert(0, str(Path(__file__).parent))

from real_sites import Cluster


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Callable[..., Cluster]]:
    started: list[Cluster] = []

    def make(*sites: str, **more: Any) -> Cluster:
        started.append(Cluster(tmp_path / f"run{len(started)}", sites, **more))
        return started[-1]

    yield make
    for cluster in started:
        cluster.close()
