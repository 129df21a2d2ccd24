"""What docs/mobility.md shows is run, with a real guide and real routers; what needs Spark is run where that is
(tests/spark/test_tree_changes.py).
"""

import re
from collections.abc import Callable
from pathlib import Path

from guided import CLOUD, EDGES, Road
from real_sites import Cluster, until

from peregrine.net.device import Device

PAGE = Path(__file__).parents[2] / "docs" / "mobility.md"


def test_every_block_of_the_page_that_needs_no_spark_runs(tmp_path: Path, start: Callable[..., Cluster]) -> None:
    blocks = re.findall(r"```python\n(.*?)```", PAGE.read_text("utf-8"), re.DOTALL)
    blocks = [block for block in blocks if "with run(" not in block]
    assert len(blocks) == 2
    road = Road(tmp_path, start)
    try:
        cluster = road.routers(EDGES[:2])
        until(lambda: road.registered() == list(EDGES[:2]))
        moved: list[bool] = []

        def arrived(car: Device) -> None:
            until(lambda: car.site == EDGES[1])
            moved.append(True)

        scope = {"__name__": "page", "guide": road.guide.address, "token": road.token, "arrived": arrived}
        for block in blocks:
            exec(compile(block, str(PAGE), "exec"), scope)
        assert moved == [True]
        until(lambda: cluster.clients[CLOUD].status().results_end == 19)
        assert [seq for line in cluster.results().values() for seq, _ in line] == list(range(19))
    finally:
        road.close()
