"""The audit of routers that run: their journals as they are now, looked at in copies.

Called when everything is drained; a migration that is under way would count as left behind.
"""

import shutil
import tempfile
from collections.abc import Sequence
from pathlib import Path

from peregrine.audit import audit
from peregrine.control.deployment import Deployment
from peregrine.core.placement import Initial
from peregrine.net.settings import RouterSettings
from peregrine.net.store import KEPT


def audit_deployment(deployment: Deployment, initial: Initial = ()) -> list[str]:
    """What is wrong, in words; empty if nothing is. Of sites that have left as well."""
    there = [router.settings for router in deployment.routers.values()]
    return audit_routers([*deployment.retired, *there], initial)


def audit_routers(routers: Sequence[RouterSettings], initial: Initial = ()) -> list[str]:
    """As `audit_deployment`, of all routers of a topology; they may have ended."""
    configs = {router.site: router.router_config() for router in routers}
    with tempfile.TemporaryDirectory(prefix="peregrine-audit-") as directory:
        journals = {}
        for router in routers:
            copy = journals[router.site] = Path(directory) / router.site
            copy_journal(Path(router.directory), copy)
        topology = next(iter(configs.values())).topology
        return audit(configs, journals, topology.main_place(topology.root), initial)


def copy_journal(home: Path, copy: Path) -> None:
    """Of a router that goes on writing: what is half there in the copy is cut off when the copy is opened."""
    shutil.copytree(home / "journal", copy)
    if (home / KEPT).exists():
        shutil.copytree(home / KEPT, copy, dirs_exist_ok=True)
